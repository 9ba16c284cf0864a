"""LIBSVM multi-label text: ``2,3 1:0.5 7:-1``, labels numbered from 0, features from 1, no header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ccmn._validation import check_count
from ccmn.data.files import PathLike, blame, check_file, data_name, text_lines
from ccmn.data.labels import label_names
from ccmn.data.multilabel import MultiLabelData, first_infinite
from ccmn.data.tables import SparseRows

_LARGEST = 2**31 - 2
"""Columns are numbered in 32 bits."""


def read_libsvm(
    path: PathLike, labels: int | PathLike | Sequence[str] | None = None, *, n_features: int | None = None
) -> MultiLabelData:
    """Read multi-label LIBSVM (SVMlight) text, compressed (.gz) or not; ``X`` and ``Y`` are sparse.

    A line is a row: its labels, separated by commas (none, where the line begins with a feature), then
    ``feature:value`` pairs. ``#`` begins a comment.

    Parameters
    ----------
    path : path
    labels : int, list of names or file of names (.txt, .xml), optional
        How many labels there are, or what they are called, label 0 first. Otherwise as many as the largest number
        in the file tells, which may be too few when the file is a part of a data set.
    n_features : int, optional
        How many features there are; otherwise, likewise, as the largest number tells.
    """
    path = check_file(path)
    features, positives, lines = SparseRows(), SparseRows(), []
    for line, text in _rows(path):
        with blame(f"{path}, line {line}"):
            numbers, pairs = _split_row(text)
            positives.append(_parse_labels(numbers), [1.0] * len(numbers))
            features.append(*_parse_pairs(pairs))
        lines.append(line)
    if not lines:
        raise ValueError(f"{path} has no rows")
    with blame(path):
        q, names = _label_count(labels)
        X = features.to_csr(_width(features, n_features, "n_features", first=1))
        Y = positives.to_csr(_width(positives, q, "labels", first=0))
        place = first_infinite(X)
        if place is not None:
            raise ValueError(f"line {lines[place[0]]}: feature {place[1] + 1} is infinite (or too large)")
        return MultiLabelData(X, Y, label_names=names, name=data_name(path))


def _rows(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of every row; lines of comment alone do not count."""
    blank = 0
    for number, line in enumerate(text_lines(path), start=1):
        text = line.split("#")[0].strip()
        if line.isspace():
            blank = blank or number
        elif blank:
            # Blank lines at the end are nothing; elsewhere they may have been rows, and would shift those below.
            raise ValueError(f"{path}, line {blank} is blank; a row has at least one label or one feature")
        elif text:
            yield number, text


def _split_row(text: str) -> tuple[list[str], list[str]]:
    """The labels of a row, and its feature:value pairs."""
    head, *tail = text.split()
    return ([], [head, *tail]) if ":" in head else (head.split(","), tail)


def _parse_labels(numbers: list[str]) -> list[int]:
    for number in numbers:
        if not (number.isdecimal() and int(number) <= _LARGEST):
            raise ValueError(f"{number[:40]!r} is not the number of a label; expected labels such as 2,3 (from 0)")
    return [int(number) for number in numbers]


def _parse_pairs(pairs: list[str]) -> tuple[list[int], list[float]]:
    """Columns (from 0) and values of a row."""
    split = [pair.split(":") for pair in pairs]
    try:
        columns, values = [int(feature) - 1 for feature, _ in split], [float(value) for _, value in split]
    except ValueError:
        wrong = next(pair for pair in pairs if not _is_pair(pair))
        hint = "; is this line a header (rows, features, labels)? Remove it" if wrong.isdecimal() else ""
        raise ValueError(f"{wrong[:40]!r} is not feature:value, such as 7:0.5{hint}") from None
    if columns and not 0 <= min(columns) <= max(columns) <= _LARGEST:
        wrong_column = next(column for column in columns if not 0 <= column <= _LARGEST)
        raise ValueError(f"feature {wrong_column + 1} is out of range; features are numbered from 1")
    return columns, values


def _is_pair(pair: str) -> bool:
    try:
        feature, value = pair.split(":")
        int(feature), float(value)
    except ValueError:
        return False
    return True


def _label_count(labels: int | PathLike | Sequence[str] | None) -> tuple[int | None, list[str] | None]:
    """The number of labels and their names, as far as they are given."""
    if labels is None or isinstance(labels, (int, np.integer)):
        return labels, None
    names = label_names(labels)
    return len(names), names


def _width(rows: SparseRows, declared: int | None, argument: str, first: int) -> int:
    """How many columns there are: as declared, or as the largest number tells."""
    if declared is None:
        return rows.width()
    if rows.width() > check_count(declared, argument):
        largest = rows.width() - 1 + first
        raise ValueError(f"there is a number {largest} (counted from {first}), but {argument} says {declared}")
    return declared
