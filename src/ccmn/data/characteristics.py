"""Characteristics of a dataset: the appendix table of the paper, and properties that affect training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.data.dataset import Matrix, MultiLabelData, label_counts


@dataclass(frozen=True)
class Characteristics:
    """Characteristics of a dataset; see :func:`describe`."""

    name: str
    domain: str
    n: int
    d: int
    q: int
    cardinality: float
    """Mean number of positive labels per row."""
    label_density: float
    """Cardinality divided by the number of labels."""
    feature_density: float
    """Fraction of feature values that are not 0."""
    candidate_size: float | None
    """Mean size of the candidate sets; None if there are none."""
    positives_min: int
    positives_median: float
    positives_max: int
    """Number of positive rows of the rarest, the median and the most frequent label."""
    rows_without_features: int
    """Number of rows whose features are all 0."""
    duplicate_rows: int
    """Number of rows with the same features as an earlier row."""


def describe(data: MultiLabelData) -> Characteristics:
    """Return the characteristics of a dataset; unobserved labels count as negative.

    >>> data = MultiLabelData(X=[[0, 1], [0, 0], [0, 1]], Y=[[1, 0], [1, 1], [1, 0]])
    >>> found = describe(data)
    >>> found.positives_max, found.rows_without_features, found.duplicate_rows
    (3, 1, 1)
    """
    positives = label_counts(data.Y, axis=0) if data.q else np.zeros(1)
    stored = _nonzeros_per_row(data.X)
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
        duplicate_rows=_duplicate_rows(data.X) if data.d else 0,
    )


def _nonzeros_per_row(X: Matrix) -> NDArray[np.intp]:
    """Return the number of nonzero features of every row."""
    return np.asarray((X != 0).sum(axis=1)).ravel()


def _duplicate_rows(X: Matrix) -> int:
    """Return the number of rows with the same features as an earlier row."""
    if not is_sparse(X):
        return len(X) - len({row.tobytes() for row in X + 0.0})  # adding 0.0 turns -0.0 into 0.0
    X = X.copy()
    X.eliminate_zeros()
    rows = list(zip(X.indptr[:-1], X.indptr[1:]))
    return len(rows) - len({X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in rows})
