"""Nearest rows: once for all folds, ties by the smaller row number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances_chunked

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray

_ROUNDING = 1e-12
"""Of squared distances, relative to the largest squared norm: products of rows are no more exact than that."""
_MEGABYTES_AT_ONCE = 16
"""Of distances: blocks that are used again from cache, where fresh memory would cost more than the sums."""


@dataclass(frozen=True)
class Neighbours:
    """Row numbers (n, k), nearest first, and their Euclidean distances."""

    index: NDArray[np.intp]
    distance: FloatArray

    def rows(self, which: NDArray[Any]) -> Neighbours:
        """Of some rows only."""
        return Neighbours(self.index[which], self.distance[which])


def nearest(X: Any, queries: NDArray[np.intp], among: NDArray[np.intp], k: int) -> Neighbours:
    """The k rows of X nearest to each of the ``queries``, ``among`` the given (ascending), never the row itself.

    Distances come in blocks, so memory is not n x n; of a sparse X only products of rows are dense. There must be at
    least k others.
    """
    X = X if is_sparse(X) else X - X.mean(0)  # distances are those of the centred rows, and come out more exactly
    norms = np.asarray(X.multiply(X).sum(1)).ravel() if is_sparse(X) else (X**2).sum(1)
    unit = _ROUNDING * float(norms.max()) or 1.0

    def select(block: FloatArray, start: int) -> tuple[NDArray[np.intp], FloatArray]:
        # Equal rows have distance 0 and ties are ties only once rounding is rounded away.
        steps = np.rint(np.divide(block, unit, out=block), out=block)
        mine = queries[start : start + len(block)]
        where = np.searchsorted(among, mine)
        is_here = among[np.minimum(where, len(among) - 1)] == mine
        steps[np.flatnonzero(is_here), where[is_here]] = np.inf
        order = _smallest(steps, k)
        return among[order], np.sqrt(np.take_along_axis(steps, order, 1) * unit)

    found = list(
        pairwise_distances_chunked(
            X[queries],
            X[among],
            reduce_func=select,
            metric="euclidean",
            squared=True,
            working_memory=_MEGABYTES_AT_ONCE,
        )
    )
    return Neighbours(np.concatenate([b[0] for b in found]), np.concatenate([b[1] for b in found]))


def _smallest(values: FloatArray, k: int) -> NDArray[np.intp]:
    """Columns of the k smallest entries of each row in ascending order, ties by the smaller column."""
    limit = np.partition(values, k - 1, axis=1)[:, k - 1]
    result = np.empty((len(values), k), dtype=np.intp)
    for i, row in enumerate(values):
        columns = np.flatnonzero(row <= limit[i])
        result[i] = columns[np.argsort(row[columns], kind="stable")[:k]]
    return result


class NeighbourTable:
    """The neighbours of every row outside any one fold, from one pass over the distances.

    More neighbours than needed are kept; what is left of them outside a fold is the answer wherever it is enough.
    """

    def __init__(self, X: Any, folds: NDArray[np.intp], k: int) -> None:
        self.X, self.folds, self.k = X, folds, k
        n, n_folds = len(folds), int(folds.max()) + 1
        everyone = np.arange(n)
        self.kept = nearest(X, everyone, everyone, min(n - 1, -(-2 * k * n_folds // max(n_folds - 1, 1))))

    def outside(self, fold: int) -> Neighbours:
        """The k nearest rows outside a fold, of every row; there must be more than k rows outside it."""
        is_out = self.folds[self.kept.index] != fold
        order = np.argsort(~is_out, axis=1, kind="stable")[:, : self.k]
        index = np.take_along_axis(self.kept.index, order, 1)
        distance = np.take_along_axis(self.kept.distance, order, 1)
        short = np.flatnonzero(is_out.sum(1) < self.k)
        if short.size:
            found = nearest(self.X, short, np.flatnonzero(self.folds != fold), self.k)
            index = _widened(index, self.k)
            distance = _widened(distance, self.k)
            index[short], distance[short] = found.index, found.distance
        return Neighbours(index, distance)


def _widened(table: NDArray[Any], k: int) -> NDArray[Any]:
    """A table that had fewer than k columns, with room for k."""
    return np.pad(table, ((0, 0), (0, k - table.shape[1])))
