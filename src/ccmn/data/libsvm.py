"""LIBSVM multi-label text: ``2,3 1:0.5 7:-1``, labels numbered from 0, features from 1, no header.

scikit-learn parses the lines. This module adds the line number and the reason to its errors, and rejects what it would
skip or convert silently: blank lines between rows, labels that are not whole numbers, and query ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ccmn._files import (
    PathLike,
    check_file,
    check_unpacked_size,
    data_name,
    prefix_errors,
    text_lines,
    unpacked_limit,
)
from ccmn._validation import check_count
from ccmn.data.dataset import MultiLabelData, first_infinite
from ccmn.data.tables import label_names

_ROW_BYTES = 100
"""Approximate memory of the labels of one row while scikit-learn reads a file."""
MAX_COLUMN = 2**31 - 2
"""Largest column index: indices are stored in 32 bits."""


def read_libsvm(
    path: PathLike, labels: int | PathLike | Sequence[str] | None = None, *, n_features: int | None = None
) -> MultiLabelData:
    """Read multi-label LIBSVM (SVMlight) text, compressed (``.gz``) or not.

    Every line is a row: its labels separated by commas (omitted if there are none), then ``feature:value`` pairs.
    ``#`` starts a comment.

    Parameters
    ----------
    path : str or path
        File to read.
    labels : int, list of str or path, default=None
        Number of labels, their names (label 0 first), or a file with the names (``.txt`` or ``.xml``). By default
        the largest label number in the file determines the number of labels, which may be too few if the file is a
        part of a dataset.
    n_features : int, default=None
        Number of features. By default the largest feature number in the file determines it.

    Returns
    -------
    MultiLabelData
        Sparse features in float32, and sparse labels.
    """
    path = check_file(path)
    rows = _Rows(path)
    try:
        X, numbers = rows.parse()
    except _UnsortedError:
        rows = _Rows(path, sort=True)
        X, numbers = rows.parse()
    if not rows.lines:
        raise ValueError(f"{path} has no rows")
    with prefix_errors(path):
        counted = labels is None or isinstance(labels, (int, np.integer))
        names = None if counted else label_names(labels)  # type: ignore[arg-type]
        declared = labels if names is None else len(names)
        d = _width(X.indices, n_features, "n_features", first=1)
        X = scipy.sparse.csr_array((X.data, X.indices.astype(np.int32), X.indptr), shape=(X.shape[0], d))
        place = first_infinite(X)
        if place is not None:
            raise ValueError(f"line {rows.lines[place[0]]}: feature {place[1] + 1} is infinite (or too large)")
        columns = np.fromiter((number for row in numbers for number in row), np.int64)
        ends = np.cumsum([0, *map(len, numbers)])
        q = _width(columns, declared, "labels", first=0)  # type: ignore[arg-type]
        Y = scipy.sparse.csr_array((np.ones(columns.size, np.uint8), columns.astype(np.int32), ends), (len(numbers), q))
        return MultiLabelData(X, Y, label_names=names, name=data_name(path))


class _UnsortedError(ValueError):
    """A row whose features are not in ascending order, which scikit-learn does not accept."""


class _Rows:
    """Rows of a file as scikit-learn reads them; remembers their line numbers for error messages."""

    def __init__(self, path: Path, sort: bool = False) -> None:
        self._path, self._sort, self._limit = path, sort, unpacked_limit(path)
        self._line, self._text = 0, ""
        self.lines = array("q")

    def parse(self) -> tuple[Any, list[tuple[float, ...]]]:
        """Return the features, with columns from 0, and the label numbers of every row."""
        from sklearn.datasets import load_svmlight_file

        try:
            X, numbers = load_svmlight_file(self, dtype=np.float64, multilabel=True, zero_based=False)
        except (ValueError, OverflowError) as error:
            if not self._text:
                raise  # an error of the file itself, which names it
            reason = _reason(self._text) or str(error)
            if not self._sort and reason == _TWICE:
                raise _UnsortedError from None
            raise ValueError(f"{self._path}, line {self._line}: {reason}") from None
        with np.errstate(over="ignore"):  # values beyond float32 become infinite and are rejected
            return X.astype(np.float32), numbers

    def read(self) -> bytes:
        """Exist, so that scikit-learn accepts this object as an open file; it only iterates over the lines."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[bytes]:
        blank = 0
        for number, line in enumerate(text_lines(self._path), start=1):
            self._line = number
            text = line.partition("#")[0]
            parts = text.split()
            if line.isspace():
                blank = blank or self._line
            elif blank:
                # Blank lines at the end are ignored; elsewhere they may have been rows, and would shift those below.
                self._text = ""
                raise ValueError(f"{self._path}, line {blank} is blank; a row has at least one label or one feature")
            elif parts:
                self._text = text
                head = parts[0].split(",")
                if ":" not in parts[0] and not (all(map(_is_label, head)) and len(set(head)) == len(head)):
                    raise ValueError("wrong labels")
                if "qid" in text or "_" in text:
                    raise ValueError("query id, or a number such as 1_0, which Python reads as 10")
                self.lines.append(self._line)
                if len(self.lines) * _ROW_BYTES > self._limit:
                    self._text = ""
                    with prefix_errors(self._path):
                        check_unpacked_size(len(self.lines) * _ROW_BYTES, self._limit)
                if self._sort:
                    start = ":" not in parts[0]
                    parts[start:] = sorted(parts[start:], key=_column)
                    text = " ".join(parts)
                yield text.encode()
                self._text = ""


_TWICE = "features out of order"


def _reason(text: str) -> str:
    """Return why scikit-learn rejected a row, or an empty text if this is not known."""
    head, *pairs = text.split()
    if ":" in head:
        pairs = [head, *pairs]
    else:
        numbers = head.split(",")
        wrong = next((number for number in numbers if not _is_label(number)), None)
        if wrong is not None:
            return f"{wrong[:40]!r} is not a label number; expected labels such as 2,3 (from 0)"
        if len({int(number) for number in numbers}) < len(numbers):
            return f"a label of {head[:40]!r} is given twice in one row"
    columns = []
    for pair in pairs:
        feature, _, value = pair.partition(":")
        try:
            if "_" in pair:
                raise ValueError("not a plain number")
            columns.append(int(feature))
            float(value)
        except ValueError:
            hint = "; is this line a header (rows, features, labels)? Remove it" if pair.isdecimal() else ""
            return f"{pair[:40]!r} is not feature:value, such as 7:0.5{hint}"
        if not 1 <= columns[-1] <= MAX_COLUMN + 1:
            return f"feature {feature[:40]} is out of range; features are numbered from 1"
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        return f"feature {twice} is given twice in one row"
    return _TWICE if columns != sorted(columns) else ""


def _is_label(number: str) -> bool:
    return number.isdecimal() and len(number) <= 10 and int(number) <= MAX_COLUMN


def _column(pair: str) -> int:
    """Return the feature number of a pair; a malformed pair is left to scikit-learn."""
    feature = pair.partition(":")[0]
    return int(feature) if feature.isdecimal() and len(feature) < 20 else 0


def _width(columns: Any, declared: int | None, argument: str, first: int) -> int:
    """Return the number of columns: as declared, or one more than the largest index."""
    found = int(columns.max()) + 1 if columns.size else 0
    if declared is None:
        return found
    if found > check_count(declared, argument):
        raise ValueError(f"the file contains number {found - 1 + first} (from {first}), but {argument} is {declared}")
    return declared
