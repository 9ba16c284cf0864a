"""LIBSVM multi-label text: ``2,3 1:0.5 7:-1``, labels numbered from 0, features from 1, no header.

This reader is written by hand because that of scikit-learn names neither the line nor the reason of an error, and skips
or converts blank lines between rows, labels that are not whole numbers, and query ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import cast

import numpy as np
import scipy.sparse

from ccmn._files import PathLike, check_file, check_unpacked_size, data_name, prefix_errors, text_lines, unpacked_limit
from ccmn._validation import check_count
from ccmn.data.column_roles import label_names
from ccmn.data.dataset import MultiLabelData, first_infinite

MAX_COLUMN = 2**31 - 2
"""Largest column index: indices are stored in 32 bits."""


def read_libsvm(path: PathLike, labels: int | PathLike | Sequence[str] | None = None) -> MultiLabelData:
    """Read multi-label LIBSVM (SVMlight) text, compressed (``.gz``) or not, as sparse features and sparse labels.

    Every line is a row: its labels separated by commas (omitted if there are none), then ``feature:value`` pairs.
    ``#`` starts a comment. ``labels`` is the number of labels, their names (label 0 first), or a file with the names.
    By default the largest label number determines the number of labels, which may be too few if the file is a part of
    a dataset. The largest feature number determines the number of features.
    """
    path = check_file(path)
    blank, limit, lines = 0, unpacked_limit(path), array("q")
    numbers, columns, values = array("i"), array("i"), array("f")
    label_ends, feature_ends = array("q", [0]), array("q", [0])
    for line, text in enumerate(text_lines(path), start=1):
        row = text.partition("#")[0].split()
        if text.isspace():
            blank = blank or line
        elif blank:  # it may have been a row, and would shift those below
            raise ValueError(f"{path}, line {blank} is blank; a row has at least one label or one feature")
        elif row:
            with prefix_errors(f"{path}, line {line}"):
                numbers.extend(() if ":" in row[0] else _labels(row.pop(0)))
                pairs = _features(row)
                columns.extend(pairs)
                values.extend(pairs.values())
                check_unpacked_size(4 * len(numbers) + 8 * len(columns) + 24 * len(lines), limit)
            lines.append(line)
            label_ends.append(len(numbers))
            feature_ends.append(len(columns))
    n = len(lines)
    if not n:
        raise ValueError(f"{path} has no rows")
    d = max(columns, default=-1) + 1
    X = scipy.sparse.csr_array((np.array(values), np.array(columns), np.array(feature_ends)), shape=(n, d))
    X.sort_indices()
    place = first_infinite(X)
    if place is not None:
        raise ValueError(f"{path}, line {lines[place[0]]}: feature {place[1] + 1} is infinite (or too large)")
    with prefix_errors(path):
        counted = labels is None or isinstance(labels, (int, np.integer))
        names = None if counted else label_names(labels)  # type: ignore[arg-type]
        found = max(numbers, default=-1) + 1
        q = found if labels is None else len(names) if names is not None else check_count(cast("int", labels), "labels")
        if found > q:
            raise ValueError(f"the file contains number {found - 1} (from 0), but labels is {q}")
        ones = np.ones(len(numbers), np.uint8)
        Y = scipy.sparse.csr_array((ones, np.array(numbers), np.array(label_ends)), shape=(n, q))
        return MultiLabelData(X, Y, label_names=names, name=data_name(path))


def _labels(text: str) -> set[int]:
    """Return the label numbers of a row."""
    numbers = text.split(",")
    for number in numbers:
        if not (number.isdecimal() and len(number) <= 10 and int(number) <= MAX_COLUMN):
            raise ValueError(f"{number[:40]!r} is not a label number; expected labels such as 2,3 (from 0)")
    found = set(map(int, numbers))
    if len(found) < len(numbers):
        raise ValueError(f"a label of {text[:40]!r} is given twice in one row")
    return found


def _features(pairs: Sequence[str]) -> dict[int, float]:
    """Return the values of a row by the number of the feature, from 0."""
    row: dict[int, float] = {}
    for pair in pairs:
        feature, _, value = pair.partition(":")
        try:
            column = int("not a plain number" if "_" in pair else feature) - 1
            number = float(value)
        except ValueError:
            hint = "; is this line a header (rows, features, labels)? Remove it" if pair.isdecimal() else ""
            raise ValueError(f"{pair[:40]!r} is not feature:value, such as 7:0.5{hint}") from None
        if not 0 <= column <= MAX_COLUMN:
            raise ValueError(f"feature {feature[:40]} is out of range; features are numbered from 1")
        if column in row:
            raise ValueError(f"feature {feature} is given twice in one row")
        row[column] = number
    return row
