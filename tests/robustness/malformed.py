"""Malformed files for all readers and stores: an error that names the file, or exactly the values in the file.

A valid file is modified by random bytes, truncation, hostile tokens or hostile sizes, also inside compressed and
checksummed containers. What a reader accepts is compared with an independent strict reader where there is one.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pickle
import re
import sqlite3
import traceback
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from robustness import stored_files
from robustness.campaign import Campaign, Failure
from robustness.formats import GZIP, ZIP, Format, pack_zip, table, write

MAX_BYTES = 1 << 26
"""Value of ``CCMN_MAX_BYTES`` during the campaign."""

TOKENS = [
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1e400",
    "1e300",
    "1_0",
    "0x1",
    "?",
    "''",
    '"',
    "'",
    ",",
    ";",
    ":",
    "{",
    "}",
    "[",
    "]",
    "@data",
    "@attribute",
    "%",
    "#",
    "\\",
    "null",
    "true",
    "false",
    "None",
    "-1",
    "-0",
    "2",
    "0.5",
    "+",
    "-",
    ".",
    "e",
    "99999999999999999999",
    "2147483647",
    "4294967295",
    "-2147483648",
    "١",
    "\xa0",
    "\ufeff",
    "\x00",
    "\r",
    "\n",
    "\r\n",
    "\t",
    "qid:1",
    "0:1",
    "1:1",
    "<!DOCTYPE",
    "<label>",
    "&x;",
    "version",
    "format",
    "1e",
    "1e5",
    "0,1",
    "__reduce__",
]
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)


class Bomb:
    """Object whose unpickling leaves a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("executed",))


# -- Valid files


def _dense(data: Any) -> tuple[np.ndarray, np.ndarray]:
    if data.d + data.q > 10_000:
        return ()  # a valid sparse matrix of a size that a strict reader does not accept
    return tuple(np.asarray(M.toarray() if scipy.sparse.issparse(M) else M, np.float64) for M in (data.X, data.Y))


def _csv() -> bytes:
    X, Y = table()
    rows = [",".join([f"{x:g}" for x in X[i]] + [str(y) for y in Y[i]]) for i in range(len(X))]
    return ("a,b,c,d,sea,sky\n" + "\n".join(rows) + "\n").encode()


def _arff() -> bytes:
    header = "@relation x\n" + "".join(f"@attribute {n} numeric\n" for n in "abcd")
    header += "@attribute sea {0,1}\n@attribute sky {0,1}\n@data\n"
    return header.encode() + _csv().partition(b"\n")[2]


def _sparse_arff() -> bytes:
    head, _, rows = _arff().partition(b"@data\n")
    lines = [
        "{" + ",".join(f"{j} {v}" for j, v in enumerate(row.split(",")) if v != "0") + "}"
        for row in rows.decode().split()
    ]
    return head + b"@data\n" + "\n".join(lines).encode() + b"\n"


def _libsvm() -> bytes:
    X, Y = table()
    lines = []
    for x, y in zip(X, Y):
        pairs = " ".join(f"{j + 1}:{v:g}" for j, v in enumerate(x))
        lines.append(f"{','.join(map(str, np.flatnonzero(y)))} {pairs}".strip())
    return ("\n".join(lines) + "\n").encode()


def _npz(sparse: bool = False) -> bytes:
    X, Y = table()
    stream = io.BytesIO()
    arrays: dict[str, Any] = {"X": X, "Y": Y, "label_names": np.array(["sea", "sky"])}
    if sparse:
        S = scipy.sparse.csr_array(X)
        parts = {"X_data": S.data, "X_indices": S.indices, "X_indptr": S.indptr, "X_shape": np.array(S.shape)}
        arrays = {**parts, "Y": Y}
    np.savez(stream, **arrays)
    return stream.getvalue()


def _mat(sparse: bool = False, packed: bool = False) -> bytes:
    X, Y = table()
    data = scipy.sparse.csc_array(X.astype(np.float64)) if sparse else X.astype(np.float64)
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"data": data, "target": Y.T.astype(float)}, do_compression=packed)
    return stream.getvalue()


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, Y = table()
    columns = {name: X[:, j] for j, name in enumerate("abcd")} | {"sea": Y[:, 0], "sky": Y[:, 1]}
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def _votes() -> bytes:
    lines = [
        f"{i},ann{a},{label},{(i + a) % 2},{i / 4}" for i in range(4) for a in range(2) for label in ("sea", "sky")
    ]
    return ("row,annotator,label,value,x\n" + "\n".join(lines) + "\n").encode()


