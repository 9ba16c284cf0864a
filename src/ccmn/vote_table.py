"""Votes of several annotators: one entry per vote, so that memory grows with the votes and not with n x a x q."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_dataframe, is_sparse, to_dense_array
from ccmn._validation import FloatArray, check_numeric

IntArray = NDArray[np.intp]


class VoteTable:
    """Votes of several annotators on the labels of n rows, one entry per vote.

    The table can be indexed by rows like an array of shape (n, a, q), so that scikit-learn can split it.

    Parameters
    ----------
    row, annotator, label : int array of shape (n_votes,)
        Row, annotator and label of every vote, counted from 0.
    value : float array of shape (n_votes,)
        Votes: 0 or 1, or the probability that a machine assigns to the label.
    shape : tuple (n, a, q)
        Numbers of rows, annotators and labels.
    annotator_names, label_names, row_ids : sequence or None, default=None
        Names of annotators, labels and rows.

    Attributes
    ----------
    ndim : int
        3, as for an array of votes.

    See Also
    --------
    ccmn.infer_labels : Infer the true labels from votes.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.votes import VoteTable
    >>> table = VoteTable.read(np.array([[[1, 0], [1, np.nan]], [[0, 0], [np.nan, 1]]]))
    >>> table.shape, table.value.size, table[[1]].mean()
    ((2, 2, 2), 6, array([[0. , 0.5]]))
    """

    ndim = 3

    def __init__(
        self,
        row: Any,
        annotator: Any,
        label: Any,
        value: Any,
        shape: tuple[int, int, int],
        annotator_names: Sequence[Any] | None = None,
        label_names: Sequence[Any] | None = None,
        row_ids: Sequence[Any] | None = None,
    ) -> None:
        n, a, q = (int(size) for size in shape)
        rows, annotators, labels = (np.asarray(index, dtype=np.intp) for index in (row, annotator, label))
        for what, index, size in (("row", rows, n), ("annotator", annotators, a), ("label", labels, q)):
            if index.size and (index.min() < 0 or index.max() >= size):
                raise ValueError(f"{what} must be numbers from 0 to {size - 1}; got {index.min()} to {index.max()}")
        values = np.asarray(value, dtype=np.float64)
        wrong = (values < 0) | (values > 1)
        if wrong.any():
            remedy = " Use NaN where an annotator did not vote." if (values == -1).any() else ""
            raise ValueError(f"votes must be 0, 1 or probabilities in between; got {values[wrong][0]:g}.{remedy}")
        # A later vote of the same annotator on the same label of a row replaces the earlier one.
        key = (rows * q + labels) * a + annotators
        last = key.size - 1 - np.unique(key[::-1], return_index=True)[1]
        kept = last[~np.isnan(values[last])]
        self.row, self.annotator, self.label = rows[kept], annotators[kept], labels[kept]
        self.value, self.shape = values[kept], (n, a, q)
        self._starts = np.searchsorted(self.row, np.arange(n + 1))
        self.annotator_names, self.label_names, self.row_ids = (
            None if names is None else tuple(names) for names in (annotator_names, label_names, row_ids)
        )

    @classmethod
    def read(cls, votes: Any, n_rows: int | None = None, row_ids: Sequence[Any] | None = None) -> VoteTable:
        """Return votes in any accepted form as a table.

        Parameters
        ----------
        votes : array, DataFrame, sparse array, sequence of sparse matrices, or VoteTable
            An array of shape (n, a, q) with NaN where an annotator did not vote; a long table whose first columns are
            row, annotator, label and (optional) value; or a sparse array (n, a, q) of scipy 1.15 or later, or one
            sparse matrix (n, a) per label, whose stored entries, including stored zeros, are the votes. In a long table
            without values every line is a label that the annotator assigned; the other labels of that row are votes
            of 0.
        n_rows : int or None, default=None
            Number of rows; by default, the rows that occur.
        row_ids : sequence or None, default=None
            Identifiers of the rows in a long table. Without them, rows are numbers from 0 if ``n_rows`` is given, and
            otherwise the values that occur, in sorted order.

        Returns
        -------
        VoteTable
            The votes.

        Raises
        ------
        ValueError
            If shapes do not agree, or if a value is not in [0, 1].
        """
        if isinstance(votes, VoteTable):
            table = votes
        elif is_dataframe(votes):
            table = _read_frame(votes, n_rows, row_ids)
        elif is_sparse(votes) or (isinstance(votes, (list, tuple)) and votes and all(map(is_sparse, votes))):
            table = _read_sparse(votes)
        else:
            table = _read_array(votes)
        if n_rows is not None and table.shape[0] != n_rows:
            raise ValueError(f"votes must have one entry per row ({n_rows} rows); got {table.shape[0]} rows")
        return table

    @property
    def cell(self) -> IntArray:
        """Index of row and label of every vote in a flattened (n, q) array."""
        return np.asarray(self.row * self.shape[2] + self.label)

    @property
    def pair(self) -> IntArray:
        """Index of annotator and label of every vote in a flattened (a, q) array."""
        return np.asarray(self.annotator * self.shape[2] + self.label)

    def count(self) -> NDArray[np.int64]:
        """Return the number of votes on every label of every row, (n, q)."""
        n, _, q = self.shape
        return np.bincount(self.cell, minlength=n * q).reshape(n, q)

    def mean(self) -> FloatArray:
        """Return the mean vote on every label of every row, (n, q); NaN where nobody voted."""
        n, _, q = self.shape
        counts = self.count()
        sums = np.bincount(self.cell, self.value, n * q).reshape(n, q)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def select(self, votes: NDArray[Any]) -> VoteTable:
        """Return the table with some of the votes, given by their numbers or a mask."""
        parts = (self.row[votes], self.annotator[votes], self.label[votes], self.value[votes])
        return VoteTable(*parts, self.shape, self.annotator_names, self.label_names, self.row_ids)

    def to_array(self) -> FloatArray:
        """Return the votes as an array of shape (n, a, q), NaN where an annotator did not vote."""
        array = np.full(self.shape, np.nan)
        array[self.row, self.annotator, self.label] = self.value
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the votes as an array; scikit-learn asks for it to determine the type of the target."""
        array = self.to_array()
        return array if dtype is None else array.astype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> VoteTable:
        """Return the votes on some rows, given by a slice, numbers or a mask; all votes of a row stay together."""
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # scikit-learn indexes arrays by (rows, ...)
        chosen = np.arange(self.shape[0])[rows if isinstance(rows, slice) else np.asarray(rows)]
        if chosen.ndim != 1:
            raise IndexError("a VoteTable is indexed by rows: a slice, a list of numbers or a mask")
        first, sizes = self._starts[chosen], self._starts[chosen + 1] - self._starts[chosen]
        votes = np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        return VoteTable(
            np.repeat(np.arange(chosen.size), sizes),
            self.annotator[votes],
            self.label[votes],
            self.value[votes],
            (chosen.size, *self.shape[1:]),
            self.annotator_names,
            self.label_names,
            None if self.row_ids is None else [self.row_ids[i] for i in chosen],
        )

    def __repr__(self) -> str:
        n, a, q = self.shape
        return f"VoteTable({self.value.size} votes: n={n}, annotators={a}, q={q})"


