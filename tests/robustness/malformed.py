"""Malformed files for all readers and stores: an error that names the file, or exactly the values in the file.

A valid file is modified by random bytes, truncation, hostile tokens or hostile sizes, also inside compressed and
checksummed containers. What a reader accepts is compared with an independent strict reader where there is one.
"""

import csv
import gzip
import io
import json
import os
import pickle
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse

from ccmn import CCMNClassifier, CorrectedClassifier, load_model
from ccmn._files import checksum, prefix_errors
from ccmn._pictures import encode_png
from ccmn.app.review.decisions import DecisionStore, QueueItem
from ccmn.data import MultiLabelData, ShardedData, read_file
from ccmn.data.trusted_files import read_trusted
from ccmn.data.vote_files import read_votes
from ccmn.noise import ClassConditionalNoise, GroupedNoise, TransitionNoise
from ccmn.paper.result_store import Cell, Result, ResultStore, read_cells
from ccmn.paper.summary import summarize
from ccmn.training import checkpoint
from data.samples import SAVE
from robustness.campaign import Campaign, Failure, command, expect

MAX_BYTES = 1 << 26
"""Value of ``CCMN_MAX_BYTES`` during the campaign."""
LABELS = ["sea", "sky"]
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)
TOKENS = [
    *re.findall(
        r"\S+",
        """nan inf -inf 1e400 -1e400 1e300 1_0 0x1 ? '' " ' , ; : { } [ ] @data @attribute % # \\ null true false None
        -1 -0 2 0.5 + - . e 99999999999999999999 2147483647 4294967295 -2147483648 qid:1 0:1 1:1 1e 1e5 <!DOCTYPE
        <label> &x; version format 0,1 __reduce__ \u0661""",
    ),
    *("\xa0", "\ufeff", "\x00", "\r", "\n", "\r\n", "\t"),
]


class Format(NamedTuple):
    """Kind of file: a valid one, how it is read, and what it contains."""

    name: str
    """File name."""
    valid: Callable[[], bytes]
    read: Callable[[Path], Any]
    """Return an object that ``expected`` can be compared with, or anything."""
    expected: Callable[[bytes], Any] | None = None
    """Strict reader: return what the bytes mean, or None if they are not valid."""
    inner: tuple[Callable[[bytes], dict[str, bytes]], Callable[[dict[str, bytes]], bytes]] | None = None
    """Unpack a container into its parts, and pack it again with correct checksums."""


class Bomb:
    """Object whose unpickling leaves a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("executed",))


# -- Valid files


@cache
def table() -> tuple[np.ndarray, np.ndarray]:
    X = np.round(np.random.default_rng(0).normal(size=(12, 4)), 3).astype(np.float32)
    return X, (X[:, :2] > 0).astype(np.uint8)


def written(write: Callable[[Path], Any], name: str) -> bytes:
    """Return the content of a file that ``write`` writes to a folder."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return (Path(folder) / name).read_bytes()


def streamed(write: Callable[[Any], Any]) -> bytes:
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


@cache
def sample(kind: str) -> bytes:
    """Return a file of one of the formats with features a to d and the labels."""
    X, Y = table()
    data = MultiLabelData(X, Y, feature_names=list("abcd"), label_names=LABELS)
    return written(lambda folder: SAVE[kind](data, folder / f"data.{kind}"), f"data.{kind}")


def _votes() -> bytes:
    keys = [(i, a, label) for i in range(4) for a in range(2) for label in LABELS]
    lines = [f"{i},ann{a},{label},{(i + a) % 2},{i / 4}" for i, a, label in keys]
    return ("row,annotator,label,value,x\n" + "\n".join(lines) + "\n").encode()


def _mixed() -> bytes:
    """Return a table of numbers, categories, dates, texts and tags, with gaps."""
    ages, cities, tags = [*map(str, range(11)), ""], ["Rome", "Oslo", ""] * 4, ["sea", "sea;sky"] * 6
    rows = [f"r{i},{ages[i]},{cities[i]},2026-01-{i + 1:02},red boat {i},{tags[i]}" for i in range(12)]
    return ("id,age,city,day,text,tags\n" + "\n".join(rows) + "\n").encode()


