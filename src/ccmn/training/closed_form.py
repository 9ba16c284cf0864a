r"""Linear model, square surrogate, Hamming loss: ridge regression on debiased targets, without epochs.

:math:`p (1 - f)^2 + (1 - p)(1 + f)^2 = f^2 - 2 f t + 1` with :math:`t = 2p - 1`, so the loss with l2 weight
:math:`\lambda` (torch's ``weight_decay``, which is :math:`\frac\lambda2 \lVert W \rVert^2`) is minimal where

.. math:: \left(\tfrac1n X_c^\top X_c + \tfrac\lambda2 I\right) W = \tfrac1n X_c^\top t_c, \qquad b = \bar t - \bar x W

with centred features and targets: the bias is not penalised. The noise enters through the targets alone, so one
decomposition serves every l2, every label and every noise rate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ccmn.data.containers import is_sparse
from ccmn.validation import FloatArray

LARGEST_DECOMPOSITION = 3000
"""Rows or features, whichever are fewer, up to which a dense decomposition is taken; above it, conjugate gradients."""


class RidgePath(ABC):
    """Ridge solutions for a path of l2 weights, descending."""

    def __init__(self, l2: FloatArray, x_mean: FloatArray, t_mean: FloatArray) -> None:
        self.l2, self.x_mean, self.t_mean = l2, x_mean, t_mean

    @abstractmethod
    def scores(self, X: Any) -> Iterator[FloatArray]:
        """Scores (n, q) of other rows, for one l2 after another."""

    @abstractmethod
    def _weights(self, choice: NDArray[np.intp]) -> FloatArray:
        """(d, q)."""

    def solution(self, choice: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Weights (d, q) and bias (q,), with l2[choice[j]] for label j."""
        weights = self._weights(choice)
        return weights, self.t_mean - self.x_mean @ weights


class DecomposedPath(RidgePath):
    """W = basis @ (right / (values + l2 / 2)): every l2, and every label its own, from one decomposition."""

    def __init__(
        self,
        l2: FloatArray,
        x_mean: FloatArray,
        t_mean: FloatArray,
        basis: FloatArray,
        values: FloatArray,
        right: FloatArray,
    ) -> None:
        super().__init__(l2, x_mean, t_mean)
        self.basis, self.values, self.right = basis, np.maximum(values, 0), right

    def scores(self, X: Any) -> Iterator[FloatArray]:
        # The rows are taken into the basis once; each l2 is then a narrow product (float32 is enough to choose by).
        inside = (np.asarray(X @ self.basis) - self.x_mean @ self.basis).astype(np.float32)
        for lam in self.l2:
            solution = self.right / (self.values + lam / 2)[:, None]
            yield inside @ solution.astype(np.float32) + self.t_mean

    def _weights(self, choice: NDArray[np.intp]) -> FloatArray:
        return np.asarray(self.basis @ (self.right / (self.values[:, None] + self.l2[choice] / 2)))


class IteratedPath(RidgePath):
    """Solutions by conjugate gradients, one for each l2: (L, d, q) in float32."""

    def __init__(self, l2: FloatArray, x_mean: FloatArray, t_mean: FloatArray, solved: NDArray[np.float32]) -> None:
        super().__init__(l2, x_mean, t_mean)
        self.solved = solved

    def scores(self, X: Any) -> Iterator[FloatArray]:
        for weights in self.solved:
            yield np.asarray(X @ weights) - self.x_mean @ weights + self.t_mean

    def _weights(self, choice: NDArray[np.intp]) -> FloatArray:
        return self.solved[choice, :, np.arange(len(choice))].T.astype(np.float64)


def l2_path(smallest: float, largest: float, per_decade: int = 2) -> FloatArray:
    """A geometric path of l2 weights from the largest down to the smallest, both included.

    >>> l2_path(1e-4, 1e-2, per_decade=1)
    array([0.01  , 0.001 , 0.0001])
    """
    smallest = max(smallest, 1e-10)
    count = max(2, round(per_decade * np.log10(max(largest / smallest, 1.0))) + 1)
    return np.geomspace(max(largest, smallest), smallest, count)


