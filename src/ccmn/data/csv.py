"""CSV: a line of column names, then a row per line; label cells are 0 or 1 (yes or no) or empty (not observed)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ccmn._containers import is_sparse
from ccmn.data.files import PathLike, blame, check_file, text_lines, whole_file
from ccmn.data.labels import LabelSpec, label_columns, text_column
from ccmn.data.multilabel import MultiLabelData
from ccmn.data.tables import Table, check_column_names, check_width, parse_cells

_BOOLEANS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


def read_csv(path: PathLike, labels: LabelSpec | None = None) -> MultiLabelData:
    """Read a comma-separated file, compressed (.gz) or not.

    Parameters
    ----------
    path : path
        The first line names the columns. Empty cells are missing features, or labels that were not observed; true
        and yes are 1, false and no are 0, in capitals or not.
    labels : list of names, pattern, count or file
        Which columns are labels; see :data:`ccmn.data.labels.LabelSpec`.
    """
    return _read(path, labels, None)[0]


def read_csv_text(path: PathLike, text: str, labels: LabelSpec | None = None) -> tuple[MultiLabelData, list[str]]:
    """``read_csv`` for a file with a column of words: the data of all other columns, and that column's texts."""
    return _read(path, labels, text)


def _read(path: PathLike, labels: LabelSpec | None, text: str | None) -> tuple[MultiLabelData, list[str]]:
    path = check_file(path)
    rows, lines, texts = [], [], []
    records = _records(path)
    _, names = next(records, (0, []))
    names = [name.strip() for name in names]
    with blame(path):
        _check_header(names)
        place = None if text is None else text_column(text, names)
        width = len(names)
        if place is not None:
            del names[place]
        columns = label_columns(labels, names)
    for line, cells in records:
        with blame(f"{path}, line {line}"):
            check_width(cells, width)
            if place is not None:
                texts.append(cells.pop(place))
            rows.append(parse_cells(cells, names, missing="", words=_BOOLEANS))
        lines.append(line)
    values = np.stack(rows) if rows else np.empty((0, len(names)), np.float32)
    return Table(path, names, values, lines).split(columns), texts


def write_csv(data: MultiLabelData, path: PathLike) -> None:
    """Write features, then labels, so that ``read_csv(path, labels=-data.q)`` reads the same back.

    Columns without a name become x0, x1, ... and label_0, label_1, ...; the file appears whole or not at all.
    """
    if data.candidates is not None:
        raise ValueError("CSV has no place for candidate sets beside the labels; use write_npz")
    features = data.feature_names or [f"x{j}" for j in range(data.d)]
    labels = data.label_names or [f"label_{j}" for j in range(data.q)]
    with whole_file(path) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        with blame("the names of features and labels together"):
            check_column_names([*features, *labels])
        writer.writerow([*features, *labels])
        for i in range(data.n):
            writer.writerow([*_cells(data.X, i), *_cells(data.Y, i)])


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every record; blank lines do not count."""
    reader = csv.reader(text_lines(path), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not a row of CSV ({error})") from None


def _check_header(names: list[str]) -> None:
    if not names:
        raise ValueError("the file is empty; a line of column names is expected, then a row per line")
    for separator in (";", "\t"):
        if len(names) == 1 and separator in names[0]:
            raise ValueError(f"the columns are separated by {separator!r}; write the file with commas")
    check_column_names(names)
    if _is_row(names):
        raise ValueError(
            f"the first line holds numbers, {', '.join(names[:3])} ..., where the names of the columns are expected; "
            "write a line of names above it"
        )


def _is_row(names: list[str]) -> bool:
    """Numbers alone, and not whole ones alone: columns that are merely counted, 0, 1, 2, ..., have these for names."""
    try:
        return not all(float(name).is_integer() for name in names)
    except ValueError:
        return False


def _cells(matrix: object, row: int) -> list[str]:
    values = matrix[[row]].toarray()[0] if is_sparse(matrix) else matrix[row]  # type: ignore[index]
    return ["" if value != value else str(value).removesuffix(".0") for value in values]
