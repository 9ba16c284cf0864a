"""Long tables of votes: CSV and Parquet files with one line per vote."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._files import (
    PathLike,
    check_file,
    check_unpacked_size,
    data_name,
    prefix_errors,
    text_lines,
    unpacked_limit,
)
from ccmn.data.csv_format import read_frame_csv
from ccmn.data.dataset import MultiLabelData
from ccmn.data.parquet import open_parquet, read_frame
from ccmn.data.tables import check_width
from ccmn.vote_table import VoteTable

MEMORY_PER_VOTE = 96
"""Estimated bytes per vote: indices, values and sorting keys."""
MEMORY_PER_CELL = 24
"""Bytes per row and label: number of votes, their sum and the label."""


def read_votes(
    path: PathLike, columns: Sequence[str], text: str | None = None, *, features: bool = True
) -> tuple[MultiLabelData, list[str] | None]:
    """Read a long table of votes with one line per vote, CSV or Parquet.

    Parameters
    ----------
    path : path-like
        File with a header.
    columns : sequence of 3 or 4 str
        Columns of the row, the annotator, the label and (optional) the value of a vote. Without a value, every line
        is a label that the annotator assigned to the row; a line with an empty label assigns none.
    text : str or None, default=None
        Column with the text of the row.
    features : bool, default=True
        Whether the other columns are features. Otherwise they are ignored.

    Returns
    -------
    data : MultiLabelData
        Rows in the sorted order of their identifiers. The features are the other columns, from the first line of each
        row; ``Y`` is the majority of the votes, and ``votes`` contains the votes.
    texts : list of str or None
        Texts of the rows.
    """
    path = check_file(path)
    frame = _read_long_table(path)
    with prefix_errors(path):
        missing = [name for name in (*columns, *([] if text is None else [text])) if name not in frame.columns]
        if missing:
            raise ValueError(f"there is no column {missing[0]!r}; the columns are {', '.join(frame.columns[:20])}")
        _check_size(frame[list(columns)], unpacked_limit(path))
        table = VoteTable.read(frame[list(columns)])
        first = frame.drop_duplicates(columns[0]).sort_values(columns[0]).reset_index(drop=True)
        names = [name for name in frame.columns if features and name not in columns and name != text]
        X = _numbers(first[names])
        mean = table.mean()
        Y = np.where(np.isnan(mean), np.nan, mean > 0.5)
        data = MultiLabelData(
            X, Y, feature_names=names, label_names=table.label_names, name=data_name(path), votes=table
        )
    return data, None if text is None else first[text].fillna("").astype(str).tolist()


def _check_size(votes: Any, limit: int) -> None:
    """Reject a table whose dense labels, and votes of 0 that it implies, take too much memory."""
    try:
        n, q = (votes.iloc[:, place].nunique() for place in (0, 2))
    except TypeError:  # lists cannot be compared
        raise ValueError("the columns of row, annotator and label must contain single values; got lists") from None
    implied = 0 if votes.shape[1] == 4 else len(votes.iloc[:, :2].drop_duplicates()) * q
    check_unpacked_size(MEMORY_PER_CELL * n * q + MEMORY_PER_VOTE * implied, limit)


def _read_long_table(path: Any) -> Any:
    """Return the table in a CSV or Parquet file; identifiers and labels of CSV files stay texts."""
    if path.suffix.lower() == ".parquet":
        with open_parquet(path) as file, prefix_errors(path):
            return read_frame(file, path)
    table = read_frame_csv(path, dtype=str, keep_default_na=False, na_values=[""])
    if table.iloc[:, -1].isna().any():  # an empty cell, or a line that ends early
        _check_widths(path, table.shape[1])
    return table


def _check_widths(path: Any, width: int) -> None:
    """Reject a line with fewer cells than the header; pandas fills it with empty cells."""
    reader = csv.reader(text_lines(path))
    try:
        for cells in reader:
            if "".join(cells).strip():
                with prefix_errors(f"{path}, line {reader.line_num}"):
                    check_width(cells, width)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not a valid CSV row ({error})") from None


def _numbers(frame: Any) -> NDArray[np.float32]:
    """Return columns of numbers; raise an error that names any other column."""
    import pandas as pd

    numbers = frame.apply(pd.to_numeric, errors="coerce")
    for name in frame.columns:
        wrong = numbers[name].isna() & frame[name].notna()
        if wrong.any():
            raise ValueError(
                f"column {name!r} contains {str(frame[name][wrong].iloc[0])[:40]!r}, which is not a number. Features "
                "must be numbers; select a text column (--text) or remove the column."
            )
    return np.asarray(numbers, dtype=np.float32).reshape(len(frame), frame.shape[1])
