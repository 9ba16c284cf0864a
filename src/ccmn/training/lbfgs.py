r"""L-BFGS along a path of l2 weights: linear model, logistic surrogate, Hamming loss.

With debiased targets p (any real numbers), the loss of a label is convex, because p occurs only in a linear term:

.. math:: \frac1n \sum_i \log(1 + e^{f_i}) - p_i f_i + \frac\lambda2 \lVert w \rVert^2, \qquad
          f_i = b + (x_i - \bar x) w

Its Hessian is at most :math:`\frac14 \cdot \frac1n X_c^\top X_c + \lambda I`. In the eigenbasis of that matrix, scaled
by its square root, the problem is well conditioned and L-BFGS needs few steps. One decomposition serves every l2 weight
and every label.

The mean of p can lie outside (0, 1). The bias, which is not penalized, would then diverge; it is bounded by
:math:`|b| \le \log 2n`, the log-odds of a frequency of :math:`1 / 2n`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.linalg
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn._containers import is_sparse, to_dense_floats
from ccmn._validation import FloatArray
from ccmn.training.ridge import MAX_DECOMPOSITION_SIZE

MAX_DENSE_BYTES = 256 << 20
"""Maximum size of a sparse matrix in the eigenbasis, where it is dense."""


def can_decompose(X: Any) -> bool:
    """Return whether X is small enough for a dense decomposition and for dense rows in the eigenbasis."""
    n, d = (int(size) for size in X.shape)
    if not is_sparse(X):
        return min(n, d) <= MAX_DECOMPOSITION_SIZE
    return d <= MAX_DECOMPOSITION_SIZE and 4 * n * min(n, d) <= MAX_DENSE_BYTES


class LogisticPath:
    """Solutions for one l2 weight after another, each starting from the previous one.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Features, for which :func:`can_decompose` is true.
    targets : array of shape (n, q)
        Debiased labels without NaN.
    sample_weight : array of shape (n,), optional
        Sample weights.

    Attributes
    ----------
    weights : array of shape (r, q)
        Present solution in the eigenbasis of r directions.
    bias : array of shape (q,)
        Present biases for centered features.
    """

    def __init__(self, X: Any, targets: FloatArray, sample_weight: FloatArray | None = None) -> None:
        n, q = targets.shape
        share = np.full(n, 1.0) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        share = share / share.sum()
        self.x_mean = np.asarray(share @ X, dtype=np.float64).ravel()
        mean = share @ targets
        basis, values = _decompose(X, self.x_mean, share)
        kept = values > 1e-9 * values.max()
        # The vectors that are computed from the rows are not normalized.
        self.basis, self._values = basis[:, kept] / np.linalg.norm(basis[:, kept], axis=0), values[kept]
        self._X, self._p, self._share = self.rotate(X), _float32(targets), _float32(share).unsqueeze(1)
        n_rows = np.count_nonzero(share)  # rows with a weight of 0 do not count
        self._max_bias = np.log(2 * n_rows)
        frequency = np.clip(mean, 1 / (2 * n_rows), 1 - 1 / (2 * n_rows))
        self.weights, self.bias = np.zeros((self.basis.shape[1], q)), np.log(frequency / (1 - frequency))

    def rotate(self, X: Any) -> Tensor:
        """Return centered rows in the eigenbasis."""
        return _float32(np.asarray(X @ self.basis) - self.x_mean @ self.basis)

    def degrees_of_freedom(self, l2: float) -> float:
        """Return the effective degrees of freedom of ridge regression with this bound of the curvature."""
        return float((self._values / (self._values + 4 * l2)).sum())

    def solve(self, l2: float, labels: NDArray[np.intp], *, tolerance: float = 1e-4) -> None:
        """Replace the weights and biases of some labels by their solution for an l2 weight."""
        scale = np.append(1 / np.sqrt(self._values / 4 + l2), 2.0)[:, None]
        p = self._p[:, labels]

        def objective(flat: FloatArray) -> tuple[float, FloatArray]:
            solution = flat.reshape(-1, len(labels)) * scale
            value, gradient = self._loss(solution, p, l2)
            return value, (gradient * scale).ravel()

        start = np.vstack((self.weights[:, labels], self.bias[labels])) / scale
        bound = np.full(start.shape, np.inf)
        bound[-1] = self._max_bias / 2
        optimum = scipy.optimize.minimize(
            objective,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=scipy.optimize.Bounds(-bound.ravel(), bound.ravel()),
            options={"maxiter": 200, "gtol": tolerance, "ftol": tolerance**2},
        )
        solution = optimum.x.reshape(start.shape) * scale
        self.weights[:, labels], self.bias[labels] = solution[:-1], solution[-1]

    def _loss(self, solution: FloatArray, p: Tensor, l2: float) -> tuple[float, FloatArray]:
        """Return the objective summed over labels and its gradient; the last row belongs to the bias."""
        f = torch.addmm(_float32(solution[-1]), self._X, _float32(solution[:-1]))
        losses = torch.nn.functional.softplus(f).addcmul_(p, f, value=-1).mul_(self._share)
        residual = f.sigmoid_().sub_(p).mul_(self._share)
        gradient = np.vstack((self._X.T @ residual, residual.sum(0))).astype(np.float64)
        gradient[:-1] += l2 * solution[:-1]
        return float(losses.sum(dtype=torch.float64)) + l2 / 2 * float(np.square(solution[:-1]).sum()), gradient

    def scores(self, rotated: Tensor, labels: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the scores of some labels for rows in the eigenbasis."""
        return torch.addmm(_float32(self.bias[labels]), rotated, _float32(self.weights[:, labels])).numpy()


def _float32(values: Any) -> Tensor:
    """Return an array as a contiguous float32 tensor."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _decompose(X: Any, x_mean: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvectors (d, r) and eigenvalues of the covariance matrix, from the smaller Gram matrix."""
    n, d = X.shape
    X = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
    if d <= n:
        weighted = X.multiply(share[:, None]).tocsr() if is_sparse(X) else X * share[:, None]
        values, vectors = _eigen(to_dense_floats(weighted.T @ X) - np.outer(x_mean, x_mean))
        return vectors, values
    # Few rows, many features: the decomposition of the (n, n) matrix has the same eigenvalues.
    root = np.sqrt(share)
    by_mean = np.asarray(X @ x_mean).ravel()
    gram = to_dense_floats(X @ X.T) - by_mean[:, None] - by_mean[None, :] + x_mean @ x_mean
    values, vectors = _eigen(root[:, None] * gram * root)
    dual = root[:, None] * vectors
    return np.asarray(X.T @ dual) - np.outer(x_mean, dual.sum(0)), values


def _eigen(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues and eigenvectors; the faster LAPACK driver depends on the size (measured on two cores)."""
    driver: Literal["evd", "evr"] = "evd" if len(gram) < 600 else "evr"
    values, vectors = scipy.linalg.eigh(gram, overwrite_a=True, driver=driver, check_finite=False)
    return np.maximum(values, 0), vectors
