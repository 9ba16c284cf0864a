r"""One eigendecomposition of :math:`\Phi^\top \Phi`, reused for every shift: what the regression methods solve with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray


def with_ones(X: Any) -> Any:
    """[X, 1]: the bias as one more feature, in the last column; CSR stays CSR."""
    ones = np.ones((X.shape[0], 1))
    if is_sparse(X):
        return scipy.sparse.hstack([X, scipy.sparse.csr_array(ones)], format="csr")
    return np.hstack([X, ones])


def dense(product: Any) -> FloatArray:
    """A product of matrices, some of which may be sparse, as an array."""
    return np.asarray(product.toarray() if is_sparse(product) else product, dtype=np.float64)


class ShiftedGram:
    r"""Solves with :math:`B + c I`, :math:`B = \Phi^\top \Phi`, for any c from one decomposition.

    For n rows and D columns, D up to n, it decomposes B; with more columns than rows the n x n matrix
    :math:`\Phi \Phi^\top`, from which the leading eigenvectors of B follow. Of a sparse :math:`\Phi` only
    these products are dense: memory is D x min(n, D).
    """

    def __init__(self, Phi: Any) -> None:
        n, D = Phi.shape
        self.whole = n >= D
        gram = dense(Phi.T @ Phi) if self.whole else dense(Phi @ Phi.T)
        values, vectors = scipy.linalg.eigh(gram, overwrite_a=True, check_finite=False)
        self.values = np.maximum(values, 0.0)
        noise = self.values.max() * max(n, D) * np.finfo(float).eps
        self.clear = self.values > noise
        """Which eigenvalues are not zero but for rounding."""
        self.vectors = vectors
        if not self.whole:
            self.values, self.clear = self.values[self.clear], self.clear[self.clear]
            self.vectors = dense(Phi.T @ vectors[:, -len(self.values) :]) / np.sqrt(self.values)

    @property
    def largest(self) -> float:
        """The spectral norm of B."""
        return float(self.values.max(initial=0.0))

    def solver(self, shift: float) -> Callable[[FloatArray], FloatArray]:
        """``solve`` for one shift and many M: by the inverse itself where one product with it costs less than two."""
        columns, rank = self.vectors.shape
        if columns > 2 * rank:
            return lambda M: self.solve(M, shift)
        inverse = self.solve(np.eye(columns), shift)
        return lambda M: np.asarray(M @ inverse)

    def solve(self, M: FloatArray, shift: float) -> FloatArray:
        """M (B + shift I)^{-1} for M of shape (q, D); with a shift of 0 the solution of least norm."""
        inside = M @ self.vectors
        if shift == 0:
            inverse = np.divide(1.0, self.values, out=np.zeros_like(self.values), where=self.clear)
            return np.asarray((inside * inverse) @ self.vectors.T)
        if self.whole:
            return np.asarray((inside / (self.values + shift)) @ self.vectors.T)
        # Outside the span of the rows B is zero.
        correction = 1 / (self.values + shift) - 1 / shift
        return np.asarray(M / shift + (inside * correction) @ self.vectors.T)