def _votes_parquet() -> bytes:
    import pandas as pd

    stream = io.BytesIO()
    pd.read_csv(io.BytesIO(_votes()), dtype={"row": str}).to_parquet(stream, index=False)
    return stream.getvalue()


def _part() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ones((4, 3), np.float32))
    return stream.getvalue()


@cache
def _classifier() -> Any:
    from ccmn import CCMNClassifier
    from ccmn.noise import PartialNoise

    X, Y = table()
    return CCMNClassifier(PartialNoise([0.1, 0.2]), epochs=2, lr=0.1, random_state=0).fit(X, Y)


def _model(folder: bool = False) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        _classifier().save(Path(place) / "m.ccmn")
        return (Path(place) / "m.ccmn").read_bytes()


def _tasks() -> bytes:
    """Return tasks of Label Studio with two annotators and verified labels."""

    def annotate(who: int, choices: list[str], true: bool = False) -> dict[str, Any]:
        result = [{"from_name": "labels", "to_name": "text", "type": "choices", "value": {"choices": choices}}]
        return {"completed_by": who, "ground_truth": true, "was_cancelled": False, "result": result}

    sets = [["sea"], ["sea", "sky"], [], ["sky"]]
    tasks = [
        {
            "id": i,
            "data": {"text": f"red boat {i}", "image": f"{i}.png"},
            "annotations": [annotate(1, sets[i % 4]), annotate(2, sets[(i + 1) % 4]), annotate(3, ["sea"], i == 0)],
        }
        for i in range(6)
    ]
    return json.dumps(tasks).encode()


def _records() -> bytes:
    rows = [{"id": f"r{i}", "text": f"blue boat {i % 3}", "labels": ["sea"] if i % 2 else ["sky"]} for i in range(6)]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _mixed() -> bytes:
    """Return a table of numbers, categories, dates, texts and tags, with gaps."""
    ages, cities, tags = [*map(str, range(11)), ""], ["Rome", "Oslo", ""] * 4, ["sea", "sea;sky"] * 6
    rows = [f"r{i},{ages[i]},{cities[i]},2026-01-{i + 1:02},red boat {i},{tags[i]}" for i in range(12)]
    return ("id,age,city,day,text,tags\n" + "\n".join(rows) + "\n").encode()


@cache
def _table_model() -> bytes:
    """Return a model with the preprocessing of a table."""
    import tempfile

    from ccmn import CCMNClassifier
    from ccmn.app.cli.predict_command import store_columns

    with tempfile.TemporaryDirectory() as place:
        columns, data = _read_mixed(write(place, "mixed.csv", _mixed()))
        options: dict[str, Any] = {"loss": "hamming", "epochs": 2, "lr": 0.1, "random_state": 0}
        classifier = CCMNClassifier(None, **options).fit(data.X, data.Y)
        store_columns(classifier, columns)
        classifier.save(Path(place) / "m.ccmn")
        return (Path(place) / "m.ccmn").read_bytes()


@cache
def _checkpoint() -> bytes:
    import tempfile

    from ccmn.training.checkpoint import Checkpoint

    kept: list[bytes] = []
    save = Checkpoint.save

    def save_and_keep(self: Any, *arguments: Any) -> None:
        save(self, *arguments)
        if self.path.exists():
            kept.append(self.path.read_bytes())

    Checkpoint.save = save_and_keep  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as place:
            _fit_with_checkpoint(Path(place) / "state")
    finally:
        Checkpoint.save = save  # type: ignore[method-assign]
    return kept[0]


def _fit_with_checkpoint(path: Path) -> np.ndarray:
    from ccmn import CCMNClassifier

    X, Y = table()
    clf = CCMNClassifier(None, epochs=6, lr=0.1, random_state=0)
    return clf.fit(X, Y, checkpoint=path).decision_function(X)


def _rates() -> bytes:
    from ccmn.app.rates_files import describe_rates
    from ccmn.estimation import estimate_noise

    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3))
    return json.dumps(describe_rates(estimate_noise(X, (X[:, :2] > 0).astype(int), random_state=0))).encode()


def _store(kind: str) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "store.db"
        if kind == "results":
            from ccmn.paper.result_store import ResultStore

            with ResultStore(path) as store:
                store.append(_results())
        else:
            from ccmn.app.review.decisions import DecisionStore, QueueItem

            with DecisionStore(path, {"rows": 12}) as store:
                for position in range(4):
                    item = QueueItem(position, position, "random", (0, 1))
                    store.append(item, (0, 1))
                    store.record(item, {0: "yes", 1: "no"})
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        return path.read_bytes()


