r"""Ridge regression on debiased targets: linear model, square surrogate, Hamming loss, solved for a path of l2 weights.

:math:`p (1 - f)^2 + (1 - p)(1 + f)^2 = f^2 - 2 f t + 1` with :math:`t = 2p - 1`. With l2 weight :math:`\lambda` (the
``weight_decay`` of PyTorch, which adds :math:`\frac\lambda2 \lVert W \rVert^2`), the loss is minimal where

.. math:: \left(\tfrac1n X_c^\top X_c + \tfrac\lambda2 I\right) W = \tfrac1n X_c^\top t_c, \qquad b = \bar t - \bar x W

with centered features and targets; the bias is not penalized. The noise changes only the targets, so that one matrix
reduction serves every l2 weight, every label and every noise rate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ccmn._containers import is_sparse, to_dense_floats
from ccmn._validation import FloatArray

_LAPACK_BLOCK = 64
"""Block size for the workspace of LAPACK routines."""


class Tridiagonal:
    r"""Reduction :math:`A = Q T Q^\top` of a symmetric matrix to tridiagonal form, for systems with many shifts.

    :math:`(A + c I) x = r` becomes :math:`(T + c I) z = Q^\top r`, which costs O(n) for every c. An eigendecomposition
    begins with the same reduction and takes about three times as long.

    Parameters
    ----------
    matrix : array of shape (n, n)
        Positive semidefinite matrix. Its memory is overwritten.
    """

    def __init__(self, matrix: FloatArray) -> None:
        n = len(matrix)
        # The transpose of a symmetric row-major matrix is the same matrix in column-major order, without a copy.
        reduced, self._diagonal, off_diagonal, self._tau, _ = lapack.dsytrd(
            matrix.T, lower=1, lwork=_LAPACK_BLOCK * n, overwrite_a=1
        )
        self._off_diagonal = off_diagonal if n > 1 else np.zeros(1)  # LAPACK requires one number
        # Q does not change the first coordinate; its reflectors are the reflectors of a QR decomposition of the rest.
        self._reflectors = np.asfortranarray(reduced[1:, :-1])
        # With smaller shifts, T + c I might not be positive definite because of rounding errors.
        self._min_shift = 4 * n * np.finfo(np.float64).eps * float(np.abs(self._diagonal).max(initial=0.0))

    def rotate(self, columns: NDArray[np.floating[Any]]) -> FloatArray:
        """Return Q' B for columns B (n, m)."""
        return self._apply("T", columns)

    def rotate_back(self, columns: FloatArray) -> FloatArray:
        """Return Q Z for columns Z (n, m)."""
        return self._apply("N", columns)

    def solve(self, shift: float, right: FloatArray) -> FloatArray:
        """Solve (T + shift I) Z = R for columns R (n, m)."""
        *_, solution, failed = lapack.dptsv(self._diagonal + max(shift, self._min_shift), self._off_diagonal, right)
        if failed:
            raise ValueError("the matrix is not positive semidefinite")
        return np.asarray(solution)

    def _apply(self, transpose: str, columns: NDArray[np.floating[Any]]) -> FloatArray:
        """Return Q' B for "T" and Q B for "N"."""
        product = np.array(columns, dtype=np.float64, order="F")
        if len(product) > 1 and product.shape[1]:
            lwork = _LAPACK_BLOCK * product.shape[1]
            product[1:] = lapack.dormqr("L", transpose, self._reflectors, self._tau, product[1:], lwork)[0]
        return product


MAX_DECOMPOSITION_SIZE = 3000
"""A dense decomposition is used if the smaller of n and d is at most this number, else conjugate gradients."""

MIN_DENSITY = 0.07
"""Above this share of nonzero entries, dense products are faster than sparse ones (measured on two cores)."""
MIN_RELATIVE_VARIANCE = 0.1
"""A feature whose variance is a smaller share of its second moment is nearly constant; most entries are not 0."""
_BLOCK_ELEMENTS = 1 << 21
"""Elements of the blocks of rows that are made dense at a time."""