def _annotated(kind: str) -> bytes:
    """Return the export of an annotation tool, as JSON or one record per line."""
    sets = [["sea"], ["sea", "sky"], [], ["sky"]]

    def studio(who: int, chosen: list[str]) -> dict[str, Any]:
        result = [{"from_name": "labels", "to_name": "text", "type": "choices", "value": {"choices": chosen}}]
        return {"completed_by": who, "ground_truth": who == 2, "was_cancelled": False, "result": result}

    def answer(user: int, chosen: list[str]) -> dict[str, Any]:
        return {"user_id": f"u{user}", "value": chosen, "status": "submitted" if user else "discarded"}

    records: dict[str, Callable[[int], dict[str, Any]]] = {
        "tasks.json": lambda i: {
            "data": {"text": f"red boat {i}", "image": f"{i}.png"},
            "annotations": [studio(who, sets[(i + who) % 4]) for who in range(3)],
        },
        "min.json": lambda i: {"labels": {"choices": LABELS} if i % 2 else "sea"},
        "argilla.json": lambda i: {
            "fields": {"text": f"red boat {i}"},
            "responses": {"labels": [answer(i % 3, sets[i % 2]), answer(1, sets[(i + 1) % 4])]},
        },
        "argilla.jsonl": lambda i: {"annotation": ["sea"], "annotation_agent": "a", "status": "Validated"},
        "doccano.jsonl": lambda i: {"data": f"red boat {i}", "label": sets[i % 4]},
        "records.jsonl": lambda i: {"labels": ["sea"] if i % 2 else ["sky"]},
    }
    rows = [{"id": i, "text": f"red boat {i}", **records[kind](i)} for i in range(6)]
    return (json.dumps(rows) if kind.endswith("json") else "".join(f"{json.dumps(row)}\n" for row in rows)).encode()


def _hugging_face() -> bytes:
    columns = {"text": [f"red boat {i}" for i in range(6)], "labels": [[0], [0, 1], [], [1], [0], [1]]}
    feature = {"feature": {"names": LABELS, "_type": "ClassLabel"}, "_type": "Sequence"}
    content = pa.table(columns)
    declared = {"huggingface": json.dumps({"info": {"features": {"labels": feature}}})}
    return streamed(lambda f: pq.write_table(content.replace_schema_metadata(declared), f))


def _embedded() -> bytes:
    """Return an output of ``ccmn embed``."""

    def embed(folder: Path) -> None:
        (folder / "photo.png").write_bytes(_photo())
        (folder / "list.csv").write_text("file,tags\n" + "photo.png,sea\nphoto.png,sky;sea\n" * 3)
        command(folder, "embed list.csv --image file --tags tags --encoder pixels:4x4 --out vectors.parquet")

    return written(embed, "vectors.parquet")


def _noise(kind: str) -> dict[str, Any]:
    if kind == "transition":
        return TransitionNoise([[0.9, 0.1], [0.2, 0.8]]).to_dict()
    members = [ClassConditionalNoise([0.1 * k, 0.2], [0.05, 0.1], label_names=LABELS) for k in range(3)]
    return (GroupedNoise(dict(zip("abc", members))) if kind == "groups" else members[1]).to_dict()


def _rates() -> bytes:
    def estimate(folder: Path) -> None:
        X = np.random.default_rng(1).normal(size=(150, 3))
        pd.DataFrame(X).assign(sea=(X[:, 0] > 0).astype(int)).to_csv(folder / "data.csv", index=False)
        command(folder, "noise estimate data.csv --labels sea --out rates.json")

    return written(estimate, "rates.json")


@cache
def _model(kind: str) -> bytes:
    """Return a saved model of one of the classes, with noise that depends on groups, or with a table's columns."""
    options: dict[str, Any] = {"epochs": 2, "lr": 0.1, "random_state": 0}
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    Y = pd.DataFrame((X[:, :2] > 0).astype(int), columns=LABELS)

    def save(folder: Path) -> None:
        path = folder / "model.ccmn"
        if kind == "table":
            (folder / "mixed.csv").write_bytes(_mixed() + _mixed().partition(b"\n")[2])
            roles = "--tags tags --text text --id id --noise none --method hamming --epochs 2 --lr 0.1"
            command(folder, f"fit mixed.csv {roles} --out model.ccmn")
        elif kind == "corrected":
            CorrectedClassifier(noise=None, random_state=0).fit(X, Y).save(path)
        elif kind == "groups":
            noise = GroupedNoise.from_dict(_noise("groups"))
            CCMNClassifier(noise, loss="hamming", **options).fit(X, Y, groups=list("abc" * 20)).save(path)
        else:
            CCMNClassifier(None, model=kind, **options).fit(X, Y).save(path)

    return written(save, "model.ccmn")