def ridge_path(X: Any, targets: FloatArray, l2: FloatArray, sample_weight: FloatArray | None = None) -> RidgePath:
    """Ridge solutions of every l2 for debiased targets p (n, q), none of them NaN; X dense or CSR."""
    n = X.shape[0]
    share = np.full(n, 1 / n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    share = share / share.sum()
    t = 2 * np.asarray(targets, dtype=np.float64) - 1
    x_mean, t_mean = np.asarray(share @ X, dtype=np.float64).ravel(), share @ t
    l2 = np.sort(np.asarray(l2, dtype=np.float64))[::-1]
    if min(X.shape) > LARGEST_DECOMPOSITION or (is_sparse(X) and X.shape[1] > LARGEST_DECOMPOSITION):
        return IteratedPath(l2, x_mean, t_mean, _conjugate_gradients(X, x_mean, t - t_mean, share, l2))
    return DecomposedPath(l2, x_mean, t_mean, *decompose(X, x_mean, t - t_mean, share))


def decompose(
    X: Any, x_mean: FloatArray, t: FloatArray, share: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """One eigendecomposition of the smaller Gram matrix: (basis, values, right-hand side in it)."""
    n, d = X.shape
    X = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
    if d <= n:
        weighted = X.multiply(share[:, None]).tocsr() if is_sparse(X) else X * share[:, None]
        gram = _dense(weighted.T @ X) - np.outer(x_mean, x_mean)
        values, vectors = _eigen(gram)
        # X_c' S t = X' S t, since the targets are centred.
        return vectors, values, vectors.T @ np.asarray(weighted.T @ t)
    # Few rows, many features: the same through rows. X has at most LARGEST_DECOMPOSITION of them here.
    root = np.sqrt(share)
    through_mean = np.asarray(X @ x_mean).ravel()
    gram = _dense(X @ X.T) - through_mean[:, None] - through_mean[None, :] + x_mean @ x_mean
    gram = root[:, None] * gram * root
    values, vectors = _eigen(gram)
    dual = root[:, None] * vectors
    return np.asarray(X.T @ dual) - np.outer(x_mean, dual.sum(0)), values, vectors.T @ (root[:, None] * t)


def _eigen(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and vectors; which driver is faster depends on the size (measured on two cores)."""
    driver: Literal["evd", "evr"] = "evd" if len(gram) < 600 else "evr"
    values, vectors = scipy.linalg.eigh(gram, overwrite_a=True, driver=driver, check_finite=False)
    return values, vectors


def _dense(product: Any) -> FloatArray:
    return np.asarray(product.toarray() if is_sparse(product) else product, dtype=np.float64)


def _conjugate_gradients(
    X: Any, x_mean: FloatArray, t: FloatArray, share: FloatArray, l2: FloatArray, *, tolerance: float = 1e-6
) -> NDArray[np.float32]:
    """All labels at once, from the largest l2 to the smallest, each starting where the last ended.

    X is only ever multiplied with; nothing of size (d, d) or (n, n) is made.
    """
    right = np.asarray(X.T @ (share[:, None] * t))
    W = np.zeros_like(right)
    path = []
    for lam in l2:

        def gram(V: NDArray[Any], lam: float = float(lam)) -> NDArray[Any]:
            through = np.asarray(X @ V) - x_mean @ V
            return np.asarray(X.T @ (share[:, None] * through)) - np.outer(x_mean, share @ through) + lam / 2 * V

        W = _solve_columns(gram, right, W, tolerance)
        path.append(W.astype(np.float32))
    return np.stack(path)


def _solve_columns(gram: Any, right: NDArray[Any], start: NDArray[Any], tolerance: float) -> NDArray[Any]:
    """Conjugate gradients for every column of the right-hand side, in step."""
    W = start.copy()
    residual = right - gram(W)
    direction, square = residual.copy(), (residual**2).sum(0)
    goal = tolerance**2 * np.maximum((right**2).sum(0), 1e-300)
    for _ in range(200):
        if (square <= goal).all():
            break
        image = gram(direction)
        length = square / np.maximum((direction * image).sum(0), 1e-300)
        W += length * direction
        residual -= length * image
        new_square = (residual**2).sum(0)
        direction = residual + new_square / np.maximum(square, 1e-300) * direction
        square = new_square
    return W
