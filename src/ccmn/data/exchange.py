"""Files of annotation tools: Label Studio (JSON), Argilla and Hugging Face rows (JSON, JSONL) and doccano (JSONL).

Every reader returns a table with a column of tags. Several annotations of a row by different annotators become votes.
Verified annotations become trusted labels, cancelled and discarded ones are missing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccmn._containers import to_dense_floats
from ccmn._files import (
    PathLike,
    atomic_write,
    check_unpacked_size,
    prefix_errors,
    text_lines,
    unpacked_limit,
)
from ccmn.data.column_roles import DEFAULT_SEPARATOR, ColumnRoles
from ccmn.data.dataset import MultiLabelData
from ccmn.data.labeled_table import RawTable
from ccmn.vote_table import VoteTable

MEMORY_PER_VOTE = 96
"""Estimated bytes per vote: indices, values and sorting keys."""
TAG_COLUMNS = ("labels", "tags", "label", "annotation")
"""Columns that list the tags of a row if they contain lists, in this order of preference."""
TEXT_COLUMNS = ("text", "data", "sentence", "body")
"""Columns with the text of a row, in this order of preference."""
MEMORY_PER_CHARACTER = 8
"""Estimated bytes that the objects of a JSON document take per character of the document."""
LABEL_STUDIO_NAMES = ("labels", "text")
"""Names of the control tag and of the object tag in exported Label Studio tasks."""


def read_json(path: Path) -> RawTable:
    """Read tasks of Label Studio, records of Argilla, or rows of Hugging Face datasets and doccano.

    JSON files contain a list of objects, JSONL files one object per line.
    """
    with prefix_errors(path):
        records = _read_records(path)
        if not records or not all(isinstance(record, dict) for record in records):
            raise ValueError("expected a list of objects, or one object per line")
        try:
            if any("annotations" in record and "data" in record for record in records):
                return _table(path, [_label_studio_row(record) for record in records])
            if any("responses" in record or "annotation_agent" in record for record in records):
                return _table(path, [_argilla_row(record) for record in records])
            return _plain_table(path, records)
        except (AttributeError, KeyError, TypeError, OverflowError) as error:  # pandas 2: a number is too large
            raise ValueError(f"the records do not have the structure of a known tool: {error}") from None


def write_label_studio(data: MultiLabelData, path: PathLike, issues: Any = None) -> None:
    """Write tasks for Label Studio, with one annotation per annotator.

    Every row with a label issue gets a prediction with the suggested labels and the largest error probability as its
    score, so that Label Studio can sort by it.
    """
    control, shown = LABEL_STUDIO_NAMES
    names = [str(name) for name in data.label_names or range(data.q)]

    def result(values: Any) -> list[dict[str, Any]]:
        choices = [names[j] for j in np.flatnonzero(values == 1)]
        return [{"from_name": control, "to_name": shown, "type": "choices", "value": {"choices": choices}}]

    def annotation(values: Any, who: str = "", verified: bool = False) -> dict[str, Any]:
        settings = {"completed_by": who, "was_cancelled": False, "ground_truth": verified}
        return {**settings, "result": result(values)}

    Y = to_dense_floats(data.Y)
    suggested, scores = Y.copy(), {}
    if issues is not None:
        suggested[issues["row"], issues["label"].astype(str).map(names.index)] = issues["suggested"]
        score = issues["p_wrong"].fillna(issues.get("suspicion", 0.0))
        scores = score.groupby(issues["row"]).max().to_dict()
    tasks = []
    for row in range(data.n):
        if data.votes is not None:
            given = [annotation(values, who) for who, values in _votes_of(data, row)]
        else:
            given = [] if _unobserved(Y[row]) else [annotation(Y[row])]
        if data.trusted is not None and not np.isnan(data.trusted[row]).any():
            given.append(annotation(data.trusted[row], verified=True))
        fields = {name: value[row] for name, value in _shown(data).items()}
        task: dict[str, Any] = {"id": row + 1, "data": fields, "annotations": given}
        if row in scores:
            found = {"model_version": "ccmn", "score": float(scores[row]), "result": result(suggested[row])}
            task["predictions"] = [found]
        tasks.append(task)
    with atomic_write(path) as stream:
        stream.write(json.dumps(tasks, ensure_ascii=False, indent=1).encode())


def write_rows(data: MultiLabelData, path: PathLike) -> None:
    """Write one JSON object per row: ``id``, ``text``, ``image`` and ``labels``, null if no label was observed."""
    shown = _shown(data)
    with atomic_write(path) as stream:
        for row, tags in enumerate(_tag_lists(data)):
            record = {**{name: values[row] for name, values in shown.items()}, "labels": tags}
            stream.write(f"{json.dumps(record, ensure_ascii=False)}\n".encode())


def write_tag_csv(data: MultiLabelData, path: PathLike, separator: str = DEFAULT_SEPARATOR) -> None:
    """Write identifiers, texts, pictures and a column of tags to a CSV file; the separator of doccano is "#"."""
    import pandas as pd

    wrong = next((name for name in data.label_names or () if separator in name), None)
    if wrong is not None:
        raise ValueError(f"label {wrong!r} contains the separator {separator!r}; use another one (--sep)")
    tags = ["" if row is None else separator.join(row) for row in _tag_lists(data)]
    with atomic_write(path) as stream:
        pd.DataFrame({**_shown(data), "labels": tags}).to_csv(stream, index=False)


# -- Reading


def _read_records(path: Path) -> list[Any]:
    """Return the objects of a JSON or JSONL file."""
    limit, size, lines = unpacked_limit(path), 0, []
    for line in text_lines(path):
        size += MEMORY_PER_CHARACTER * len(line)
        check_unpacked_size(size, limit)
        lines.append(line)
    try:
        if ".jsonl" in path.name.lower():
            return [_parse(line, number) for number, line in enumerate(lines, start=1) if line.strip()]
        content = _parse("".join(lines))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if isinstance(content, dict):  # a wrapper such as {"data": [...]}
        content = next((value for value in content.values() if isinstance(value, list)), [])
    return content if isinstance(content, list) else []


def _parse(text: str, line: int = 1) -> Any:
    """Return the value of a JSON text; an error names the line."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON (line {error.lineno + line - 1}: {error.msg})") from None
    if "\\ud" in text.lower():  # half of a pair is not a character and cannot be written
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise ValueError(f"{half!r} is half of a character; write both halves, or remove it") from None
    return value


