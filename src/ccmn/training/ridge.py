r"""How many threads the linear algebra library gets: for small matrices one, since more wait for each other.

A symmetric matrix as :math:`Q T Q^\top` with T tridiagonal: what shifted systems need, and no more.

:math:`(A + c I) x = r` becomes :math:`(T + c I) z = Q^\top r`, which costs O(n) for every c. An eigendecomposition
begins with the same reduction and goes on to the eigenvectors, at about three times the cost.

Linear model, square surrogate, Hamming loss: ridge regression on debiased targets, without epochs.

:math:`p (1 - f)^2 + (1 - p)(1 + f)^2 = f^2 - 2 f t + 1` with :math:`t = 2p - 1`, so the loss with l2 weight
:math:`\lambda` (torch's ``weight_decay``, which is :math:`\frac\lambda2 \lVert W \rVert^2`) is minimal where

.. math:: \left(\tfrac1n X_c^\top X_c + \tfrac\lambda2 I\right) W = \tfrac1n X_c^\top t_c, \qquad b = \bar t - \bar x W

with centred features and targets: the bias is not penalised. The noise enters through the targets alone, so one
reduction (``tridiagonal.py``) serves every l2, every label and every noise rate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from threadpoolctl import ThreadpoolController

from ccmn._containers import is_sparse, to_dense_floats
from ccmn._validation import FloatArray

_LITTLE = 2**31
"""Operations that one thread does in a fraction of a second."""


@contextmanager
def few_threads(X: Any) -> Iterator[None]:
    """One thread for numpy's and scipy's products while a problem with these features (n, d) is solved, if it is small.

    Their threads spin between products, beside torch's own: on two cores a small closed form then takes twice, L-BFGS
    ten times as long as with one.
    """
    n, d = X.shape
    if n * d * min(n, d) > _LITTLE:
        yield
        return
    with _pools().limit(limits=1, user_api="blas"):
        yield


@cache
def _pools() -> Any:
    return ThreadpoolController()


_BLOCK = 64


class Tridiagonal:
    """The reduction of a positive semidefinite matrix (n, n), whose memory is used for it."""

    def __init__(self, matrix: FloatArray) -> None:
        n = len(matrix)
        # A symmetric matrix is its own transpose: what is row-major here is column-major to LAPACK, without a copy.
        reduced, self._diagonal, beside, self._tau, _ = lapack.dsytrd(
            matrix.T, lower=1, lwork=_BLOCK * n, overwrite_a=1
        )
        self._beside = beside if n > 1 else np.zeros(1)  # LAPACK wants one number there even so
        # Q leaves the first coordinate alone; its reflectors are stored as those of a QR decomposition of the rest.
        self._reflectors = np.asfortranarray(reduced[1:, :-1])
        # Shifts below the rounding errors of the reduction mean nothing, and T + c I might not be positive definite.
        self._least = 4 * n * np.finfo(np.float64).eps * float(np.abs(self._diagonal).max(initial=0.0))

    def rotate(self, columns: NDArray[np.floating[Any]]) -> FloatArray:
        """Q' B of columns B (n, m)."""
        return self._apply("T", columns)

    def rotate_back(self, columns: FloatArray) -> FloatArray:
        """Q Z of columns Z (n, m)."""
        return self._apply("N", columns)

    def solve(self, shift: float, right: FloatArray) -> FloatArray:
        """(T + shift I) Z = R for columns R (n, m)."""
        *_, solution, failed = lapack.dptsv(self._diagonal + max(shift, self._least), self._beside, right)
        if failed:
            raise ValueError("the matrix is not positive semidefinite, beyond what rounding explains")
        return np.asarray(solution)

    def _apply(self, how: str, columns: NDArray[np.floating[Any]]) -> FloatArray:
        found = np.array(columns, dtype=np.float64, order="F")
        if len(found) > 1 and found.shape[1]:
            lwork = _BLOCK * found.shape[1]
            found[1:] = lapack.dormqr("L", how, self._reflectors, self._tau, found[1:], lwork)[0]
        return found


LARGEST_DECOMPOSITION = 3000
"""Rows or features, whichever are fewer, up to which a dense decomposition is taken; above it, conjugate gradients."""

_DENSE_ENOUGH = 0.07
"""Nonzeros per entry from which dense products beat sparse ones, though most of what they multiply is zero."""
_STEADY = 0.1
"""Variance over second moment below which a feature counts as nearly constant: nine in ten of its entries are not 0."""
_BLOCK_NUMBERS = 1 << 21


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