def _read_array(votes: Any) -> VoteTable:
    array = to_dense_array(votes)
    if array.ndim != 3 or not array.size:
        raise ValueError(f"annotators must be votes of shape (n, annotators, labels); got shape {array.shape}")
    check_numeric(array, "annotators")
    row, annotator, label = np.nonzero(~np.isnan(array.astype(np.float64, copy=False)))
    n, a, q = array.shape
    return VoteTable(row, annotator, label, array[row, annotator, label], (n, a, q))


def _read_sparse(votes: Any) -> VoteTable:
    """Return a sparse array (n, a, q), or one sparse matrix (n, a) per label, as a table of its stored entries."""
    if is_sparse(votes):
        if votes.ndim != 3:
            raise ValueError(
                "sparse votes must have shape (n, annotators, labels), or be a list of one (n, annotators) matrix per "
                f"label; got shape {votes.shape}"
            )
        coo = votes.tocoo()
        row, annotator, label = coo.coords
        return VoteTable(row, annotator, label, coo.data, coo.shape)
    shapes = {matrix.shape for matrix in votes}
    if len(shapes) != 1:
        raise ValueError(f"the sparse votes of all labels must have the same shape (n, annotators); got {shapes}")
    parts = [matrix.tocoo() for matrix in votes]
    label = np.repeat(np.arange(len(parts)), [part.nnz for part in parts])
    row, annotator = np.concatenate([part.coords for part in parts], 1)
    return VoteTable(row, annotator, label, np.concatenate([part.data for part in parts]), (*shapes.pop(), len(parts)))