@dataclass(frozen=True)
class _Row:
    """Columns of a row, its annotations as pairs of annotator and tags, and its verified tags."""

    columns: dict[str, Any]
    annotations: Sequence[tuple[str, list[str]]]
    trusted: list[str] | None = None


def _label_studio_row(task: dict[str, Any]) -> _Row:
    """Return a task of Label Studio: ``completed_by`` is the annotator, ``ground_truth`` marks verified labels."""
    annotations, trusted = [], None
    for annotation in task.get("annotations") or ():
        if annotation.get("was_cancelled"):
            continue
        tags = _choices(annotation.get("result") or ())
        if annotation.get("ground_truth"):
            trusted = tags
        else:
            who = annotation.get("completed_by")
            who = who.get("email", who.get("id")) if isinstance(who, dict) else who
            annotations.append((str(who), tags))
    fields = task.get("data")
    return _Row({"id": task.get("id"), **(fields if isinstance(fields, dict) else {})}, annotations, trusted)


def _choices(results: Iterable[Any]) -> list[str]:
    """Return the choices in the results of an annotation; levels of a taxonomy are joined by " / "."""
    tags: list[str] = []
    for result in results:
        value = result.get("value") or {}
        tags += [str(choice) for choice in value.get("choices") or ()]
        tags += [" / ".join(map(str, levels)) for levels in value.get("taxonomy") or ()]
    return tags


def _argilla_row(record: dict[str, Any]) -> _Row:
    """Return a record of Argilla: lists of responses of version 2, or one annotation of version 1."""
    fields = record.get("fields") or record.get("inputs") or {"text": record.get("text")}
    columns = {"id": record.get("id"), **fields}
    if "responses" not in record:
        annotation = record.get("annotation")
        tags = [annotation] if isinstance(annotation, str) else annotation
        given = [] if tags is None or record.get("status") == "Discarded" else [(str(record["annotation_agent"]), tags)]
        return _Row(columns, [(who, [str(tag) for tag in names]) for who, names in given])
    questions = record["responses"] or {}
    annotations = [
        (str(response.get("user_id")), [value] if isinstance(value, str) else [str(tag) for tag in value])
        for responses in questions.values()
        for response in responses
        if response.get("status", "submitted") == "submitted" and (value := response.get("value")) is not None
    ]
    return _Row(columns, annotations)


def _table(path: Path, rows: list[_Row]) -> RawTable:
    """Return rows with annotations as a table; annotations of several annotators become votes."""
    import pandas as pd

    frame = _frame(path, [row.columns for row in rows])
    name = next(name for name in ("labels", "tags", "ccmn_labels") if name not in frame)
    names = sorted(
        {tag for row in rows for tag in [t for _, tags in row.annotations for t in tags] + (row.trusted or [])}
    )
    if not names:
        raise ValueError("there is no annotation with a choice")
    frame[name] = pd.Series([_majority(row) for row in rows], dtype=object)
    votes = _votes(path, rows, names) if any(len(row.annotations) > 1 for row in rows) else None
    trusted = [row.trusted for row in rows] if any(row.trusted is not None for row in rows) else None
    return RawTable(path, frame, roles=_roles(frame, name), tag_names=None, votes=votes, trusted=trusted)


