"""Tables: named columns of numbers as a file has them, before labels and features are told apart."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.data.files import data_name
from ccmn.data.multilabel import Matrix, MultiLabelData, first_infinite


@dataclass(frozen=True)
class Table:
    """What CSV, Parquet and ARFF have in common: columns, and for every row the place where it stands."""

    path: Path
    names: Sequence[str]
    values: Matrix
    lines: Sequence[int]
    unit: str = "line"

    def split(self, label_columns: NDArray[np.intp]) -> MultiLabelData:
        """Labels and features apart, each in the order of the columns."""
        if not len(self.lines):
            raise ValueError(f"{self.path} has no rows of data")
        features = np.setdiff1d(np.arange(len(self.names)), label_columns)
        self.require(label_columns, (0, 1), "a label must be 0, 1 or missing")
        X = self.values[:, features]
        self._require_finite(X, features)
        Y = self.values[:, label_columns]
        return MultiLabelData(
            X=X,
            Y=Y.toarray() if is_sparse(Y) else Y,
            feature_names=[self.names[j] for j in features],
            label_names=[self.names[j] for j in label_columns],
            name=data_name(self.path),
        )

    def require(self, columns: NDArray[np.intp], allowed: Sequence[float], rule: str) -> None:
        """Refuse values other than the allowed ones (and missing ones) in some columns, naming the first."""
        part = self.values[:, columns]
        # An omitted value of a sparse row is 0, which the reader has seen to be allowed.
        values = part.data if is_sparse(part) else part
        wrong = ~(np.isin(values, np.array(allowed, dtype=np.float32)) | np.isnan(values))
        if wrong.any():
            rows, places = part.tocoo().coords if is_sparse(part) else np.indices(part.shape)
            row, column, value = rows[wrong][0], columns[places[wrong][0]], values[wrong][0]
            raise ValueError(f"{self._place(row)}: {value:g} in column {self.names[column]!r}; {rule}")

    def _require_finite(self, X: Matrix, columns: NDArray[np.intp]) -> None:
        place = first_infinite(X)
        if place is not None:
            name = self.names[columns[place[1]]]
            raise ValueError(f"{self._place(place[0])}: infinite (or too large) in column {name!r}")

    def _place(self, row: int) -> str:
        return f"{self.path}, {self.unit} {self.lines[row]}"


def check_column_names(names: Sequence[str]) -> None:
    """Every column has a name of its own, and none is an index that was written by mistake."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    index = [name for name in names if name == "" or name.startswith(("Unnamed: ", "__index_level_"))]
    if index:
        raise ValueError(
            f"column {names.index(index[0]) + 1} is named {index[0]!r}: it has no name, or is the index of a "
            "DataFrame, which is no feature. Name or remove it (pandas: write with index=False)."
        )
    if twice:
        others = f" (and {len(twice) - 1} others)" if len(twice) > 1 else ""
        raise ValueError(
            f"the column name {twice[0]!r} stands there more than once{others}; each column needs its own "
            "(is the line of names missing?)"
        )


def check_width(cells: Sequence[str], width: int) -> None:
    """A row has a value in every column."""
    if len(cells) != width:
        raise ValueError(f"{len(cells)} values, but there are {width} columns")


NO_WORDS: Mapping[str, float] = {}


def parse_cells(
    cells: Sequence[str], names: Sequence[str], missing: str, words: Mapping[str, float] = NO_WORDS
) -> NDArray[np.float32]:
    """A dense row of numbers; ``missing`` is how the format writes a value that is not there, ``words`` what else
    than numbers it knows."""
    check_width(cells, len(names))
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and refused with the table
        try:
            return np.fromiter(map(float, cells), np.float32, len(cells))
        except ValueError:
            careful = (parse_cell(cell, name, missing, words) for cell, name in zip(cells, names))
            return np.fromiter(careful, np.float32, len(cells))


def parse_cell(cell: str, name: str, missing: str, words: Mapping[str, float] = NO_WORDS) -> float:
    """One number; NaN where it is missing."""
    bare = cell.strip()
    if bare == missing:
        return np.nan
    if bare.lower() in words:
        return words[bare.lower()]
    try:
        return float(cell)
    except ValueError:
        absent = f"{missing!r} where there is none" if missing else "empty where there is none"
        known = "".join(f", {word}" for word in words)
        raise ValueError(
            f"{cell[:40]!r} in column {name!r} is not a number. Features must be numbers and labels 0 or 1{known} "
            f"({absent}): encode a column of words as numbers (one 0/1 column per word), or remove it."
        ) from None


class SparseRows:
    """Rows of (column, value) pairs on their way to a CSR matrix, kept compactly."""

    def __init__(self) -> None:
        self._columns = array("q")
        self._values = array("d")
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, columns: Sequence[int], values: Sequence[float]) -> None:
        """Add a row; its columns may come in any order, but none twice."""
        if len(set(columns)) < len(columns):
            twice = next(column for column, count in Counter(columns).items() if count > 1)
            raise ValueError(f"column {twice} (from 0) is given twice in one row")
        self._columns.extend(columns)
        self._values.extend(values)
        self._ends.append(len(self._columns))

    def width(self) -> int:
        """One more than the largest column number."""
        return int(max(self._columns)) + 1 if self._columns else 0

    def to_csr(self, width: int) -> Any:
        """The rows as float32 CSR."""
        with np.errstate(over="ignore"):
            values = np.array(self._values, dtype=np.float32)
        columns, ends = np.array(self._columns, dtype=np.int32), np.array(self._ends, dtype=np.int64)
        matrix = scipy.sparse.csr_array((values, columns, ends), shape=(len(self), width))
        matrix.sort_indices()
        return matrix