class RidgePath(ABC):
    """Ridge solutions for a path of decreasing l2 weights."""

    def __init__(self, l2: FloatArray, x_mean: FloatArray, t_mean: FloatArray) -> None:
        self.l2, self.x_mean, self.t_mean = l2, x_mean, t_mean

    @abstractmethod
    def scores(self, X: Any) -> Iterator[FloatArray]:
        """Yield the scores (n, q) of other rows for each l2 weight."""

    @abstractmethod
    def _weights(self, choice: NDArray[np.intp]) -> FloatArray:
        """Return the weights (d, q)."""

    def solution(self, choice: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return weights (d, q) and bias (q,) with the l2 weight ``l2[choice[j]]`` for label j."""
        weights = self._weights(choice)
        return weights, self.t_mean - self.x_mean @ weights


class ReducedPath(RidgePath):
    r"""Solutions for every l2 weight from one reduction of a Gram matrix to tridiagonal form.

    With the diagonal matrix S of sample weights and :math:`B = S^{1/2} X_c`, either
    :math:`(B^\top B + c) W = B^\top r` (few features) or :math:`W = B^\top (B B^\top + c)^{-1} r` (few rows) is
    solved, where :math:`r = S^{1/2} t_c` and c is half of the l2 weight.
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
        """Return the path from the (d, d) matrix. X' S t equals X_c' S t, because the targets are centered."""
        gram = Tridiagonal(_second_moments(X, share, x_mean))
        return cls(l2, x_mean, t_mean, gram, np.asarray(X.T @ (share[:, None] * t)))

    @classmethod
    def through_rows(
        cls, l2: FloatArray, x_mean: FloatArray, t_mean: FloatArray, X: Any, t: FloatArray, share: FloatArray
    ) -> ReducedPath:
        """Return the path from the (n, n) matrix. Sparse rows have at most ``MAX_DECOMPOSITION_SIZE`` features here."""
        root = np.sqrt(share)[:, None]
        B = root * (to_dense_floats(X) - x_mean)
        return cls(l2, x_mean, t_mean, Tridiagonal(B @ B.T), root * t, B)

    def scores(self, X: Any) -> Iterator[FloatArray]:
        """Yield the scores (n, q) of other rows for each l2 weight."""
        if X.shape[0] > len(self.l2) * self._right.shape[1]:
            for number in range(len(self.l2)):
                weights, bias = self.solution(np.full(self._right.shape[1], number))
                yield np.asarray(X @ weights) + bias
            return
        # Few rows are rotated once; each l2 weight then takes one narrow product.
        rotated = self._rotated(X)
        for lam in self.l2:
            yield rotated @ self._gram.solve(lam / 2, self._right).astype(rotated.dtype) + self.t_mean

    def _rotated(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return rows whose product with a rotated solution is their score without bias."""
        columns = (to_dense_floats(X) - self.x_mean).T
        if self._rows is None:
            return self._gram.rotate(columns).T.astype(np.float32)  # precise enough for the selection
        # float32 is not precise enough here: similar rows with different labels have large solutions that cancel.
        return self._gram.rotate(self._rows @ columns).T

    def _weights(self, choice: NDArray[np.intp]) -> FloatArray:
        solved = np.empty_like(self._right)
        for number in np.unique(choice):
            labels = choice == number
            solved[:, labels] = self._gram.solve(self.l2[number] / 2, self._right[:, labels])
        solution = self._gram.rotate_back(solved)
        return solution if self._rows is None else self._rows.T @ solution


class IteratedPath(RidgePath):
    """Solutions by conjugate gradients, (L, d, q) in float32 for L l2 weights."""

    def __init__(self, l2: FloatArray, x_mean: FloatArray, t_mean: FloatArray, solved: NDArray[np.float32]) -> None:
        super().__init__(l2, x_mean, t_mean)
        self.solved = solved

    def scores(self, X: Any) -> Iterator[FloatArray]:
        """Yield the scores (n, q) of other rows for each l2 weight."""
        for weights in self.solved:
            yield np.asarray(X @ weights) - self.x_mean @ weights + self.t_mean

    def _weights(self, choice: NDArray[np.intp]) -> FloatArray:
        return self.solved[choice, :, np.arange(len(choice))].T.astype(np.float64)


def l2_path(smallest: float, largest: float, per_decade: int = 2) -> FloatArray:
    """Return a geometric path of l2 weights from the largest to the smallest.

    Parameters
    ----------
    smallest, largest : float
        Ends of the path, both included.
    per_decade : int, default=2
        Number of values per factor of 10.

    Returns
    -------
    array of float64
        Decreasing l2 weights.

    Examples
    --------
    >>> l2_path(1e-4, 1e-2, per_decade=1)
    array([0.01  , 0.001 , 0.0001])
    """
    if not np.isfinite(largest):
        raise ValueError("the mean squared norm of the features is not finite: scale the features")
    smallest = max(smallest, 1e-10)
    count = max(2, round(per_decade * np.log10(max(largest / smallest, 1.0))) + 1)
    return np.geomspace(max(largest, smallest), smallest, count)


def ridge_path(X: Any, targets: FloatArray, l2: FloatArray, sample_weight: FloatArray | None = None) -> RidgePath:
    """Return the ridge solutions for debiased labels and a path of l2 weights.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Features.
    targets : array of shape (n, q)
        Debiased labels without NaN.
    l2 : array
        l2 weights.
    sample_weight : array of shape (n,), optional
        Sample weights.

    Returns
    -------
    RidgePath
        Solutions, from which scores and weights are computed.

    Examples
    --------
    >>> X, p = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> weights, bias = ridge_path(X, p, np.array([1e-6])).solution(np.array([0]))
    >>> (X @ weights + bias).ravel().round(2)
    array([-1.2, -0.4,  0.4,  1.2])
    """
    n = X.shape[0]
    share = np.full(n, 1 / n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    share = share / share.sum()
    t = 2 * np.asarray(targets, dtype=np.float64) - 1
    x_mean, t_mean = np.asarray(share @ X, dtype=np.float64).ravel(), share @ t
    l2 = np.sort(np.asarray(l2, dtype=np.float64))[::-1]
    if min(X.shape) > MAX_DECOMPOSITION_SIZE or (is_sparse(X) and X.shape[1] > MAX_DECOMPOSITION_SIZE):
        return IteratedPath(l2, x_mean, t_mean, _conjugate_gradients(X, x_mean, t - t_mean, share, l2))
    through = ReducedPath.through_features if X.shape[1] <= n else ReducedPath.through_rows
    return through(l2, x_mean, t_mean, X, t - t_mean, share)


def _second_moments(X: Any, share: FloatArray, x_mean: FloatArray) -> FloatArray:
    """Return X_c' S X_c, (d, d)."""
    if is_sparse(X) and X.nnz < MIN_DENSITY * X.shape[0] * X.shape[1]:
        return _sparse_second_moments(X, share, x_mean)
    moments, step = np.zeros((X.shape[1], X.shape[1])), max(1, _BLOCK_ELEMENTS // X.shape[1])
    for start in range(0, X.shape[0], step):
        rows = slice(start, start + step)
        block = np.sqrt(share[rows, None]) * (to_dense_floats(X[rows]) - x_mean)
        moments += block.T @ block  # numpy computes half of a symmetric product
    return moments


def _sparse_second_moments(X: Any, share: FloatArray, x_mean: FloatArray) -> FloatArray:
    """Return X_c' S X_c as X' S X minus the product of the means.

    For nearly constant features, the difference would lose all digits and the matrix would not be positive
    semidefinite. They are centered first. There are few of them, because few of their entries are 0.
    """
    moments = (X.multiply(share[:, None]).tocsr().T @ X).toarray()
    covariance = np.asarray(moments - np.outer(x_mean, x_mean), dtype=np.float64)
    constant = np.flatnonzero(covariance.diagonal() < MIN_RELATIVE_VARIANCE * moments.diagonal())
    if constant.size:
        centered = to_dense_floats(X[:, constant]) - x_mean[constant]
        weighted = share[:, None] * centered
        products = np.asarray(X.T @ weighted)
        products[constant] = centered.T @ weighted
        covariance[:, constant], covariance[constant] = products, products.T
    return covariance


def _conjugate_gradients(
    X: Any, x_mean: FloatArray, t: FloatArray, share: FloatArray, l2: FloatArray, *, tolerance: float = 1e-6
) -> NDArray[np.float32]:
    """Return the solutions (L, d, q) of all labels; each l2 weight starts from the solution of the larger one.

    X is only used in products: no matrix of size (d, d) or (n, n) is computed.
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
    """Solve for every column of the right-hand side by conjugate gradients."""
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