def _majority(row: _Row) -> list[str] | None:
    if not row.annotations:
        return row.trusted
    counts = Counter(tag for _, tags in row.annotations for tag in set(tags))
    return sorted(tag for tag, count in counts.items() if 2 * count > len(row.annotations))


def _votes(path: Path, rows: list[_Row], names: Sequence[str]) -> VoteTable:
    """Return the annotations as votes on every label."""
    annotations = [(i, who, set(tags)) for i, row in enumerate(rows) for who, tags in row.annotations]
    people = {who: k for k, who in enumerate(sorted({who for _, who, _ in annotations}))}
    check_unpacked_size(MEMORY_PER_VOTE * len(annotations) * len(names), unpacked_limit(path))
    votes = [(i, people[who], j, name in tags) for i, who, tags in annotations for j, name in enumerate(names)]
    row, annotator, label, value = zip(*votes)
    return VoteTable(row, annotator, label, value, (len(rows), len(people), len(names)), list(people), list(names))


def _frame(path: Path, records: list[dict[str, Any]]) -> Any:
    """Return records as a DataFrame; records may have different columns."""
    import pandas as pd

    columns = {name for record in records for name in record}
    check_unpacked_size(MEMORY_PER_CHARACTER * len(records) * len(columns), unpacked_limit(path))
    return pd.DataFrame(records)


def _plain_table(path: Path, records: list[dict[str, Any]]) -> RawTable:
    """Return flat rows as a table; exports of Label Studio in the form JSON-MIN have objects with choices."""

    def flat(value: Any) -> Any:
        return value["choices"] if isinstance(value, dict) and "choices" in value else value

    frame = _frame(path, [{str(name): flat(value) for name, value in record.items()} for record in records])
    kinds = {name: set(map(type, frame[name])) for name in frame.columns}
    objects = next((name for name, found in kinds.items() if dict in found), None)
    if objects is not None:
        raise ValueError(f"column {objects!r} contains objects; expected texts, numbers or lists of labels")
    tags = next((name for name in (*TAG_COLUMNS, *frame.columns) if list in kinds.get(name, ())), None)
    return RawTable(path, frame, roles=_roles(frame, tags))


def _roles(frame: Any, tags: str | None) -> ColumnRoles:
    """Return the roles of the columns with usual names."""
    text = next((name for name in TEXT_COLUMNS if name in frame and _is_text(frame[name])), None)
    image = "image" if "image" in frame and _is_text(frame["image"]) else None
    row_id = "id" if "id" in frame and frame["id"].notna().all() else None
    ignored = ("id",) if row_id is None and "id" in frame else ()
    return ColumnRoles(None, tags, text=() if text is None else (text,), image=image, id=row_id, ignore=ignored)


def _is_text(values: Any) -> bool:
    return bool(values.map(lambda value: isinstance(value, str)).any())


# -- Writing


def _shown(data: MultiLabelData) -> dict[str, Sequence[str]]:
    """Return the columns of identifiers, texts and pictures; at least one is required."""
    found = {"id": data.ids, "text": data.texts, "image": data.images}
    columns = {name: values for name, values in found.items() if values is not None}
    if not columns:
        raise ValueError(
            "these data have no texts, pictures or identifiers to exchange; select columns with --text, --image or --id"
        )
    return columns


def _unobserved(values: Any) -> bool:
    return not values.size or bool(np.isnan(values).all())


def _tag_lists(data: MultiLabelData) -> Iterator[list[str] | None]:
    """Yield the labels of every row, None if no label was observed."""
    names = [str(name) for name in data.label_names or range(data.q)]
    for values in to_dense_floats(data.Y):
        yield None if _unobserved(values) else [names[j] for j in np.flatnonzero(values == 1)]


def _votes_of(data: MultiLabelData, row: int) -> Iterator[tuple[str, Any]]:
    """Yield the annotators of a row and the labels that they assigned."""
    votes = data.votes[[row]]
    people = votes.annotator_names or range(votes.shape[1])
    for annotator in np.unique(votes.annotator):
        chosen = votes.label[(votes.annotator == annotator) & (votes.value > 0.5)]
        yield str(people[annotator]), np.isin(np.arange(data.q), chosen)
