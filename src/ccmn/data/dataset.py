"""Multi-label data: features, labels and their names, validated once, and the characteristics of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._validation import (
    check_label_values,
    check_names,
)

Matrix = Any
"""A dense ndarray or a ``scipy.sparse.csr_array``, of shape (n, d) or (n, q)."""


@dataclass(frozen=True, eq=False)
class MultiLabelData:
    """Multi-label dataset with validated features, labels and names.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Features, stored as float32 or float64 (other numeric types are converted to float32). NaN marks a missing
        value; infinite values are rejected. ``d`` may be 0 if only labels are available.
    Y : array-like or sparse matrix of shape (n, q)
        Labels: uint8 in {0, 1}, or float32 with NaN where a label was not observed (dense only). ``q`` may be 0 for
        rows to predict.
    candidates : array-like or sparse matrix of shape (n, q), default=None
        Observed candidate label sets, for datasets that have both true labels and candidates.
    feature_names, label_names : sequence of str, default=None
        Unique column names.
    name : str, default=""
        Name of the dataset.
    domain : str, default=""
        Application area, such as "text" or "image".
    votes : VoteTable, default=None
        Votes of several annotators on these rows and labels, of which ``Y`` is the majority.
    ids, texts, images : sequence of str, default=None
        Identifier, text and picture file of every row, for display. The text is also a feature; the others are not.
    trusted : array of shape (n, q), default=None
        Verified labels; NaN where not verified.
    cells : DataFrame of shape (n, columns), default=None
        Columns of the table that are features, except texts, as they are in the file. They are for display.

    Raises
    ------
    ValueError
        If shapes do not agree, a value is not allowed or a name is repeated.

    Examples
    --------
    >>> data = MultiLabelData(X=[[0.5], [1.5]], Y=[[1, 0], [1, 1]], label_names=["sea", "sky"])
    >>> data.n, data.d, data.q, data.cardinality
    (2, 1, 2, 1.5)
    """

    X: Matrix
    Y: Matrix
    candidates: Matrix | None = None
    feature_names: Sequence[str] | None = None
    label_names: Sequence[str] | None = None
    name: str = ""
    domain: str = ""
    votes: Any = None
    ids: Sequence[str] | None = None
    texts: Sequence[str] | None = None
    images: Sequence[str] | None = None
    trusted: Matrix | None = None
    cells: Any = None

    def __post_init__(self) -> None:
        """Validate the fields and convert them to their types."""
        X = _check_features(self.X)
        Y = _check_labels(self.Y, "Y")
        if X.shape[0] != Y.shape[0]:
            raise ValueError(f"Y must have a row for each of the {X.shape[0]} rows of X; got {Y.shape[0]}")
        if X.shape[0] == 0:
            raise ValueError("expected at least one row; got none")
        candidates = None if self.candidates is None else _check_labels(self.candidates, "candidates")
        if candidates is not None and candidates.shape != Y.shape:
            raise ValueError(f"candidates must have the shape of Y, {Y.shape}; got {candidates.shape}")
        for name in ("ids", "texts", "images", "cells"):
            values = getattr(self, name)
            if values is not None and len(values) != X.shape[0]:
                raise ValueError(f"{name} must have an entry for each of the {X.shape[0]} rows; got {len(values)}")
        trusted = None if self.trusted is None else np.asarray(self.trusted, dtype=np.float32)
        if trusted is not None and trusted.shape != Y.shape:
            raise ValueError(f"trusted must have the shape of Y, {Y.shape}; got {trusted.shape}")
        checked = {
            "trusted": trusted,
            "X": X,
            "Y": Y,
            "candidates": candidates,
            "feature_names": check_names(self.feature_names, X.shape[1], "feature"),
            "label_names": check_names(self.label_names, Y.shape[1]),
        }
        for field, value in checked.items():
            object.__setattr__(self, field, value)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def q(self) -> int:
        """Number of labels."""
        return int(self.Y.shape[1])

    @property
    def cardinality(self) -> float:
        """Mean number of observed positive labels per row."""
        return float(label_counts(self.Y, axis=1).mean())

    def take(self, rows: Any) -> MultiLabelData:
        """Return the rows selected by an index array, a mask or a slice, with the same names."""
        places = np.arange(self.n)[rows]
        given = {name: value for name, value in vars(self).items() if value is not None}
        taken: dict[str, Any] = {
            **{name: given[name][rows] for name in ("X", "Y", "candidates", "votes", "trusted") if name in given},
            **{name: [given[name][i] for i in places] for name in ("ids", "texts", "images") if name in given},
        }
        return replace(self, cells=None if self.cells is None else self.cells.iloc[places], **taken)

    def __repr__(self) -> str:
        """Return name and shape."""
        kind = "sparse" if is_sparse(self.X) else "dense"
        candidates = "" if self.candidates is None else ", with candidates"
        return f"MultiLabelData({self.name or 'unnamed'}: n={self.n}, d={self.d} {kind}, q={self.q}{candidates})"


def label_counts(Y: Matrix, axis: int) -> NDArray[np.float64]:
    """Return the number of observed positive labels per row (``axis=1``) or per label (``axis=0``)."""
    counts = Y.sum(axis) if is_sparse(Y) else np.nansum(Y, axis=axis, dtype=np.float64)
    return np.asarray(counts, dtype=np.float64)


def first_infinite(X: Matrix) -> tuple[int, int] | None:
    """Return row and column of the first infinite value, or None."""
    if is_sparse(X):
        coo = X.tocoo()
        places = np.column_stack(coo.coords)[np.isinf(coo.data)]
    else:
        places = np.argwhere(np.isinf(X))
    return (int(places[0, 0]), int(places[0, 1])) if len(places) else None


def _check_features(X: Any) -> Matrix:
    """Return features as a float32 or float64 matrix without infinite values."""
    X = _check_matrix(X, "X")
    if X.dtype not in (np.float32, np.float64):
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X must contain numbers; got dtype {X.dtype}")
        X = X.astype(np.float32)
    place = first_infinite(X)
    if place is not None:
        raise ValueError(
            f"X contains an infinite value (row {place[0]}, column {place[1]}, from 0); use NaN for missing values"
        )
    return X


def _check_labels(Y: Any, argument: str) -> Matrix:
    """Return labels as uint8, or as float32 if some are NaN."""
    Y = _check_matrix(Y, argument)
    values = Y.data if is_sparse(Y) else Y
    check_label_values(values, argument)
    if np.issubdtype(Y.dtype, np.floating) and np.isnan(values).any():
        if is_sparse(Y):
            raise ValueError(f"{argument} is sparse and contains NaN; pass a dense array if labels are unobserved")
        return Y.astype(np.float32)
    return Y.astype(np.uint8)


def _check_matrix(values: Any, argument: str) -> Matrix:
    """Return a two-dimensional array, or a CSR array in canonical format with valid indices."""
    matrix: Matrix
    if is_sparse(values):
        matrix = scipy.sparse.csr_array(values)
        # A damaged file may hold indices out of range; scipy would read and write outside the arrays.
        matrix.check_format(full_check=True)
        if (np.diff(matrix.indptr) < 0).any():  # scipy does not check this if the last value is 0
            raise ValueError(f"{argument} is a damaged CSR matrix: indptr decreases")
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # the caller's matrix stays unchanged
            matrix.sum_duplicates()
    else:
        matrix = np.asarray(values)
    if matrix.ndim != 2:
        raise ValueError(f"{argument} must be a matrix with a row per sample; got shape {matrix.shape}")
    return matrix


@dataclass(frozen=True)
class Characteristics:
    """Characteristics of a dataset; see :func:`describe`.

    Parameters
    ----------
    cardinality, label_density : float
        Mean number of positive labels per row, and this number divided by that of the labels.
    feature_density : float
        Fraction of feature values that are not 0.
    candidate_size : float or None
        Mean size of the candidate sets; None if there are none.
    positives_min, positives_median, positives_max : int or float
        Number of positive rows of the rarest, the median and the most frequent label.
    rows_without_features, duplicate_rows : int
        Numbers of rows whose features are all 0, and of rows with the same features as an earlier row.
    """

    name: str
    domain: str
    n: int
    d: int
    q: int
    cardinality: float
    label_density: float
    feature_density: float
    candidate_size: float | None
    positives_min: int
    positives_median: float
    positives_max: int
    rows_without_features: int
    duplicate_rows: int


def describe(data: MultiLabelData) -> Characteristics:
    """Return the characteristics of a dataset; unobserved labels count as negative.

    >>> data = MultiLabelData(X=[[0, 1], [0, 0], [0, 1]], Y=[[1, 0], [1, 1], [1, 0]])
    >>> found = describe(data)
    >>> found.positives_max, found.rows_without_features, found.duplicate_rows
    (3, 1, 1)
    """
    positives = label_counts(data.Y, axis=0) if data.q else np.zeros(1)
    stored = np.asarray((data.X != 0).sum(axis=1)).ravel()
    return Characteristics(
        name=data.name,
        domain=data.domain,
        n=data.n,
        d=data.d,
        q=data.q,
        cardinality=data.cardinality,
        label_density=data.cardinality / max(data.q, 1),
        feature_density=float(stored.sum() / max(data.n * data.d, 1)),
        candidate_size=None if data.candidates is None else float(label_counts(data.candidates, axis=1).mean()),
        positives_min=int(positives.min()),
        positives_median=float(np.median(positives)),
        positives_max=int(positives.max()),
        rows_without_features=int((stored == 0).sum()) if data.d else 0,
        duplicate_rows=duplicate_rows(data.X) if data.d else 0,
    )


def duplicate_rows(X: Matrix) -> int:
    """Return the number of rows with the same features as an earlier row."""
    if not is_sparse(X):
        return len(X) - len({row.tobytes() for row in X + 0.0})  # adding 0.0 turns -0.0 into 0.0
    X = X.copy()
    X.eliminate_zeros()
    rows = list(zip(X.indptr[:-1], X.indptr[1:]))
    return len(rows) - len({X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in rows})
