"""Predictions of many labels: scores exist for a tile of rows and labels at a time, never as a whole matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

Scores = Callable[[Any, slice], NDArray[np.float64]]
"""(features of some rows, some labels) -> their scores."""

SCORES_AT_ONCE = 1 << 20
WEIGHTS_AT_ONCE = 1 << 21


def label_tiles(q: int, weights_per_label: int) -> Iterator[slice]:
    """Labels in tiles whose weights, in float64, are few megabytes."""
    size = max(1, WEIGHTS_AT_ONCE // max(1, weights_per_label))
    yield from (slice(start, min(start + size, q)) for start in range(0, q, size))


def predicted_labels(scores: Scores, X: Any, tiles: list[slice]) -> Any:
    """The labels whose score is >= 0, as CSR (n, q) of int64."""
    rows, columns = [], []
    for labels, part, f in _tiles(scores, X, tiles):
        row, column = np.nonzero(f >= 0)
        rows.append(row + part.start)
        columns.append(column + labels.start)
    at = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(at[0].size, dtype=np.int64)
    return scipy.sparse.coo_matrix((ones, at), shape=(X.shape[0], tiles[-1].stop)).tocsr()


def top_labels(scores: Scores, X: Any, tiles: list[slice], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k labels of every row with the highest scores, highest first, and their scores: (n, k) each.

    The best k so far meet one tile at a time and are told apart by partition: O(n q) time, and nothing of all labels
    is ever sorted. Of equal scores the first label comes first among those kept.
    """
    n = X.shape[0]
    best, which = np.full((n, 0), -np.inf), np.zeros((n, 0), dtype=np.int64)
    for labels in tiles:
        parts = [_meet(best[part], which[part], f, labels.start, k) for _, part, f in _tiles(scores, X, [labels])]
        best, which = (np.concatenate(side) for side in zip(*parts))
    order = np.lexsort((which, -best))
    return np.take_along_axis(which, order, 1), np.take_along_axis(best, order, 1)


def _meet(
    best: NDArray[np.float64], which: NDArray[np.int64], f: NDArray[np.float64], start: int, k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The k best of those known and those of one more tile."""
    fresh = np.broadcast_to(np.arange(start, start + f.shape[1]), f.shape)
    values, labels = np.concatenate((best, f), 1), np.concatenate((which, fresh), 1)
    if values.shape[1] <= k:
        return values, labels
    kept = np.argpartition(-values, k - 1, axis=1)[:, :k]
    return np.take_along_axis(values, kept, 1), np.take_along_axis(labels, kept, 1)


def _tiles(scores: Scores, X: Any, tiles: list[slice]) -> Iterator[tuple[slice, slice, NDArray[np.float64]]]:
    """(labels, rows, scores of these), tile by tile."""
    for labels in tiles:
        size = max(1, SCORES_AT_ONCE // (labels.stop - labels.start))
        for start in range(0, X.shape[0], size):
            part = slice(start, min(start + size, X.shape[0]))
            yield labels, part, scores(X[part], labels)
