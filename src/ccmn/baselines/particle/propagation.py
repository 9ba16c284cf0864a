r"""Stage 1a: confidence of candidate labels by propagation over a graph of non-negative reconstructions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning

from ccmn._validation import FloatArray
from ccmn.baselines.decomposition import dense

TOLERANCE, MOST_ITERATIONS = 1e-5, 1000
_NNLS_ITERATIONS = 100
"""Per unknown; the usual 3 are sometimes not enough."""
_ENTRIES_AT_ONCE = 1 << 21


def reconstruction_weights(X: Any, rows: NDArray[np.intp], index: NDArray[np.intp]) -> FloatArray:
    r"""How each row is made of its neighbours, as shares that sum to 1.

    :math:`\min_{w \ge 0} \lVert x_i - \sum_a w_a x_a \rVert^2`, then divided by the sum. No sum constraint and no
    intercept in the fit; a row of zeros stays one. A sparse X is made dense for a few rows and neighbours at a time.
    """
    k = index.shape[1]
    weights = np.empty((len(rows), k))
    step = max(1, _ENTRIES_AT_ONCE // max(1, k * X.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        targets, neighbours = dense(X[rows[part]]), dense(X[index[part].ravel()]).reshape(-1, k, X.shape[1])
        for i, (target, basis) in enumerate(zip(targets, neighbours), start):
            weights[i] = _non_negative(basis.T, target)
    total = weights.sum(1, keepdims=True)
    return np.asarray(np.divide(weights, total, out=np.zeros_like(weights), where=total > 0))


def _non_negative(basis: FloatArray, target: FloatArray) -> FloatArray:
    try:
        return np.asarray(nnls(basis, target, maxiter=_NNLS_ITERATIONS * basis.shape[1])[0])
    except RuntimeError:
        # Equal neighbours can make the active set go round in circles; plain shares are as good an answer there.
        return np.full(basis.shape[1], 1.0)


def transition(weights: FloatArray, index: NDArray[np.intp], n: int) -> scipy.sparse.csr_array:
    """The weights as rows of a sparse matrix with n columns; ``index`` counts columns."""
    rows = np.repeat(np.arange(len(index)), index.shape[1])
    return scipy.sparse.csr_array((weights.ravel(), (rows, index.ravel())), shape=(len(index), n))


def propagate(T: Any, Y: FloatArray, alpha: float) -> FloatArray:
    r"""Iterate :math:`F \leftarrow \alpha T F + (1 - \alpha) Y`, back to the candidate sets, rows summing to 1.

    Starts at F = Y and stops when the spectral norm of the change is below 1e-5. The row of an empty candidate set is
    zero.
    """
    F = Y
    for _ in range(MOST_ITERATIONS):
        before = F
        F = _rows_to_one((alpha * np.asarray(T @ F) + (1 - alpha) * Y) * Y)
        if _spectral_norm(F - before) < TOLERANCE:
            return F
    warnings.warn(
        f"label propagation did not settle in {MOST_ITERATIONS} iterations: a smaller alpha settles faster",
        ConvergenceWarning,
        stacklevel=2,
    )
    return F


def confidence(F: FloatArray, Y: FloatArray) -> FloatArray:
    """Class-mass correction, then every row stretched to [0, 1] over all labels.

    Column j is multiplied by sum(Y_j) / sum(F_j). Where all entries of a row are equal it becomes the candidate set.
    """
    mass, found = Y.sum(0), F.sum(0)
    corrected = F * np.divide(mass, found, out=np.zeros_like(mass), where=found > 0)
    return stretch_rows(corrected, where_flat=Y)


def stretch_rows(values: FloatArray, where_flat: FloatArray) -> FloatArray:
    """Min-max scaling of every row; a row without a difference is taken from ``where_flat``.

    >>> stretch_rows(np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0]]), np.array([[0, 0, 0], [0, 1, 0]]))
    array([[0. , 1. , 0.5], [0. , 1. , 0. ]])
    """
    low, high = values.min(1, keepdims=True), values.max(1, keepdims=True)
    flat = high - low <= 1e-12 * np.abs(high)
    return np.where(flat, where_flat, (values - low) / np.where(flat, 1.0, high - low))


def _rows_to_one(F: FloatArray) -> FloatArray:
    total = F.sum(1, keepdims=True)
    return np.asarray(np.divide(F, total, out=np.zeros_like(F), where=total > 0))


def _spectral_norm(change: FloatArray) -> float:
    """Through the small q x q matrix."""
    return float(np.sqrt(max(0.0, np.linalg.eigvalsh(change.T @ change)[-1])))