def _fit_with_checkpoint(path: Path, stop: bool = False) -> np.ndarray:
    """Fit six epochs with a checkpoint; ``stop`` ends the training after the first ones and keeps the file."""

    def save_and_stop(self: Any, *arguments: Any) -> None:
        save(self, *arguments)
        if self.path.exists():
            raise StopIteration

    save = checkpoint.Checkpoint.save
    checkpoint.Checkpoint.save = save_and_stop if stop else save
    try:
        clf = CCMNClassifier(None, epochs=6, lr=0.1, random_state=0).fit(*table(), checkpoint=path)
        return clf.decision_function(table()[0])
    except StopIteration:
        return np.empty(0)
    finally:
        checkpoint.Checkpoint.save = save


def results_of(repeats: Any) -> list[Any]:
    cells = [Cell("table1", "literal", "yeast", "ridge", repeat, 100) for repeat in repeats]
    return [Result(cell, {"values": {"clean": {"hamming_loss": cell.repeat / 1000}}}) for cell in cells]


@cache
def results_store() -> bytes:
    def store(folder: Path) -> None:
        with ResultStore(folder / "results.db") as opened:
            opened.append(results_of(range(5)))
        _plain_journal(folder / "results.db")

    return written(store, "results.db")


def _decisions() -> bytes:
    def store(folder: Path) -> None:
        with DecisionStore(folder / "decisions.db", {"rows": 12}) as opened:
            for position in range(4):
                item = QueueItem(position, position, "random", (0, 1))
                opened.append(item)
                opened.record(item, {0: "yes", 1: "no"})
        _plain_journal(folder / "decisions.db")

    return written(store, "decisions.db")


def _plain_journal(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def _cells() -> bytes:
    def write(folder: Path) -> None:
        (folder / "results.db").write_bytes(results_store())
        command(folder, "report results.db --csv cells.csv")

    return written(write, "cells.csv")


def _trusted() -> bytes:
    rows = np.array([0, 3, 5])
    content = {"rows": rows, "Y": table()[1][rows], "random": np.array([True, True, False]), "label_names": LABELS}
    return streamed(lambda f: np.savez(f, **content))


def _answers() -> bytes:
    lines = [f"r{i},{i},{label},{'yes' if i % 2 else 'no'},{i % 2}" for i in range(4) for label in LABELS]
    return ("id,row,label,answer,counts_for_rates\n" + "\n".join(lines) + "\n").encode()


def _photo() -> bytes:
    return encode_png(np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3))


# -- Readers


def _read(path: Path, labels: Any = None) -> Any:
    data = read_file(path, labels)
    if data.d + data.q > 10_000:
        return ()  # a valid sparse matrix of a size that a strict reader does not accept
    return tuple(np.asarray(M.toarray() if scipy.sparse.issparse(M) else M, np.float64) for M in (data.X, data.Y))


def _read_names(path: Path) -> None:
    (path.parent / "rows.svm").write_text("1:1\n")
    read_file(path.parent / "rows.svm", path)


def _run(path: Path, line: str) -> None:
    """Run a command on a file, FILE; its error becomes a ValueError."""
    found = command(path.parent, line.replace("FILE", path.name))
    if found.code:
        raise ValueError(found.error)


def _read_shards(path: Path) -> None:
    data = ShardedData(path.parent, LABELS)
    [part for group in data.groups for part in data.read(group, 5)]


