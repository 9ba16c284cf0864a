"""Linear systems with shifted Gram matrices and proximal operators, shared by the regression methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from ccmn._containers import is_sparse, to_dense_floats
from ccmn._validation import FloatArray


def append_ones(X: Any) -> Any:
    """Return [X, 1], the features with a last column of ones for the intercept; CSR stays CSR."""
    ones = np.ones((X.shape[0], 1))
    if is_sparse(X):
        return scipy.sparse.hstack([X, scipy.sparse.csr_array(ones)], format="csr")
    return np.hstack([X, ones])


class ShiftedGram:
    r"""Solver for :math:`B + c I` with :math:`B = \Phi^\top \Phi` and any c, from one eigendecomposition.

    With n rows and D columns, it decomposes B if :math:`D \le n`. Otherwise it decomposes the n x n matrix
    :math:`\Phi \Phi^\top`, which gives the leading eigenvectors of B. A sparse :math:`\Phi` is never made dense; memory
    is D x min(n, D).
    """

    def __init__(self, Phi: Any) -> None:
        n, D = Phi.shape
        self.is_complete = n >= D
        gram = to_dense_floats(Phi.T @ Phi) if self.is_complete else to_dense_floats(Phi @ Phi.T)
        values, vectors = scipy.linalg.eigh(gram, overwrite_a=True, check_finite=False)
        self.values = np.maximum(values, 0.0)
        rounding = self.values.max() * max(n, D) * np.finfo(float).eps
        self.is_positive = self.values > rounding
        self.vectors = vectors
        if not self.is_complete:
            self.values, self.is_positive = self.values[self.is_positive], self.is_positive[self.is_positive]
            self.vectors = to_dense_floats(Phi.T @ vectors[:, -len(self.values) :]) / np.sqrt(self.values)

    def solver(self, shift: float) -> Callable[[FloatArray], FloatArray]:
        """Return ``solve`` for a fixed shift, with a precomputed inverse if that takes fewer operations."""
        columns, rank = self.vectors.shape
        if columns > 2 * rank:
            return lambda M: self.solve(M, shift)
        inverse = self.solve(np.eye(columns), shift)
        return lambda M: np.asarray(M @ inverse)

    def solve(self, M: FloatArray, shift: float) -> FloatArray:
        """Return M (B + shift I)^{-1} for M of shape (q, D); shift 0 gives the solution of minimum norm."""
        projected = M @ self.vectors
        if shift == 0:
            inverse = np.divide(1.0, self.values, out=np.zeros_like(self.values), where=self.is_positive)
            return np.asarray((projected * inverse) @ self.vectors.T)
        if self.is_complete:
            return np.asarray((projected / (self.values + shift)) @ self.vectors.T)
        # B is zero on the orthogonal complement of the row space.
        correction = 1 / (self.values + shift) - 1 / shift
        return np.asarray(M / shift + (projected * correction) @ self.vectors.T)


def soft_threshold(A: FloatArray, t: float) -> FloatArray:
    r"""Return the proximal operator of the l1 norm, :math:`\mathrm{sign}(a) \max(\lvert a\rvert - t, 0)` per entry.

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    return np.asarray(A - np.clip(A, -t, t))


def shrink_singular_values(A: FloatArray, t: float) -> FloatArray:
    r"""Return the proximal operator of the trace norm: singular values :math:`s \to \max(s - t, 0)`.

    The result is exactly zero if no singular value exceeds t.
    """
    if t <= 0:
        return A
    # The Frobenius norm bounds all singular values: a large t needs no decomposition.
    if np.linalg.norm(A) <= t:
        return np.zeros_like(A)
    left, values, right = np.linalg.svd(A, full_matrices=False)
    kept = values > t
    return np.asarray((left[:, kept] * (values[kept] - t)) @ right[kept])


def shrink_singular_values_tall(A: FloatArray, t: float) -> FloatArray:
    r"""Return ``shrink_singular_values`` of a matrix with many rows and few columns.

    With :math:`A^\top A = Q\, \mathrm{diag}(s^2)\, Q^\top` the result is :math:`A\, Q\, \mathrm{diag}(\max(1 - t/s,
    0))\, Q^\top`, which needs only a decomposition of the small Gram matrix. Singular values near t are accurate to
    about :math:`10^{-16} s_{\max}^2 / t`.
    """
    if t <= 0:
        return A
    squares, vectors = np.linalg.eigh(A.T @ A)
    kept = squares > t * t
    if not kept.any():
        return np.zeros_like(A)
    factor = 1 - t / np.sqrt(squares[kept])
    return np.asarray(A @ ((vectors[:, kept] * factor) @ vectors[:, kept].T))
