r"""The leading rank-k part of :math:`M = [\sqrt a\, T, \sqrt b\, X]` where T changes and X stays.

Three ways, by shape: through the Gram matrix of the columns, through that of the rows, or by subspace iteration. X may
be sparse; it is only multiplied with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.linalg

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray
from ccmn.baselines.decomposition import dense

LARGEST_EXACT = 800
"""Rows or columns, whichever are fewer, up to which a Gram matrix is decomposed in every round."""
_SPARE = 10
_FIRST_SWEEPS, _SWEEPS = 10, 2


class Leading(ABC):
    """Keeps what depends on X alone. ``b`` is the weight of X in M."""

    def __init__(self, X: Any, rank: int, b: float) -> None:
        self.X, self.rank, self.b = X, rank, b
        self.square = float((X.data**2).sum() if is_sparse(X) else (np.asarray(X) ** 2).sum())

    @abstractmethod
    def project(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        """T's part in the rank-k approximation of M, and the squared norm of what it leaves of X."""


class ColumnGram(Leading):
    r"""Fewer columns than rows: with the eigenvectors V of :math:`M^\top M` it is :math:`M V_k V_k^\top`."""

    def __init__(self, X: Any, rank: int, b: float) -> None:
        super().__init__(X, rank, b)
        self.gram = dense(X.T @ X)

    def project(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        q, cross = T.shape[1], np.sqrt(a * self.b) * np.asarray(self.X.T @ T)
        gram = np.block([[a * T.T @ T, cross.T], [cross, self.b * self.gram]])
        V = _top_eigenvectors(gram, self.rank)
        S = np.sqrt(a) * T @ V[:q] + np.sqrt(self.b) * np.asarray(self.X @ V[q:])
        Z = S @ V[:q].T / np.sqrt(a)
        return Z, self._unexplained(S, V[q:]) if self.b else 0.0

    def _unexplained(self, S: FloatArray, V: FloatArray) -> float:
        """||X - S F||^2."""
        F = V.T / np.sqrt(self.b)
        return self.square - 2 * float((np.asarray(self.X.T @ S) * F.T).sum()) + float(((S.T @ S) * (F @ F.T)).sum())


class RowGram(Leading):
    r"""Fewer rows than columns: with the eigenvectors U of :math:`M M^\top` it is :math:`U_k U_k^\top M`."""

    def __init__(self, X: Any, rank: int, b: float) -> None:
        super().__init__(X, rank, b)
        self.gram = dense(X @ X.T)

    def project(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        U = _top_eigenvectors(a * T @ T.T + self.b * self.gram, self.rank)
        return _onto(U, T), self.square - float(((self.gram @ U) * U).sum())


class SubspaceIteration(Leading):
    """Neither is small: sweeps of M M' over a random start, each round going on from the last.

    A sweep never lowers what the subspace explains, so the objective falls here too, if not to the block's minimum in
    the first rounds.
    """

    def __init__(self, X: Any, rank: int, b: float, rng: np.random.Generator) -> None:
        super().__init__(X, rank, b)
        self.U = np.linalg.qr(rng.standard_normal((X.shape[0], min(rank + _SPARE, X.shape[0]))))[0]
        self.sweeps = _FIRST_SWEEPS

    def project(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        for _ in range(self.sweeps):
            from_X = np.asarray(self.X @ np.asarray(self.X.T @ self.U))
            self.U = np.linalg.qr(a * T @ (T.T @ self.U) + self.b * from_X)[0]
        self.sweeps = _SWEEPS
        inside = np.hstack([np.sqrt(a) * self.U.T @ T, np.sqrt(self.b) * np.asarray(self.X.T @ self.U).T])
        U = self.U @ np.linalg.svd(inside, full_matrices=False)[0][:, : self.rank]
        return _onto(U, T), self.square - float((np.asarray(self.X.T @ U) ** 2).sum())


def make_leading(X: Any, q: int, rank: int, b: float, svd: str, rng: np.random.Generator) -> Leading:
    """The way that fits the shape of M, (n, q + d)."""
    n, columns = X.shape[0], X.shape[1] + q
    if svd == "randomised" or (svd == "auto" and min(n, columns) > LARGEST_EXACT):
        return SubspaceIteration(X, rank, b, rng)
    return ColumnGram(X, rank, b) if columns <= n else RowGram(X, rank, b)


def _top_eigenvectors(gram: FloatArray, k: int) -> FloatArray:
    size = len(gram)
    if k >= size:
        return np.eye(size)
    return np.asarray(scipy.linalg.eigh(gram, subset_by_index=(size - k, size - 1), check_finite=False)[1])


def _onto(U: FloatArray, T: FloatArray) -> FloatArray:
    return np.asarray(U @ (U.T @ T))
