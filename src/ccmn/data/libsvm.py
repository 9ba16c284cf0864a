"""LIBSVM multi-label text: ``2,3 1:0.5 7:-1``, labels numbered from 0, features from 1, no header.

scikit-learn parses the lines. This module adds the line number and the reason to its errors, and rejects what it would
skip or convert silently: blank lines between rows, labels that are not whole numbers, and query ids.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse

from ccmn._files import PathLike, check_file, check_unpacked_size, data_name, prefix_errors, text_lines, unpacked_limit
from ccmn._validation import check_count
from ccmn.data.dataset import MultiLabelData, first_infinite
from ccmn.data.tables import label_names

MAX_COLUMN = 2**31 - 2
"""Largest column index: indices are stored in 32 bits."""

Row = tuple[int, str]
"""Line number and text of a row."""


def read_libsvm(path: PathLike, labels: int | PathLike | Sequence[str] | None = None) -> MultiLabelData:
    """Read multi-label LIBSVM (SVMlight) text, compressed (``.gz``) or not, as sparse features and sparse labels.

    Every line is a row: its labels separated by commas (omitted if there are none), then ``feature:value`` pairs.
    ``#`` starts a comment. ``labels`` is the number of labels, their names (label 0 first), or a file with the names.
    By default the largest label number determines the number of labels, which may be too few if the file is a part of
    a dataset. The largest feature number determines the number of features.
    """
    path = check_file(path)
    rows = _rows(path)
    if not rows:
        raise ValueError(f"{path} has no rows")
    try:
        X, numbers = _parse(rows)
    except (ValueError, OverflowError) as error:
        for line, text in rows:
            with prefix_errors(f"{path}, line {line}"):
                _check_row(text)
        ordered = [(line, " ".join(sorted(text.split(), key=_column))) for line, text in rows]
        if ordered == rows:
            raise ValueError(f"{path} is not LIBSVM text: {error}") from None
        X, numbers = _parse(ordered)
    place = first_infinite(X)
    if place is not None:
        raise ValueError(f"{path}, line {rows[place[0]][0]}: feature {place[1] + 1} is infinite (or too large)")
    with prefix_errors(path):
        columns = np.fromiter((number for row in numbers for number in row), np.int64)
        counted = labels is None or isinstance(labels, (int, np.integer))
        names = None if counted else label_names(labels)  # type: ignore[arg-type]
        found = int(columns.max(initial=-1)) + 1
        q = found if labels is None else len(names) if names is not None else check_count(cast("int", labels), "labels")
        if found > q:
            raise ValueError(f"the file contains number {found - 1} (from 0), but labels is {q}")
        ends = np.cumsum([0, *map(len, numbers)])
        Y = scipy.sparse.csr_array((np.ones(columns.size, np.uint8), columns.astype(np.int32), ends), (len(rows), q))
        return MultiLabelData(X, Y, label_names=names, name=data_name(path))


def _rows(path: Path) -> list[Row]:
    """Return the rows without comments; blank lines at the end are ignored."""
    rows: list[Row] = []
    blank, size, limit = 0, 0, unpacked_limit(path)
    for number, line in enumerate(text_lines(path), start=1):
        text = " ".join(line.partition("#")[0].split())
        if line.isspace():
            blank = blank or number
        elif blank:  # it may have been a row, and would shift those below
            raise ValueError(f"{path}, line {blank} is blank; a row has at least one label or one feature")
        elif text:
            size += len(text) + 100  # objects of the row and of its labels
            with prefix_errors(path):
                check_unpacked_size(size, limit)
            rows.append((number, text))
    return rows


def _parse(rows: Sequence[Row]) -> tuple[Any, list[tuple[float, ...]]]:
    """Return the features as float32 CSR array with columns from 0, and the label numbers of every row."""
    from sklearn.datasets import load_svmlight_file

    for _, text in rows:
        labels = text.partition(" ")[0].split(",")
        plain = ":" in labels[0] or (all(map(_is_label, labels)) and len(set(labels)) == len(labels))
        if not plain or "qid" in text or "_" in text:
            raise ValueError("labels that are not whole numbers, a query id, or 1_0, which Python reads as 10")
    stream = io.BytesIO("\n".join(text for _, text in rows).encode())
    X, numbers = load_svmlight_file(stream, dtype=np.float64, multilabel=True, zero_based=False)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite and are rejected
        data = X.data.astype(np.float32)
    return scipy.sparse.csr_array((data, X.indices.astype(np.int32), X.indptr), shape=X.shape), numbers


def _check_row(text: str) -> None:
    """Raise ``ValueError`` with the reason why scikit-learn rejects a row; features in another order are accepted."""
    head, *pairs = text.split()
    if ":" in head:
        pairs = [head, *pairs]
    else:
        numbers = head.split(",")
        wrong = next((number for number in numbers if not _is_label(number)), None)
        if wrong is not None:
            raise ValueError(f"{wrong[:40]!r} is not a label number; expected labels such as 2,3 (from 0)")
        if len({int(number) for number in numbers}) < len(numbers):
            raise ValueError(f"a label of {head[:40]!r} is given twice in one row")
    columns = set()
    for pair in pairs:
        feature, _, value = pair.partition(":")
        try:
            column = int("not a plain number" if "_" in pair else feature)
            float(value)
        except ValueError:
            hint = "; is this line a header (rows, features, labels)? Remove it" if pair.isdecimal() else ""
            raise ValueError(f"{pair[:40]!r} is not feature:value, such as 7:0.5{hint}") from None
        if not 1 <= column <= MAX_COLUMN + 1:
            raise ValueError(f"feature {feature[:40]} is out of range; features are numbered from 1")
        if column in columns:
            raise ValueError(f"feature {column} is given twice in one row")
        columns.add(column)


def _is_label(number: str) -> bool:
    return number.isdecimal() and len(number) <= 10 and int(number) <= MAX_COLUMN


def _column(pair: str) -> int:
    feature, colon, _ = pair.partition(":")
    return int(feature) if colon else 0
