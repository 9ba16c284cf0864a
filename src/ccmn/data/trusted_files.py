"""Files of verified rows: tables with labels or answers, and the NPZ file that a review exports."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._files import PathLike, check_file, prefix_errors
from ccmn._validation import check_label_matrix, check_trusted_rows
from ccmn.data.cells import category_name, to_numbers
from ccmn.data.dataset import MultiLabelData
from ccmn.data.formats import is_table, read_table
from ccmn.data.labeled_table import RawTable
from ccmn.data.npz import load_arrays

Verified = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Verified rows, their labels, and which of them are a random sample."""


def read_trusted(path: PathLike | None, data: MultiLabelData, row_id: str | None = None) -> Verified | None:
    """Return the verified rows, their labels, and which of them are a random sample.

    Without a file, these are the rows that the data themselves declare as verified, if any.
    """
    if path is None:
        if data.trusted is None or np.isnan(data.trusted).all():
            return None
        rows = np.flatnonzero(~np.isnan(data.trusted).all(1))
        return rows, data.trusted[rows], np.zeros(len(rows), dtype=bool)
    if is_table(path):
        raw = read_table(path)
        with prefix_errors(path):
            rows, Y, random = _trusted_table(raw, data, row_id)
    else:
        arrays = load_arrays(check_file(path), {"rows", "Y", "random", "label_names"})
        with prefix_errors(path):
            rows, Y, random = _trusted_arrays(arrays, data)
    with prefix_errors(path):
        if not rows.size:
            raise ValueError("there are no verified rows")
        rows, Y = check_trusted_rows((rows, Y), data.n)
        Y = check_label_matrix(Y, "the verified labels")
        if Y.shape != (len(rows), data.q) or random.shape != rows.shape or random.dtype != bool:
            raise ValueError(f"expected {data.q} labels and a random flag for each of {len(rows)} verified rows")
    return rows, Y, random


def _trusted_arrays(arrays: dict[str, NDArray[Any]], data: MultiLabelData) -> Verified:
    """Return the verified rows of an NPZ file."""
    missing = {"rows", "Y", "random", "label_names"} - set(arrays)
    if missing:
        raise ValueError(f"not a file of verified rows: it has no {', '.join(sorted(missing))}")
    names = tuple(map(str, arrays["label_names"].ravel()))
    if data.label_names is not None and names != tuple(data.label_names):
        raise ValueError(f"verified labels {', '.join(map(repr, names[:4]))} ... are not the labels of the data")
    return arrays["rows"], arrays["Y"], arrays["random"]


def _trusted_table(raw: RawTable, data: MultiLabelData, row_id: str | None) -> Verified:
    """Return the verified rows of a table with label columns, or with one answer per line."""
    import pandas as pd

    frame = raw.frame
    key = row_id if row_id is not None and row_id in frame else "row"
    if key not in frame:
        name = f"{row_id!r} (--id)" if row_id else "'row' (the number of the row from 0)"
        raise ValueError(f"not a file of verified rows: expected a column {name} and one column for each label")
    names = [str(name) for name in data.label_names or range(data.q)]
    ids = list(data.ids) if key == row_id and data.ids is not None else [str(i) for i in range(data.n)]
    rows = pd.Index(ids).get_indexer(pd.Index([category_name(value) for value in frame[key]]))
    if not pd.Index(ids).is_unique or (rows < 0).any():
        raise ValueError(f"column {key!r} contains {frame[key][int((rows < 0).argmax())]!r}, which is not a unique row")
    labels = pd.DataFrame(np.nan, index=range(data.n), columns=names)
    random = np.ones(data.n, dtype=bool)
    if {"label", "answer"} <= set(frame.columns):
        value = frame["answer"].map({"yes": 1.0, "no": 0.0})
        for row, label, answer in zip(rows, frame["label"].map(category_name), value):
            if label not in labels:
                raise ValueError(f"label {label!r} is not a label of the data")
            labels.loc[row, label] = answer
        if "counts_for_rates" in frame:
            random[rows] = frame["counts_for_rates"].map(category_name).isin(("1", "True", "yes")).to_numpy()
    else:
        missing = [name for name in names if name not in frame]
        if missing:
            raise ValueError(
                f"not a file of verified rows: expected a column for each label; {missing[0]!r} is missing"
            )
        cells = raw.typed().frame
        labels.iloc[rows] = np.column_stack([to_numbers(cells[name]) for name in names])
    verified = np.flatnonzero(labels.notna().any(axis=1))
    return verified, labels.to_numpy(np.float64)[verified], random[verified]