def _results() -> list[Any]:
    from ccmn.paper.result_store import Cell, Result

    outcome = {"values": {"clean": {"hamming_loss": 0.25, "ranking_loss": 0.5}}}
    return [Result(Cell("table1", "literal", "yeast", "ridge", repeat, 100), outcome) for repeat in range(5)]


def _cells() -> bytes:
    import tempfile

    from ccmn.paper.result_store import write_cells

    with tempfile.TemporaryDirectory() as place:
        write_cells(_results(), Path(place) / "cells.csv")
        return (Path(place) / "cells.csv").read_bytes()


# -- Readers


def _read(path: Path, labels: Any = None) -> Any:
    from ccmn.data.formats import read_file

    return _dense(read_file(path, labels))


def _read_shards(path: Path) -> Any:
    from ccmn.data import ShardedData

    data = ShardedData(path.parent, ["sea", "sky"])
    return [part for group in data.groups for part in data.read(group, 5)]


def _read_model(path: Path) -> Any:
    from ccmn import load_model

    with np.errstate(all="ignore"):
        scores = load_model(path).decision_function(table()[0])
    if not np.isfinite(scores).all():
        raise Failure("not finite", "predictions of an accepted model")


def _read_rates(path: Path) -> Any:
    from ccmn.app.rates_files import describe_rates, read_estimate

    return json.dumps(describe_rates(read_estimate(path)))


def _read_results(path: Path) -> Any:
    from ccmn._files import prefix_errors
    from ccmn.paper.result_store import ResultStore
    from ccmn.paper.summary import summarize

    with ResultStore(path) as store:
        results = list(store.results())
    with prefix_errors(path):  # as the commands do
        return summarize(results)


def _read_decisions(path: Path) -> Any:
    from ccmn.app.review.decisions import DecisionStore

    with DecisionStore(path, {"rows": 12}) as store:
        item = store.item(1)
        store.answers(), store.sampled_answers(), store.sampled_counts(), store.progress(), store.can_undo()
        if item is not None:
            store.record(item, {0: "unsure"})
            store.undo()


def _read_cells(path: Path) -> Any:
    from ccmn._files import prefix_errors
    from ccmn.paper.result_store import read_cells
    from ccmn.paper.summary import summarize

    results = read_cells(path)
    with prefix_errors(path):
        return summarize(results)


def _read_votes(path: Path) -> Any:
    from ccmn.data.vote_files import read_votes

    table = read_votes(path, ["row", "annotator", "label", "value"])[0]
    indices = (table.row_ids, table.row), (table.annotator_names, table.annotator), (table.label_names, table.label)
    votes = zip(
        *([str(names[i]) for i in index] for names, index in indices), (0.0 + table.value).tolist(), strict=True
    )
    return (_as_bytes(votes),)


def _as_bytes(votes: Any) -> np.ndarray:
    """Return votes (row, annotator, label, value) in a form that arrays are compared in."""
    return np.frombuffer(json.dumps(sorted(votes)).encode(), np.uint8)


def _read_parts(path: Path) -> Any:
    from ccmn.data.encoders import encode_rows

    return encode_rows(lambda items: np.ones((len(items), 3)), int, 4, parts=path.parent)


def _read_json(path: Path) -> Any:
    from ccmn.data.exchange import read_json

    return read_json(path)


def _read_mixed(path: Path) -> Any:
    from ccmn.data.column_roles import ColumnRoles
    from ccmn.data.columns import Columns

    return Columns.from_training_data(path, roles=ColumnRoles(tags="tags", text=("text",), id="id"))


def _read_table_model(path: Path) -> Any:
    """Predict rows of a table with a model, as the command does."""
    from ccmn.app.cli.predict_command import load_columns

    classifier, columns = load_columns(path)
    rows = write(path.parent, "mixed.csv", _mixed())
    try:
        data = columns.read_rows(rows)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None  # the error names the rows, which lack its columns
    with np.errstate(all="ignore"):
        if not np.isfinite(classifier.decision_function(data.X)).all():
            raise Failure("not finite", "predictions of an accepted model")


def _read_embedded(path: Path) -> Any:
    from ccmn.app.cli.embed_command import _read_table

    return _read_table(path, ["city"])


def _read_names(path: Path) -> Any:
    from ccmn.data.tables import label_names

    return label_names(path)


