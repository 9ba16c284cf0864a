"""What a data set is like: the characteristics of the paper's appendix table, measured, and a few that bite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.data.multilabel import Matrix, MultiLabelData, label_counts


@dataclass(frozen=True)
class Characteristics:
    """Figures of a data set; see :func:`describe`."""

    name: str
    domain: str
    n: int
    d: int
    q: int
    cardinality: float
    """Mean number of relevant labels per row."""
    label_density: float
    """Cardinality over q."""
    feature_density: float
    """Share of features that are not 0."""
    candidate_size: float | None
    """Mean size of the candidate sets, where there are any."""
    positives_min: int
    positives_median: float
    positives_max: int
    """Positives per label."""
    rows_without_features: int
    """Rows whose features are all 0."""
    duplicate_rows: int
    """Rows whose features are those of a row above."""


def describe(data: MultiLabelData) -> Characteristics:
    """Measure a data set. Labels that were not observed count as not relevant.

    >>> data = MultiLabelData(X=[[0, 1], [0, 0], [0, 1]], Y=[[1, 0], [1, 1], [1, 0]])
    >>> figures = describe(data)
    >>> figures.positives_max, figures.rows_without_features, figures.duplicate_rows
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
    return np.asarray((X != 0).sum(axis=1)).ravel()


def _duplicate_rows(X: Matrix) -> int:
    if not is_sparse(X):
        return len(X) - len({row.tobytes() for row in X + 0.0})  # adding 0.0 turns -0.0 into 0.0
    X = X.copy()
    X.eliminate_zeros()
    rows = list(zip(X.indptr[:-1], X.indptr[1:]))
    return len(rows) - len({X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in rows})
