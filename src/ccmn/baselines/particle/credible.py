"""Stage 1b: which candidate labels are credible, each row judged by a model of the other folds."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.baselines.particle.neighbours import Neighbours, NeighbourTable
from ccmn.baselines.particle.progress import Progress
from ccmn.baselines.particle.propagation import (
    confidence,
    propagate,
    reconstruction_weights,
    stretch_rows,
    transition,
)


def make_folds(n: int, n_folds: int, rng: np.random.Generator | None) -> NDArray[np.intp]:
    """The fold of every row: contiguous blocks in row order, or of shuffled rows where a generator is given.

    >>> make_folds(5, 2, None)
    array([0, 0, 0, 1, 1])
    """
    folds = np.sort(np.arange(n) % n_folds)
    return folds if rng is None else rng.permutation(folds)


def elicit_credible(
    X: Any,
    Y: FloatArray,
    folds: NDArray[np.intp],
    *,
    k: int,
    alpha: float,
    thr: float,
    include_self: bool = False,
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """Credible labels (n, q), 0/1, of every row from a propagation model fitted without its fold."""
    n, n_folds = len(Y), int(folds.max()) + 1
    k = _affordable(k, max(0, n - int(np.bincount(folds).max()) - 1))
    if k == 0:
        warnings.warn("too few rows for neighbours: every candidate label counts as credible", stacklevel=3)
        return Y.astype(np.int64)
    table = NeighbourTable(X, folds, k)
    credible = np.zeros(Y.shape, dtype=np.int64)
    for fold in range(n_folds):
        neighbours, inside = table.outside(fold), np.flatnonzero(folds == fold)
        F = np.zeros_like(Y)
        rest = np.flatnonzero(folds != fold)
        F[rest] = _model(X, Y, rest, neighbours.rows(rest), alpha, include_self)
        credible[inside] = credible_labels(neighbours.rows(inside), F, Y[inside], thr)
        if progress is not None:
            progress.show(fold + 1, n_folds)
    return credible


def _affordable(k: int, others: int) -> int:
    if k <= others:
        return k
    warnings.warn(f"k={k} neighbours were asked for, only {others} rows can be: k={others} is used", stacklevel=4)
    return others


def _model(
    X: Any, Y: FloatArray, rows: NDArray[np.intp], neighbours: Neighbours, alpha: float, include_self: bool
) -> FloatArray:
    """Stage 1a on some rows, whose neighbours are among them: their confidences."""
    index = neighbours.index
    if include_self:
        # The released program counts a row as its own nearest neighbour, which then explains it completely.
        index = np.hstack([rows[:, None], index[:, :-1]])
    weights = reconstruction_weights(X, rows, index)
    T = transition(weights, np.searchsorted(rows, index), len(rows))
    return confidence(propagate(T, Y[rows], alpha), Y[rows])


def credible_labels(neighbours: Neighbours, F: FloatArray, candidates: FloatArray, thr: float) -> NDArray[np.int64]:
    r"""Labels whose neighbours' vote reaches ``thr``, among the candidates if any of those does.

    :math:`r_j = \sum_a (1 - d_a / \sum_b d_b) F_{aj}`, stretched to [0, 1]. Neighbours with an empty candidate set have
    no vote (their row of F is zero); a vote without a difference makes the candidates credible. Where no candidate
    reaches ``thr`` the labels that do stay, as in the released program: a credible label may lie outside the set.
    """
    votes = np.einsum("ik,ikj->ij", distance_weights(neighbours.distance), F[neighbours.index])
    reached = stretch_rows(votes, where_flat=candidates) >= thr
    both = reached & (candidates > 0)
    return np.where(both.any(1, keepdims=True), both, reached).astype(np.int64)


def distance_weights(distance: FloatArray) -> FloatArray:
    """1 - d_a / (d_1 + ... + d_k); equal weights where all distances are 0, and for a single neighbour."""
    total = distance.sum(1, keepdims=True)
    weights = 1 - np.divide(distance, total, out=np.zeros_like(distance), where=total > 0)
    return np.where(weights.sum(1, keepdims=True) > 0, weights, 1.0)