def _read_model(path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    with np.errstate(all="ignore"):
        loaded = load_model(path)
        expect(np.isfinite(loaded.decision_function(rows)).all(), "not finite", "predictions of an accepted model")
        proba = loaded.predict_proba(rows)
    expect(((proba >= 0) & (proba <= 1)).all(), "not finite", "probabilities of an accepted model")


def _predict(path: Path) -> None:
    (path.parent / "mixed.csv").write_bytes(_mixed())
    found = command(path.parent, f"predict {path.name} mixed.csv --json")
    if found.code:  # an error may name the rows, which lack the columns of the model
        raise ValueError(f"{path.name}: {found.error}")
    expect("NaN" not in found.out and "null" not in found.out, "not finite", found.out[:300])


def _read_groups(path: Path) -> None:
    with prefix_errors(path):
        GroupedNoise.from_dict(json.loads(path.read_text("utf-8")))


def _read_decisions(path: Path) -> None:
    with DecisionStore(path, {"rows": 12}) as store:
        item = store.item(1)
        store.answers(), store.sampled_answers(), store.agreement(), store.progress(), store.can_undo()
        if item is not None:
            store.record(item, {0: "unsure"})
            store.undo()


def _read_cells(path: Path) -> None:
    results = read_cells(path)
    with prefix_errors(path):
        summarize(results)


def _read_votes(path: Path) -> Any:
    found = read_votes(path, ["row", "annotator", "label", "value"])[0]
    names = (found.row_ids, found.row), (found.annotator_names, found.annotator), (found.label_names, found.label)
    return (_as_bytes(zip(*([str(ids[i]) for i in index] for ids, index in names), (0.0 + found.value).tolist())),)


def _as_bytes(votes: Any) -> np.ndarray:
    """Return votes (row, annotator, label, value) in a form that arrays are compared in."""
    return np.frombuffer(json.dumps(sorted(votes)).encode(), np.uint8)


def _read_trusted(path: Path) -> None:
    data = MultiLabelData(*table(), label_names=LABELS, ids=[f"r{i}" for i in range(12)])
    rows, labels, random = read_trusted(path, data)
    expect(labels.shape == (len(rows), 2) and random.dtype == bool, "misread", "verified rows")


def _embed_photo(path: Path) -> None:
    (path.parent / "list.csv").write_text(f"file,sea\n{path.name},1\n")
    _run(path, "embed list.csv --image file --encoder pixels:4x4 --out vectors.parquet")


# -- Strict readers for comparison. They return None for what they do not understand.


def _numbers(cells: list[str], missing: str) -> list[float] | None:
    words = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0} if missing == "" else {}
    values = []
    for cell in cells:
        bare = cell.strip().lower()
        if bare in (missing, "nan"):
            values.append(np.nan)
        elif bare in words:
            values.append(words[bare])
        elif NUMBER.fullmatch(cell):
            values.append(float(np.float32(float(cell))))
        else:
            return None
    return values


def _split(rows: list[Any], labels: list[int]) -> Any:
    if not rows or None in rows or len({len(row) for row in rows}) > 1:
        return None
    return np.delete(np.array(rows), labels, axis=1), np.array(rows)[:, labels]


def _records(content: bytes) -> list[list[str]] | None:
    try:
        text = content.decode("utf-8-sig")
        return [record for record in csv.reader(io.StringIO(text, newline=""), strict=True) if record]
    except (UnicodeDecodeError, csv.Error):
        return None


def _expected_csv(content: bytes) -> Any:
    names, *records = _records(content) or [[]]
    names = [name.strip() for name in names]
    if not set(LABELS) <= set(names) or any(len(record) != len(names) for record in records):
        return None
    return _split([_numbers(record, "") for record in records], [j for j, n in enumerate(names) if n in LABELS])


def _expected_votes(content: bytes) -> Any:
    (names, *records), plain = _records(content) or [[]], re.compile(r"\w+", re.ASCII)
    if sorted(names) != ["annotator", "label", "row", "value", "x"]:
        return None
    columns = [names.index(name) for name in ("row", "annotator", "label", "value")]
    votes: dict[tuple[str, ...], float] = {}
    for record in records:
        value = record[columns[3]] if len(record) == len(names) else "?"
        if (value and not NUMBER.fullmatch(value)) or not all(plain.fullmatch(record[j]) for j in columns[:3]):
            return None
        votes[tuple(record[j] for j in columns[:3])] = 0.0 + float(value or "nan")
    return (_as_bytes([(*key, value) for key, value in votes.items() if value == value]),)