def _read_frame(frame: Any, n_rows: int | None, row_ids: Sequence[Any] | None) -> VoteTable:
    """Return a long table (row, annotator, label[, value]) as a table of votes."""
    import pandas as pd

    if frame.shape[1] not in (3, 4) or frame.empty:
        raise ValueError(
            "a table of votes must have the columns row, annotator, label and (optional) value, and at least one "
            f"line; got {frame.shape[0]} lines with the columns {', '.join(map(str, frame.columns[:6]))}"
        )
    rows, ids = _row_numbers(frame.iloc[:, 0], n_rows, row_ids)
    n = len(ids) if ids is not None else int(n_rows or 0)
    if frame.iloc[:, 1].isna().any():
        raise ValueError(f"column {frame.columns[1]!r} must name the annotator of every vote; got empty cells")
    annotator, annotators = pd.factorize(frame.iloc[:, 1], sort=True)
    label, labels = pd.factorize(frame.iloc[:, 2], sort=True)  # -1: empty
    if not len(labels):
        raise ValueError(f"column {frame.columns[2]!r} must name the labels; got only empty cells")
    shape, named = (n, len(annotators), len(labels)), label >= 0
    names = (annotators.tolist(), [str(name) for name in labels], ids)
    if frame.shape[1] == 3:
        # Every label of a row that the annotator did not list is a vote of 0.
        seen = np.unique(rows * shape[1] + annotator)
        every = np.arange(seen.size * shape[2])
        rows = np.concatenate((np.repeat(seen // shape[1], shape[2]), rows[named]))
        annotator = np.concatenate((np.repeat(seen % shape[1], shape[2]), annotator[named]))
        label = np.concatenate((every % shape[2], label[named]))
        value = np.concatenate((np.zeros(every.size), np.ones(int(named.sum()))))
        return VoteTable(rows, annotator, label, value, shape, *names)
    column = frame.iloc[:, 3]
    value = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    wrong = np.isnan(value) & column.notna().to_numpy() & (column.astype(str).str.lower() != "nan").to_numpy()
    if wrong.any():
        given = str(column.iloc[int(wrong.argmax())])[:40]
        raise ValueError(f"column {column.name!r} must contain 0, 1 or probabilities in between; got {given!r}")
    if not (value < 1).any():
        raise ValueError(
            f"column {column.name!r} contains no vote below 1, so that it is unknown when a label is absent. "
            "Omit the column if every line is an assigned label; the other labels of the row then count as 0."
        )
    return VoteTable(rows[named], annotator[named], label[named], value[named], shape, *names)


def _row_numbers(column: Any, n_rows: int | None, row_ids: Sequence[Any] | None) -> tuple[IntArray, list[Any] | None]:
    """Return the row number of every vote, and the identifiers of the rows if rows are not given by number."""
    import pandas as pd

    if row_ids is None and n_rows is None:
        rows, found = pd.factorize(column, sort=True)
        ids, known = found.tolist(), "the identifier of a row"
    else:
        ids = list(range(n_rows or 0) if row_ids is None else row_ids)
        known = f"a row number from 0 to {len(ids) - 1}" if row_ids is None else "the identifier of a row"
        if len(set(ids)) < len(ids):
            raise ValueError("the identifiers of the rows must be unique")
        texts = row_ids is None and not pd.api.types.is_numeric_dtype(column)  # row numbers of a file of texts
        rows = pd.Index(ids).get_indexer(pd.Index(pd.to_numeric(column, errors="coerce") if texts else column))
    if (rows < 0).any():
        unknown = column.iloc[int((rows < 0).argmax())]
        raise ValueError(f"column {column.name!r} contains {unknown!r}, which is not {known}")
    return rows.astype(np.intp), None if row_ids is None and n_rows is not None else ids