# -- Strict readers for comparison. They return None for what they do not understand.


def _numbers(cells: list[str], missing: str) -> list[float] | None:
    words = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0} if missing == "" else {}
    values = []
    for cell in cells:
        bare = cell.strip().lower()
        if bare == missing or bare == "nan":
            values.append(np.nan)
        elif bare in words:
            values.append(words[bare])
        elif NUMBER.fullmatch(cell):
            values.append(float(np.float32(float(cell))))
        else:
            return None
    return values


def _split(rows: list[list[float]], columns: list[int]) -> Any:
    values = np.array(rows)
    others = [j for j in range(values.shape[1]) if j not in columns]
    return values[:, others], values[:, columns]


def _expected_csv(content: bytes) -> Any:
    try:
        records = [r for r in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True) if r]
    except (UnicodeDecodeError, csv.Error):
        return None
    names = [name.strip() for name in records[0]]
    rows = [_numbers(record, "") for record in records[1:]]
    if None in rows or {len(row) for row in rows} != {len(names)} or not {"sea", "sky"} <= set(names):
        return None
    return _split(rows, [j for j, name in enumerate(names) if name in ("sea", "sky")])


def _expected_votes(content: bytes) -> Any:
    try:
        records = [r for r in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True) if r]
    except (UnicodeDecodeError, csv.Error):
        return None
    names, plain = records[0], re.compile(r"\w+", re.ASCII)
    if sorted(names) != ["annotator", "label", "row", "value", "x"]:
        return None
    columns = [names.index(name) for name in ("row", "annotator", "label", "value")]
    votes: dict[tuple[str, ...], float] = {}
    for record in records[1:]:
        if len(record) != len(names) or not all(plain.fullmatch(record[j]) for j in columns[:3]):
            return None
        value = record[columns[3]]
        if value and not NUMBER.fullmatch(value):
            return None
        votes[tuple(record[j] for j in columns[:3])] = 0.0 + float(value or "nan")
    return (_as_bytes([(*key, value) for key, value in votes.items() if value == value]),)


def _expected_arff(content: bytes) -> Any:
    try:
        head, _, body = content.decode("utf-8-sig").partition("@data\n")
    except UnicodeDecodeError:
        return None
    names = re.findall(r"(?m)^@attribute (\w+) (?:numeric|\{[0-9,]+\})$", head)
    rows = []
    for line in body.splitlines():
        text = line.partition("%")[0].strip()
        if text.startswith("{"):
            pairs = [pair.split() for pair in text[1:-1].split(",") if pair.strip()]
            if any(len(pair) != 2 or not pair[0].isdecimal() or int(pair[0]) >= len(names) for pair in pairs):
                return None
            values = _numbers([value for _, value in pairs], "?")
            if values is None:
                return None
            row = [0.0] * len(names)
            for (j, _), value in zip(pairs, values):
                row[int(j)] = value
            rows.append(row)
        elif text:
            rows.append(_numbers(text.split(","), "?"))
    if None in rows or {len(row) for row in rows} != {len(names)} or names[-2:] != ["sea", "sky"]:
        return None
    return _split(rows, [len(names) - 2, len(names) - 1])


def _expected_libsvm(content: bytes) -> Any:
    rows, labels = [], []
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        return None
    for line in lines:
        parts = line.partition("#")[0].split()
        if not parts:
            continue
        head = [] if ":" in parts[0] else parts.pop(0).split(",")
        pairs = [part.split(":") for part in parts]
        if any(len(p) != 2 or not p[0].isdecimal() or not NUMBER.fullmatch(p[1]) for p in pairs):
            return None
        rows.append({int(j) - 1: float(np.float32(float(v))) for j, v in pairs})
        labels.append([int(k) for k in head])
    width, q = (
        max((j for row in rows for j in row), default=-1) + 1,
        max((k for row in labels for k in row), default=-1) + 1,
    )
    if width > 1000 or q > 1000:
        return None
    X, Y = np.zeros((len(rows), width)), np.zeros((len(rows), q))
    for i, (row, present) in enumerate(zip(rows, labels)):
        for j, value in row.items():
            X[i, j] = value
        Y[i, present] = 1
    return X, Y


def _expected_npz(content: bytes) -> Any:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            X, Y = archive["X"], archive["Y"]
            return X.astype(np.float64), Y.astype(np.float64)
    except Exception:
        return None