def _expected_arff(content: bytes) -> Any:
    try:
        head, _, body = content.decode("utf-8-sig").partition("@data\n")
    except UnicodeDecodeError:
        return None
    names = re.findall(r"(?m)^@attribute (\w+) (?:real|\{[0-9,]+\})$", head)
    rows = []
    for text in (line.partition("%")[0].strip() for line in body.splitlines()):
        if text.startswith("{"):
            pairs = [pair.split() for pair in text[1:-1].split(",") if pair.strip()]
            if any(len(pair) != 2 or not pair[0].isdecimal() or int(pair[0]) >= len(names) for pair in pairs):
                return None
            given = _numbers([value for _, value in pairs], "?")
            values = None if given is None else {int(j): value for (j, _), value in zip(pairs, given)}
            rows.append(None if values is None else [values.get(j, 0.0) for j in range(len(names))])
        elif text:
            rows.append(_numbers(text.split(","), "?"))
    if names[-2:] != LABELS or any(row is not None and len(row) != len(names) for row in rows):
        return None
    return _split(rows, [len(names) - 2, len(names) - 1])


def _expected_libsvm(content: bytes) -> Any:
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        return None
    cells: list[list[tuple[int, float]]] = [[], []]
    n = 0
    for parts in filter(None, (line.partition("#")[0].split() for line in lines)):
        labels = [] if ":" in parts[0] else parts.pop(0).split(",")
        pairs = [part.split(":") for part in parts]
        if any(len(p) != 2 or not p[0].isdecimal() or not NUMBER.fullmatch(p[1]) for p in pairs):
            return None
        cells[0] += [(n, int(j) - 1, float(np.float32(float(v)))) for j, v in pairs]
        cells[1] += [(n, int(k), 1.0) for k in labels]
        n += 1
    widths = [max((cell[1] for cell in part), default=-1) + 1 for part in cells]
    if max(widths) > 1000:
        return None
    found = [np.zeros((n, width)) for width in widths]
    for matrix, part in zip(found, cells):
        for i, j, value in part:
            matrix[i, j] = value
    return tuple(found)


def _expected_npz(content: bytes) -> Any:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return archive["X"].astype(np.float64), archive["Y"].astype(np.float64)
    except Exception:
        return None


def _expected_parquet(content: bytes) -> Any:
    try:
        frame = pd.read_parquet(io.BytesIO(content))
    except UnicodeDecodeError:  # in the metadata of pandas, which ccmn does not read
        return None
    with np.errstate(over="ignore"):
        values = frame.to_numpy().astype(np.float32).astype(np.float64)
    return _split(values.tolist(), [frame.columns.get_loc(name) for name in LABELS])


# -- Containers


def unpack_zip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack_zip(parts: dict[str, bytes]) -> bytes:
    if "checksums.json" in parts:
        sums = {name: checksum(data) for name, data in parts.items() if name != "checksums.json"}
        parts = {**parts, "checksums.json": json.dumps(sums).encode()}

    def write(stream: Any) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name, data in parts.items():
                archive.writestr(name, data)

    return streamed(write)


def _pack_store(parts: dict[str, bytes]) -> bytes:
    """Replace a random value of a random table, so that the file is valid and its content is not."""
    rng = np.random.default_rng(list(parts["change"]))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "store.db"
        path.write_bytes(parts["database"])
        with sqlite3.connect(path) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            name = tables[rng.integers(len(tables))]
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            value = str(rng.choice(["", "{", "[]", "{}", "nan", "x" * 5000, "[" * 9999, "-1", "1e400", "\0", "[null]"]))
            typed = [value, None, 2**62, -1, 1e308, value.encode()][rng.integers(6)]
            try:
                connection.execute("PRAGMA ignore_check_constraints = 1")
                connection.execute(f"UPDATE OR IGNORE {name} SET {columns[rng.integers(len(columns))]} = ?", (typed,))
            except sqlite3.Error:
                pass
        connection.close()
        return path.read_bytes()


def _unpack_parquet(content: bytes) -> dict[str, bytes]:
    return {key.decode(): value for key, value in pq.read_schema(io.BytesIO(content)).metadata.items()}


def _pack_parquet(original: Callable[[], bytes], parts: dict[str, bytes]) -> bytes:
    content = pq.read_table(io.BytesIO(original())).replace_schema_metadata(parts)
    return streamed(lambda f: pq.write_table(content, f))