class ReducedPath(RidgePath):
    r"""Every l2, and every label its own, from one reduction of a Gram matrix to tridiagonal form.

    With S the rows' shares and :math:`B = S^{1/2} X_c`, either of :math:`(B^\top B + c) W = B^\top r` (few features)
    and :math:`W = B^\top (B B^\top + c)^{-1} r` (few rows), where :math:`r = S^{1/2} t_c` and c is half of l2.
    """

    def __init__(
        self,
        l2: FloatArray,
        x_mean: FloatArray,
        t_mean: FloatArray,
        gram: Tridiagonal,
        right: FloatArray,
        rows: FloatArray | None = None,
    ) -> None:
        super().__init__(l2, x_mean, t_mean)
        self._gram, self._right, self._rows = gram, gram.rotate(right), rows

    @classmethod
    def through_features(
        cls, l2: FloatArray, x_mean: FloatArray, t_mean: FloatArray, X: Any, t: FloatArray, share: FloatArray
    ) -> ReducedPath:
        """By the (d, d) matrix; X' S t is X_c' S t, since the targets are centred."""
        gram = Tridiagonal(_second_moments(X, share, x_mean))
        return cls(l2, x_mean, t_mean, gram, np.asarray(X.T @ (share[:, None] * t)))

    @classmethod
    def through_rows(
        cls, l2: FloatArray, x_mean: FloatArray, t_mean: FloatArray, X: Any, t: FloatArray, share: FloatArray
    ) -> ReducedPath:
        """By the (n, n) matrix; dense rows are little more than that, d being at most ``LARGEST_DECOMPOSITION`` where
        they come sparse."""
        root = np.sqrt(share)[:, None]
        B = root * (to_dense_floats(X) - x_mean)
        return cls(l2, x_mean, t_mean, Tridiagonal(B @ B.T), root * t, B)

    def scores(self, X: Any) -> Iterator[FloatArray]:
        if X.shape[0] > len(self.l2) * self._right.shape[1]:
            for number in range(len(self.l2)):
                weights, bias = self.solution(np.full(self._right.shape[1], number))
                yield np.asarray(X @ weights) + bias
            return
        # Few rows: they are rotated once, and each l2 is then a narrow product.
        rotated = self._rotated(X)
        for lam in self.l2:
            yield rotated @ self._gram.solve(lam / 2, self._right).astype(rotated.dtype) + self.t_mean

    def _rotated(self, X: Any) -> NDArray[np.floating[Any]]:
        """Rows such that their product with a solution in the rotated basis is their score without bias."""
        columns = (to_dense_floats(X) - self.x_mean).T
        if self._rows is None:
            return self._gram.rotate(columns).T.astype(np.float32)  # enough to choose by
        # Not enough here: rows that are alike with unlike labels have solutions as large as 1 / c, which cancel.
        return self._gram.rotate(self._rows @ columns).T

    def _weights(self, choice: NDArray[np.intp]) -> FloatArray:
        solved = np.empty_like(self._right)
        for number in np.unique(choice):
            labels = choice == number
            solved[:, labels] = self._gram.solve(self.l2[number] / 2, self._right[:, labels])
        found = self._gram.rotate_back(solved)
        return found if self._rows is None else self._rows.T @ found


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
    through = ReducedPath.through_features if X.shape[1] <= n else ReducedPath.through_rows
    return through(l2, x_mean, t_mean, X, t - t_mean, share)


def _second_moments(X: Any, share: FloatArray, x_mean: FloatArray) -> FloatArray:
    """X_c' S X_c, (d, d)."""
    if is_sparse(X) and X.nnz < _DENSE_ENOUGH * X.shape[0] * X.shape[1]:
        return _sparse_second_moments(X, share, x_mean)
    found, step = np.zeros((X.shape[1], X.shape[1])), max(1, _BLOCK_NUMBERS // X.shape[1])
    for start in range(0, X.shape[0], step):
        rows = slice(start, start + step)
        block = np.sqrt(share[rows, None]) * (to_dense_floats(X[rows]) - x_mean)
        found += block.T @ block  # numpy sees that it is symmetric, and does half of the work
    return found


def _sparse_second_moments(X: Any, share: FloatArray, x_mean: FloatArray) -> FloatArray:
    """X' S X less what the means make of it. Features that are nearly constant would lose all digits by that, and the
    matrix its being positive: they are centred first, and there are few of them, since they have hardly a zero."""
    moments = (X.multiply(share[:, None]).tocsr().T @ X).toarray()
    found = np.asarray(moments - np.outer(x_mean, x_mean), dtype=np.float64)
    steady = np.flatnonzero(found.diagonal() < _STEADY * moments.diagonal())
    if steady.size:
        centred = to_dense_floats(X[:, steady]) - x_mean[steady]
        weighted = share[:, None] * centred
        products = np.asarray(X.T @ weighted)
        products[steady] = centred.T @ weighted
        found[:, steady], found[steady] = products, products.T
    return found


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