def _expected_parquet(content: bytes) -> Any:
    import pyarrow.parquet as pq

    frame = pq.read_table(io.BytesIO(content)).to_pandas()
    with np.errstate(over="ignore"):
        values = frame.to_numpy().astype(np.float32).astype(np.float64)
    labels = [frame.columns.get_loc(name) for name in ("sea", "sky")]
    return _split(values.tolist(), labels)


# -- Containers


def _unpack_store(content: bytes) -> dict[str, bytes]:
    return {"database": content}


def _pack_store(parts: dict[str, bytes]) -> bytes:
    """Replace a random value of a random table, so that the file is valid and its content is not."""
    import tempfile

    content = parts["database"]
    rng = np.random.default_rng(len(content) + sum(content[:3000]))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "store.db"
        path.write_bytes(parts["original"])
        with sqlite3.connect(path) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            name = tables[rng.integers(len(tables))]
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            value = rng.choice(["", "{", "[]", "{}", "nan", "x" * 5000, "[" * 9999, "-1", "1e400", "\x00", "[null]"])
            typed: Any = [str(value), None, 2**62, -1, 1e308, str(value).encode(), "\ud800x"[1:]][rng.integers(7)]
            try:
                connection.execute("PRAGMA ignore_check_constraints = 1")
                connection.execute(f"UPDATE OR IGNORE {name} SET {columns[rng.integers(len(columns))]} = ?", (typed,))
            except sqlite3.Error:
                pass
        connection.close()
        return path.read_bytes()


STORE = (_unpack_store, _pack_store)
LABELS = ["sea", "sky"]


def _csv_gz() -> bytes:
    return gzip.compress(_csv(), 1)


FORMATS = (
    Format("data.csv", _csv, lambda p: _read(p, LABELS), _expected_csv),
    Format("data.csv.gz", _csv_gz, lambda p: _read(p, LABELS), None, GZIP),
    Format("data.arff", _arff, lambda p: _read(p, -2), _expected_arff),
    Format("sparse.arff", _sparse_arff, lambda p: _read(p, -2), _expected_arff),
    Format("data.svm", _libsvm, _read, _expected_libsvm),
    Format("data.npz", _npz, _read, _expected_npz, ZIP),
    Format("sparse.npz", lambda: _npz(sparse=True), _read, None, ZIP),
    Format("data.mat", _mat, _read),
    Format("sparse.mat", lambda: _mat(sparse=True), _read),
    Format("packed.mat", lambda: _mat(packed=True), _read),
    Format("data.parquet", _parquet, lambda p: _read(p, LABELS), _expected_parquet),
    Format("shard.parquet", _parquet, _read_shards),
    Format("votes.csv", _votes, _read_votes, _expected_votes),
    Format("votes.parquet", _votes_parquet, _read_votes),
    Format("000000.npy", _part, _read_parts),
    Format("labels.xml", lambda: b'<labels><label name="sea"/><label name="sky"/></labels>', _read_names),
    Format("labels.txt", lambda: b"sea\nsky\n", _read_names),
    Format("rates.json", _rates, _read_rates),
    Format("model.ccmn", _model, _read_model, None, ZIP),
    Format("state", _checkpoint, _fit_with_checkpoint),
    Format("results.db", lambda: _store("results"), _read_results, None, STORE),
    Format("decisions.db", lambda: _store("decisions"), _read_decisions, None, STORE),
    Format("cells.csv", _cells, _read_cells),
    Format("tasks.json", _tasks, _read_json),
    Format("records.jsonl", _records, _read_json),
    Format("mixed.csv", _mixed, _read_mixed),
    Format("table.ccmn", _table_model, _read_table_model, None, ZIP),
    Format("photos.csv.gz", lambda: gzip.compress(_mixed(), 1), _read_embedded, None, GZIP),
    *stored_files.FORMATS,
)


# -- Mutations


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Return the content with one to four random changes."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(data) + 1))
        size = int(rng.choice([1, 2, 4, 8, 64]))
        kind = rng.integers(8)
        token = TOKENS[rng.integers(len(TOKENS))].encode("utf-8", "surrogatepass")
        if kind == 0:
            data[at : at + 1] = bytes([rng.integers(256)])
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = token
        elif kind == 4:
            data[at : at + len(token)] = token
        elif kind == 5:
            data[at : at + size] = bytes(rng.choice([0, 255, 127, 128], size).astype(np.uint8))
        elif kind == 6:
            other = int(rng.integers(len(data) + 1))
            data[at:at] = data[other : other + size * 8]
        else:
            data[at : at + size] = rng.bytes(size)
    return bytes(data)