GZIP = (lambda content: {"text": gzip.decompress(content)}), (lambda parts: gzip.compress(parts["text"], 1))
ZIP = (unpack_zip, pack_zip)
STORE = (lambda content: {"database": content, "change": b"0"}), _pack_store
by_name = partial(_read, labels=LABELS)
by_number = partial(_read, labels=-2)
tagged = partial(_run, line="data info FILE --tags tags --text text --id id --json")
info = partial(_run, line="data info FILE --json")

FORMATS = (
    Format("data.csv", partial(sample, "csv"), by_name, _expected_csv),
    Format("data.csv.gz", partial(sample, "csv.gz"), by_name, None, GZIP),
    Format("data.arff", partial(sample, "arff"), by_number, _expected_arff),
    Format("sparse.arff", partial(sample, "sparse.arff"), by_number, _expected_arff),
    Format("data.svm", partial(sample, "svm"), _read, _expected_libsvm),
    Format("data.npz", partial(sample, "npz"), _read, _expected_npz, ZIP),
    Format("sparse.npz", partial(sample, "sparse.npz"), _read, None, ZIP),
    Format("data.mat", partial(sample, "mat"), _read),
    Format("sparse.mat", partial(sample, "sparse.mat"), _read),
    Format("packed.mat", partial(sample, "packed.mat"), _read),
    Format("data.parquet", partial(sample, "parquet"), by_name, _expected_parquet),
    Format("shard.parquet", partial(sample, "parquet"), _read_shards),
    Format("votes.csv", _votes, _read_votes, _expected_votes),
    Format("labels.xml", lambda: b'<labels><label name="sea"/></labels>', _read_names),
    Format("labels.txt", lambda: b"sea\nsky\n", _read_names),
    Format("mixed.csv", _mixed, tagged),
    Format("mixed.csv.gz", lambda: gzip.compress(_mixed(), 1), tagged, None, GZIP),
    *(
        Format(name, partial(_annotated, name), info)
        for name in ("tasks.json", "min.json", "argilla.json", "argilla.jsonl", "doccano.jsonl", "records.jsonl")
    ),
    Format("rows.parquet", _hugging_face, info, None, (_unpack_parquet, partial(_pack_parquet, _hugging_face))),
    Format("vectors.parquet", _embedded, info, None, (_unpack_parquet, partial(_pack_parquet, _embedded))),
    Format("trusted.npz", _trusted, _read_trusted, None, ZIP),
    Format("trusted.csv", lambda: b"row,sea,sky\n0,1,0\n3,,1\n5,0,0\n", _read_trusted),
    Format("answers.csv", _answers, _read_trusted),
    Format("rates.json", _rates, partial(_run, line="noise show FILE")),
    *(
        Format(f"{kind}.json", lambda kind=kind: json.dumps(_noise(kind)).encode(), read)
        for kind, read in (
            ("groups", _read_groups),
            ("transition", partial(_run, line="noise show FILE")),
            ("plain", partial(_run, line="noise show FILE --json")),
        )
    ),
    *(
        Format(f"{kind}.ccmn", partial(_model, kind), _predict if kind == "table" else _read_model, None, ZIP)
        for kind in ("linear", "mlp", "groups", "corrected", "table")
    ),
    Format("state", lambda: written(lambda f: _fit_with_checkpoint(f / "state", True), "state"), _fit_with_checkpoint),
    Format("results.db", results_store, partial(_run, line="report FILE"), None, STORE),
    Format("decisions.db", _decisions, _read_decisions, None, STORE),
    Format("cells.csv", _cells, _read_cells),
    Format("photo.png", _photo, _embed_photo),
)


# -- Mutations


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Return the content with one to four random changes."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        at, other = (int(rng.integers(len(data) + 1)) for _ in range(2))
        size = int(rng.choice([1, 2, 4, 8, 64]))
        token = TOKENS[rng.integers(len(TOKENS))].encode()
        changes: list[tuple[slice, bytes]] = [
            (slice(at, at + 1), bytes([rng.integers(256)])),
            (slice(at, None), b""),
            (slice(at, at + size), b""),
            (slice(at, at), token),
            (slice(at, at + len(token)), token),
            (slice(at, at + size), bytes(rng.choice([0, 255, 127, 128], size).astype(np.uint8))),
            (slice(at, at), bytes(data[other : other + size * 8])),
            (slice(at, at + size), rng.bytes(size)),
        ]
        place, new = changes[rng.integers(len(changes))]
        data[place] = new
    return bytes(data)


