r"""Linear model, logistic surrogate, Hamming loss: a convex problem for every label, solved by L-BFGS along an l2 path.

With debiased targets p (any real number) the loss of a label is convex, since p stands beside a linear term only:

.. math:: \frac1n \sum_i \log(1 + e^{f_i}) - p_i f_i + \frac\lambda2 \lVert w \rVert^2, \qquad
          f_i = b + (x_i - \bar x) w

Its Hessian is at most :math:`\frac14 \cdot \frac1n X_c^\top X_c + \lambda I`. In the eigenbasis of that matrix, scaled
by its root, the problem is round, and L-BFGS needs few steps; one decomposition serves every l2 and every label.

The mean of p can leave (0, 1), and then nothing would hold the bias, which is not penalised: it is kept to what n rows
can tell, :math:`|b| \le \log 2n`.
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
from ccmn.training.ridge import LARGEST_DECOMPOSITION

_MOST_MADE_DENSE = 256 << 20
"""Bytes that a sparse matrix may take in the basis, where it is dense."""


def can_decompose(X: Any) -> bool:
    """Are rows or features few enough for a dense decomposition, and a sparse X small enough for dense rows in it?"""
    n, d = (int(size) for size in X.shape)
    if not is_sparse(X):
        return min(n, d) <= LARGEST_DECOMPOSITION
    return d <= LARGEST_DECOMPOSITION and 4 * n * min(n, d) <= _MOST_MADE_DENSE


class LogisticPath:
    """Solutions for one l2 after another, each starting where the last ended.

    Parameters
    ----------
    X : dense or CSR (n, d), for which ``can_decompose`` holds
    targets : debiased labels p (n, q), none of them NaN
    sample_weight : (n,), optional
    """

    def __init__(self, X: Any, targets: FloatArray, sample_weight: FloatArray | None = None) -> None:
        n, q = targets.shape
        share = np.full(n, 1.0) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        share = share / share.sum()
        self.x_mean = np.asarray(share @ X, dtype=np.float64).ravel()
        mean = share @ targets
        basis, values = _decompose(X, self.x_mean, share)
        kept = values > 1e-9 * values.max()
        # Through rows the vectors come out unnormalised.
        self.basis, self._values = basis[:, kept] / np.linalg.norm(basis[:, kept], axis=0), values[kept]
        self._X, self._p, self._share = self.inside(X), _float32(targets), _float32(share).unsqueeze(1)
        self._most = np.log(2 * n)
        likely = np.clip(mean, 1 / (2 * n), 1 - 1 / (2 * n))
        self.weights, self.bias = np.zeros((self.basis.shape[1], q)), np.log(likely / (1 - likely))

    def inside(self, X: Any) -> Tensor:
        """Rows in the basis, centred."""
        return _float32(np.asarray(X @ self.basis) - self.x_mean @ self.basis)

    def degrees_of_freedom(self, l2: float) -> float:
        """How many directions of the features this l2 lets the solution use, by the bound of the curvature."""
        return float((self._values / (self._values + 4 * l2)).sum())

    def solve(self, l2: float, labels: NDArray[np.intp], *, tolerance: float = 1e-4) -> None:
        """Move the weights and biases of some labels to their solution at this l2."""
        scale = np.append(1 / np.sqrt(self._values / 4 + l2), 2.0)[:, None]
        p = self._p[:, labels]

        def objective(flat: FloatArray) -> tuple[float, FloatArray]:
            solution = flat.reshape(-1, len(labels)) * scale
            value, gradient = self._loss(solution, p, l2)
            return value, (gradient * scale).ravel()

        start = np.vstack((self.weights[:, labels], self.bias[labels])) / scale
        most = np.full(start.shape, np.inf)
        most[-1] = self._most / 2
        found = scipy.optimize.minimize(
            objective,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=scipy.optimize.Bounds(-most.ravel(), most.ravel()),
            options={"maxiter": 200, "gtol": tolerance, "ftol": tolerance**2},
        )
        solution = found.x.reshape(start.shape) * scale
        self.weights[:, labels], self.bias[labels] = solution[:-1], solution[-1]

    def _loss(self, solution: FloatArray, p: Tensor, l2: float) -> tuple[float, FloatArray]:
        """The objective summed over labels, and its gradient by weights and bias (the last row)."""
        f = torch.addmm(_float32(solution[-1]), self._X, _float32(solution[:-1]))
        losses = torch.nn.functional.softplus(f).addcmul_(p, f, value=-1).mul_(self._share)
        residual = f.sigmoid_().sub_(p).mul_(self._share)
        gradient = np.vstack((self._X.T @ residual, residual.sum(0))).astype(np.float64)
        gradient[:-1] += l2 * solution[:-1]
        return float(losses.sum(dtype=torch.float64)) + l2 / 2 * float(np.square(solution[:-1]).sum()), gradient

    def scores(self, inside: Tensor, labels: NDArray[np.intp]) -> NDArray[np.float32]:
        """Scores of some labels for rows in the basis."""
        return torch.addmm(_float32(self.bias[labels]), inside, _float32(self.weights[:, labels])).numpy()


def _float32(values: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _decompose(X: Any, x_mean: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One eigendecomposition of the smaller Gram matrix: (basis, values)."""
    n, d = X.shape
    X = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
    if d <= n:
        weighted = X.multiply(share[:, None]).tocsr() if is_sparse(X) else X * share[:, None]
        values, vectors = _eigen(to_dense_floats(weighted.T @ X) - np.outer(x_mean, x_mean))
        return vectors, values
    # Few rows, many features: the same through rows. X has at most LARGEST_DECOMPOSITION of them here.
    root = np.sqrt(share)
    through_mean = np.asarray(X @ x_mean).ravel()
    gram = to_dense_floats(X @ X.T) - through_mean[:, None] - through_mean[None, :] + x_mean @ x_mean
    values, vectors = _eigen(root[:, None] * gram * root)
    dual = root[:, None] * vectors
    return np.asarray(X.T @ dual) - np.outer(x_mean, dual.sum(0)), values


def _eigen(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and vectors; which driver is faster depends on the size (measured on two cores)."""
    driver: Literal["evd", "evr"] = "evd" if len(gram) < 600 else "evr"
    values, vectors = scipy.linalg.eigh(gram, overwrite_a=True, driver=driver, check_finite=False)
    return np.maximum(values, 0), vectors