def _replace_number(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace one number or word of a text by a hostile token."""
    words = list(re.finditer(rb"[\w.+-]+", content))
    if not words:
        return content
    word = words[rng.integers(len(words))]
    token = TOKENS[rng.integers(len(TOKENS))].encode("utf-8", "surrogatepass")
    return content[: word.start()] + token + content[word.end() :]


@cache
def _valid(index: int) -> bytes:
    return FORMATS[index].valid()


@cache
def _bombs() -> dict[str, bytes]:
    """Small files that unpack to 200 MB or run code, by the name of their format."""
    zeros, stream = bytes(200_000_000), io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("X.npy", "w") as member:
            np.lib.format.write_array_header_1_0(
                member, {"descr": "<f4", "fortran_order": False, "shape": (50000, 1000)}
            )
            member.write(zeros)
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.array([[Bomb()]], dtype=object), allow_pickle=True)
        archive.writestr("Y.npy", buffer.getvalue())
    pickled = io.BytesIO()
    np.savez(pickled, X=np.array([[Bomb()]], dtype=object), Y=np.array([[1]]))
    sparse = io.BytesIO()
    scipy.io.savemat(sparse, {"data": scipy.sparse.csc_array((2**31 - 1, 1)), "target": np.ones((1, 1))})
    return {
        "data.csv.gz": gzip.compress(b"a,sea,sky\n" + b"0,1,0\n" * 30_000_000, 1),
        "data.npz": stream.getvalue(),
        "sparse.npz": pickled.getvalue(),
        "sparse.mat": sparse.getvalue(),
        "rates.json": pickle.dumps(Bomb()),
        "model.ccmn": pack_zip({"model.json": pickle.dumps(Bomb()), "weights.safetensors": b"", "checksums.json": b""}),
        "state": pickle.dumps(Bomb()),
        "labels.xml": b'<!DOCTYPE l [<!ENTITY a "'
        + b"x" * 1000
        + b'"><!ENTITY b "'
        + b"&a;" * 1000
        + b'">]><l>&b;</l>',
    }


def _content(form: Format, index: int, rng: np.random.Generator) -> bytes:
    valid, choice = _valid(index), rng.random()
    if form.name in _bombs() and choice < 0.003:
        return _bombs()[form.name]
    if form.inner is not None and (choice < 0.6 or form.only_inner):
        unpack, pack = form.inner
        parts = unpack(valid)
        chosen = sorted(parts)[rng.integers(len(parts))]
        change = _replace_number if rng.random() < 0.5 else mutate
        parts["original"] = valid
        parts[chosen] = change(parts[chosen], rng)
        if form.inner is not STORE:
            del parts["original"]
        return pack(parts)
    return _replace_number(valid, rng) if choice < 0.8 else mutate(valid, rng)


def check(rng: np.random.Generator, folder: Path) -> str:
    """Read one malformed file."""
    index = int(rng.integers(len(FORMATS)))
    form = FORMATS[index]
    os.environ["CCMN_MAX_BYTES"] = str(MAX_BYTES)
    os.chdir(folder)
    path = folder / form.name
    content = _content(form, index, rng)
    path.write_bytes(content)
    try:
        value = form.read(path)
    except (ValueError, OSError) as error:
        if form.name not in str(error):
            raise Failure("unnamed", f"{form.name}: {type(error).__name__}: {error}") from None
        if "\n" in str(error):
            raise Failure("several lines", f"{form.name}: {error}") from None
        outcome = "rejected"
    except Failure:
        raise
    except Exception as error:
        raise Failure("traceback", f"{form.name}: {''.join(traceback.format_exception(error, limit=-4))}") from error
    else:
        outcome = "accepted"
        expected = None if form.expected is None else form.expected(content)
        if expected is not None:
            if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(value, expected, strict=True)):
                raise Failure("misread", f"{form.name}: {content!r}")
            outcome = "accepted, equal to the strict reader"
    if (folder / "executed").exists():
        raise Failure("code run", form.name)
    return outcome


def prepare() -> None:
    """Create the valid files and read each of them once, so that all libraries are imported."""
    import tempfile

    _bombs()
    for index, form in enumerate(FORMATS):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / form.name).write_bytes(_valid(index))
            form.read(Path(folder) / form.name)
            if form.expected is not None:
                form.expected(_valid(index))


CAMPAIGNS = (Campaign("malformed", check, 50_000, max_bytes=4 * MAX_BYTES, batch=250, prepare=prepare),)