def _replace_number(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace one number or word of a text by a hostile token."""
    words = list(re.finditer(rb"[\w.+-]+", content))
    if not words:
        return content
    word = words[rng.integers(len(words))]
    return content[: word.start()] + TOKENS[rng.integers(len(TOKENS))].encode() + content[word.end() :]


@cache
def _valid(index: int) -> bytes:
    return FORMATS[index].valid()


@cache
def _bombs() -> dict[str, bytes]:
    """Small files that unpack to 200 MB or run code, by the name of their format."""
    object_array, header = np.array([[Bomb()]], dtype=object), {"descr": "<f4", "fortran_order": False}

    def large(stream: Any) -> None:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            with archive.open("X.npy", "w") as member:
                np.lib.format.write_array_header_1_0(member, {**header, "shape": (50000, 1000)})
                member.write(bytes(200_000_000))
            archive.writestr("Y.npy", streamed(lambda f: np.save(f, object_array, allow_pickle=True)))

    wide = {"data": scipy.sparse.csc_array((2**31 - 1, 1)), "target": np.ones((1, 1))}
    entities = b'<!ENTITY a "' + b"x" * 1000 + b'"><!ENTITY b "' + b"&a;" * 1000 + b'">'
    return {
        "data.csv.gz": gzip.compress(b"a,sea,sky\n" + b"0,1,0\n" * 30_000_000, 1),
        "data.npz": streamed(large),
        "sparse.npz": streamed(lambda f: np.savez(f, X=object_array, Y=np.array([[1]]))),
        "sparse.mat": streamed(lambda f: scipy.io.savemat(f, wide)),
        "rates.json": pickle.dumps(Bomb()),
        "linear.ccmn": pack_zip({"model.json": pickle.dumps(Bomb()), "checksums.json": b""}),
        "state": pickle.dumps(Bomb()),
        "labels.xml": b"<!DOCTYPE l [" + entities + b"]><l>&b;</l>",
    }


def _content(form: Format, index: int, rng: np.random.Generator) -> bytes:
    valid, choice = _valid(index), rng.random()
    if form.name in _bombs() and choice < 0.003:
        return _bombs()[form.name]
    if form.inner is not None and choice < 0.6:
        parts = form.inner[0](valid)
        chosen = sorted(parts)[rng.integers(len(parts))]
        if form.inner is STORE:
            return form.inner[1]({**parts, "change": rng.bytes(8)})
        parts[chosen] = (_replace_number if rng.random() < 0.5 else mutate)(parts[chosen], rng)
        return form.inner[1](parts)
    return _replace_number(valid, rng) if choice < 0.8 else mutate(valid, rng)


def check(rng: np.random.Generator, folder: Path) -> str:
    """Read one malformed file."""
    index = int(rng.integers(len(FORMATS)))
    form = FORMATS[index]
    os.environ["CCMN_MAX_BYTES"] = str(MAX_BYTES)
    os.chdir(folder)
    content = _content(form, index, rng)
    (folder / form.name).write_bytes(content)
    try:
        value = form.read(folder / form.name)
    except (ValueError, OSError) as error:
        expect(form.name in str(error), "unnamed", f"{form.name}: {type(error).__name__}: {error}")
        expect("\n" not in str(error), "several lines", f"{form.name}: {error}")
        return "rejected"
    finally:
        if (folder / "executed").exists():
            raise Failure("code run", form.name)
    expected = None if form.expected is None else form.expected(content)
    if expected is None:
        return "accepted"
    equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(value, expected))
    expect(equal, "misread", f"{form.name}: {content!r}")
    return "accepted, equal to the strict reader"


def prepare() -> None:
    """Create the valid files and read each of them once, so that all libraries are imported."""
    _bombs()
    for index, form in enumerate(FORMATS):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / form.name).write_bytes(_valid(index))
            form.read(Path(folder) / form.name)


CAMPAIGNS = (Campaign("malformed", check, 10_000, max_bytes=4 * MAX_BYTES, batch=250, prepare=prepare),)
