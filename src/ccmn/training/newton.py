r"""Logistic regression on real-valued targets: Newton steps along a path of l2 weights, for many labels at once.

With debiased targets p (any real numbers), the loss of a label is convex, because p occurs only in a linear term:

.. math:: \frac1n \sum_i \log(1 + e^{f_i}) - p_i f_i + \frac\lambda2 \lVert w \rVert^2, \qquad f_i = b + x_i w

Each Newton direction is computed by preconditioned conjugate gradients, as in [1]_. All labels share every product with
the features, dense or sparse, and each has its own step sizes. For one label at a time, ``scipy.optimize`` would do the
same; 20 labels of sparse text take it ten times as long.

The bias is not penalized. It diverges for a constant label, and can diverge for debiased ones. The bias of these labels
is bounded by :math:`|b| \le \log 2n`, the log-odds of a frequency of :math:`1 / 2n`. The bias of other labels has no
bound: if the features separate the label, weights and bias are large.

References
----------
.. [1] C.-J. Lin, R. C. Weng and S. S. Keerthi, "Trust Region Newton Method for Large-Scale Logistic Regression",
   JMLR 9, 2008.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray

MAX_NEWTON_STEPS = 30
"""Largest number of Newton steps for one l2 weight."""
MAX_CG_STEPS = 20
"""Largest number of steps of conjugate gradients for one Newton step."""
MAX_CG_RESIDUAL = 0.1
"""Conjugate gradients end when the residual has decreased by this factor."""
MAX_GRADIENT: dict[type, float] = {np.float32: 1e-4, np.float64: 1e-10}
"""Newton steps end when the largest entry of the scaled gradient is below this value."""
MAX_HALVINGS = 15
"""Largest number of halvings of a Newton step."""
MIN_DECREASE = 1e-4
"""Share of the decrease predicted by the gradient that a step must achieve."""
ROUNDING_ERROR = 1e-7
"""Increase of the objective that may be a rounding error of float32."""


class LogisticPath:
    """Solutions for one l2 weight after another, each starting from the previous one.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Features.
    targets : array of shape (n, q)
        Debiased labels; NaN where not observed.
    weights : array of shape (n, 1) or (n, q), optional
        Weights of rows, or of single labels of rows.
    dtype : type, default=np.float32
        Type of the features and scores.

    Attributes
    ----------
    weights : array of shape (d, q)
        Present solution.
    bias : array of shape (q,)
        Present biases for centered features. Sparse features are not centered.
    """

    def __init__(
        self, X: Any, targets: FloatArray, weights: FloatArray | None = None, dtype: type[np.floating[Any]] = np.float32
    ) -> None:
        n, q = targets.shape
        self._dtype = dtype
        observed = ~np.isnan(targets)
        share = np.ones((n, 1)) if weights is None else np.asarray(weights, dtype=np.float64)
        rows = share.mean(1) / share.mean(1).sum()
        share = share * observed if not observed.all() else share
        # Rows with a weight of 0 do not count; integer weights count as repeated rows.
        n_rows = max(1.0, float(np.maximum(np.count_nonzero(share, 0), share.sum(0)).min()))
        share = share / np.maximum(share.sum(0), np.finfo(np.float64).tiny)
        p = np.where(observed, targets, 0.0)
        self.x_mean = np.zeros(X.shape[1]) if is_sparse(X) else np.asarray(rows @ X, dtype=np.float64)
        self._X = self.centered(X)
        squares = self._X.multiply(self._X) if is_sparse(X) else np.square(self._X)
        self._values = np.asarray(rows @ squares, dtype=np.float64).ravel()
        self._p, self._share = self._tensor(p), self._tensor(share)
        mean, rarest = (share * p).sum(0), 1 / (2 * n_rows)
        is_bounded = (mean <= rarest) | (mean >= 1 - rarest) | (p.min(0) < 0) | (p.max(0) > 1)
        self._max_bias = np.where(is_bounded, np.log(2 * n_rows), np.inf)
        frequency = np.clip(mean, rarest, 1 - rarest)
        self.weights, self.bias = np.zeros((X.shape[1], q)), np.log(frequency / (1 - frequency))

    def centered(self, X: Any) -> Any:
        """Return rows as an array of centered rows, or as a CSR matrix."""
        if is_sparse(X):
            return X.astype(self._dtype).tocsr()
        return np.ascontiguousarray(X - self.x_mean, dtype=self._dtype)

    def _tensor(self, values: Any) -> Tensor:
        """Return an array as a contiguous tensor."""
        return torch.from_numpy(np.ascontiguousarray(values, dtype=self._dtype))

    def start_from(self, weights: FloatArray, bias: FloatArray) -> None:
        """Set the present solution to weights (d, q) and biases of uncentered features."""
        self.weights = weights.copy()
        self.bias = np.clip(bias + self.x_mean @ weights, -self._max_bias, self._max_bias)

    def solution(self) -> tuple[FloatArray, FloatArray]:
        """Return weights (d, q) and biases of uncentered features."""
        return self.weights, self.bias - self.x_mean @ self.weights

    def degrees_of_freedom(self, l2: float) -> float:
        """Return the effective degrees of freedom of ridge regression on uncorrelated features of these variances."""
        return float((self._values / (self._values + 4 * l2)).sum())

    def solve(self, l2: float, labels: NDArray[np.intp], *, tolerance: float | None = None) -> None:
        """Replace the weights and biases of some labels by their solution for an l2 weight."""
        if tolerance is None:
            tolerance = MAX_GRADIENT[self._dtype]
        solution = np.vstack((self.weights[:, labels], self.bias[labels]))
        # Preconditioner: a bound of the curvature of every coordinate.
        bound = np.append(self._values / 4 + l2, 0.25)[:, None]
        remaining = np.arange(len(labels))
        f = self._products(self._X, solution)
        for _ in range(MAX_NEWTON_STEPS):
            columns = labels[remaining]
            max_bias = self._max_bias[columns]
            p, share = self._p[:, columns], self._share if self._share.shape[1] == 1 else self._share[:, columns]
            current = solution[:, remaining]
            probability = torch.sigmoid(f)
            gradient = self._transposed(share * (probability - p))
            gradient[:-1] += l2 * current[:-1]
            # A bias at its limit that would move farther stays there.
            fixed = (np.abs(current[-1]) >= max_bias) & (gradient[-1] * current[-1] < 0)
            gradient[-1, fixed] = 0
            kept = np.abs(gradient / np.sqrt(bound)).max(0) > tolerance
            if not kept.any():
                break
            if not kept.all():
                remaining, f, probability, p = remaining[kept], f[:, kept], probability[:, kept], p[:, kept]
                share = share if share.shape[1] == 1 else share[:, kept]
                current, gradient, fixed = current[:, kept], gradient[:, kept], fixed[kept]
            curvature = share * probability * (1 - probability)
            direction = self._newton_direction(gradient, curvature, l2, bound, fixed)
            change = self._products(self._X, direction)
            step = _step_sizes(f, change, p, share, current, direction, (gradient * direction).sum(0), l2)
            solution[:, remaining] = current + step * direction
            max_bias = self._max_bias[labels[remaining]]
            solution[-1, remaining] = np.clip(solution[-1, remaining], -max_bias, max_bias)
            f = f + self._tensor(step) * change
        self.weights[:, labels], self.bias[labels] = solution[:-1], solution[-1]

    def _newton_direction(
        self, gradient: FloatArray, curvature: Tensor, l2: float, bound: FloatArray, fixed: NDArray[np.bool_]
    ) -> FloatArray:
        """Solve (Hessian) d = -gradient for every label by preconditioned conjugate gradients."""
        direction = np.zeros_like(gradient)
        residual = -gradient
        scaled = residual / bound
        search, square = scaled.copy(), (residual * scaled).sum(0)
        goal = MAX_CG_RESIDUAL**2 * square
        for _ in range(MAX_CG_STEPS):
            if (square <= goal).all():
                break
            image = self._transposed(curvature * self._products(self._X, search))
            image[:-1] += l2 * search[:-1]
            image[-1, fixed] = 0
            length = square / np.maximum((search * image).sum(0), np.finfo(np.float64).tiny)
            direction += length * search
            residual -= length * image
            scaled = residual / bound
            new_square = (residual * scaled).sum(0)
            search = scaled + new_square / np.maximum(square, np.finfo(np.float64).tiny) * search
            square = new_square
        return direction

    def scores(self, rows: Any, labels: NDArray[np.intp]) -> NDArray[Any]:
        """Return the scores of some labels for rows from :meth:`centered`."""
        return self._products(rows, np.vstack((self.weights[:, labels], self.bias[labels]))).numpy()

    def _products(self, X: Any, solution: FloatArray) -> Tensor:
        """Return X @ weights + bias; the bias is the last row of the solution."""
        # Products of numpy use one thread for small problems (limit_threads); those of torch would use all threads.
        return torch.from_numpy(X @ solution[:-1].astype(self._dtype)).add_(self._tensor(solution[-1]))

    def _transposed(self, values: Tensor) -> FloatArray:
        """Return X' values (d, m) and the sums of the values as the last row."""
        product = self._X.T @ values.numpy()
        return np.vstack((product, values.sum(0, dtype=torch.float64).numpy()[None])).astype(np.float64)


def _step_sizes(
    f: Tensor,
    change: Tensor,
    p: Tensor,
    share: Tensor,
    solution: FloatArray,
    direction: FloatArray,
    slope: FloatArray,
    l2: float,
) -> FloatArray:
    """Return for every label the largest step 1, 1/2, 1/4, ... that decreases its objective enough."""
    products = (solution[:-1] * direction[:-1]).sum(0), np.square(direction[:-1]).sum(0)
    linear = (share * (p * change)).sum(0, dtype=torch.float64).numpy()
    start = (share * torch.nn.functional.softplus(f)).sum(0, dtype=torch.float64).numpy()
    step = np.ones(f.shape[1])
    for _ in range(MAX_HALVINGS):
        moved = torch.nn.functional.softplus(f + torch.from_numpy(step).to(f) * change)
        value = (share * moved).sum(0, dtype=torch.float64).numpy() - start - step * linear
        value += l2 * (step * products[0] + step**2 / 2 * products[1])
        too_long = value > MIN_DECREASE * step * slope + ROUNDING_ERROR
        if not too_long.any():
            break
        step[too_long] /= 2
    return step


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
