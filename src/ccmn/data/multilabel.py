"""MultiLabelData: features, labels and their names, checked once and then relied on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._validation import check_feature_names, check_label_names, check_label_values

Matrix = Any
"""A dense ndarray or a ``scipy.sparse.csr_array``, of shape (n, d) or (n, q)."""


@dataclass(frozen=True, eq=False)
class MultiLabelData:
    """A multi-label data set.

    Parameters
    ----------
    X : array or CSR of shape (n, d)
        Features, float32 or float64 (other numbers become float32). NaN is a missing value; infinity is refused.
        d may be 0: labels whose features are not to be had.
    Y : array or CSR of shape (n, q)
        Labels: uint8 in {0, 1}, or float32 with NaN where a label was not observed (dense only).
        q may be 0: rows to predict on.
    candidates : array or CSR of shape (n, q), optional
        Observed candidate sets, where the data set has real ones beside the true labels.
    feature_names, label_names : sequence of str, optional
    name, domain : str
        What the data set is called and is about; empty where unknown.

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

    def __post_init__(self) -> None:
        X = _features(self.X)
        Y = _labels(self.Y, "Y")
        _check_rows(X, Y, "Y")
        candidates = None if self.candidates is None else _labels(self.candidates, "candidates")
        if candidates is not None and candidates.shape != Y.shape:
            raise ValueError(f"candidates must have the shape of Y, {Y.shape}; got {candidates.shape}")
        checked = {
            "X": X,
            "Y": Y,
            "candidates": candidates,
            "feature_names": check_feature_names(self.feature_names, X.shape[1]),
            "label_names": check_label_names(self.label_names, Y.shape[1]),
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
        """Mean number of (observed) relevant labels per row."""
        return float(label_counts(self.Y, axis=1).mean())

    def take(self, rows: Any) -> MultiLabelData:
        """The rows chosen by an index array, a mask or a slice, names kept."""
        candidates = None if self.candidates is None else self.candidates[rows]
        return replace(self, X=self.X[rows], Y=self.Y[rows], candidates=candidates)

    def __repr__(self) -> str:
        kind = "sparse" if is_sparse(self.X) else "dense"
        candidates = "" if self.candidates is None else ", with candidates"
        return f"MultiLabelData({self.name or 'unnamed'}: n={self.n}, d={self.d} {kind}, q={self.q}{candidates})"


def label_counts(Y: Matrix, axis: int) -> NDArray[np.float64]:
    """Number of (observed) 1 per row (``axis=1``) or per label (``axis=0``)."""
    counts = Y.sum(axis) if is_sparse(Y) else np.nansum(Y, axis=axis, dtype=np.float64)
    return np.asarray(counts, dtype=np.float64)


def concatenate(parts: Sequence[MultiLabelData]) -> MultiLabelData:
    """One data set from several with the same columns, rows in the order given; dense parts stay dense."""
    first = parts[0]
    for part in parts[1:]:
        if (part.d, part.q) != (first.d, first.q) or part.label_names != first.label_names:
            raise ValueError(f"{part} and {first} cannot be joined: their columns differ")
    return replace(
        first,
        X=_stack([part.X for part in parts]),
        Y=_stack([part.Y for part in parts]),
        candidates=None if first.candidates is None else _stack([part.candidates for part in parts]),
    )


def first_infinite(X: Matrix) -> tuple[int, int] | None:
    """Row and column of the first infinite value, if there is one."""
    if is_sparse(X):
        coo = X.tocoo()
        places = np.column_stack(coo.coords)[np.isinf(coo.data)]
    else:
        places = np.argwhere(np.isinf(X))
    return (int(places[0, 0]), int(places[0, 1])) if len(places) else None


def _stack(matrices: list[Matrix]) -> Matrix:
    if any(is_sparse(matrix) for matrix in matrices):
        return scipy.sparse.vstack(matrices, format="csr")
    return np.concatenate(matrices)


def _features(X: Any) -> Matrix:
    X = _matrix(X, "X")
    if X.dtype not in (np.float32, np.float64):
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X must hold numbers; got dtype {X.dtype}")
        X = X.astype(np.float32)
    place = first_infinite(X)
    if place is not None:
        raise ValueError(f"X holds an infinite value (row {place[0]}, column {place[1]}, from 0); NaN marks missing")
    return X


def _labels(Y: Any, argument: str) -> Matrix:
    Y = _matrix(Y, argument)
    values = Y.data if is_sparse(Y) else Y
    check_label_values(values, argument)
    if np.issubdtype(Y.dtype, np.floating) and np.isnan(values).any():
        if is_sparse(Y):
            raise ValueError(f"{argument} is sparse and holds NaN; pass a dense array when labels are unobserved")
        return Y.astype(np.float32)
    return Y.astype(np.uint8)


def _matrix(values: Any, argument: str) -> Matrix:
    matrix: Matrix
    if is_sparse(values):
        matrix = scipy.sparse.csr_array(values)
        # Indices out of range, as a damaged file may have them, would be read and written beyond the arrays.
        matrix.check_format(full_check=True)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # what was handed in stays as it is
            matrix.sum_duplicates()
    else:
        matrix = np.asarray(values)
    if matrix.ndim != 2:
        raise ValueError(f"{argument} must be a matrix with a row per sample; got shape {matrix.shape}")
    return matrix


def _check_rows(X: Matrix, Y: Matrix, argument: str) -> None:
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"{argument} must have a row for each of the {X.shape[0]} rows of X; got {Y.shape[0]}")
    if X.shape[0] == 0:
        raise ValueError("there are no rows: at least one is needed")
