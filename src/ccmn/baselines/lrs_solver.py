r"""Alternating directions for PML-LRS: two blocks, so that it converges for any fixed penalty :math:`\mu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccmn._validation import FloatArray
from ccmn.baselines.decomposition import ShiftedGram
from ccmn.baselines.proximal import shrink_tall, soft_threshold

RELAXATION = 1.6
"""How far past the first block the second starts; anything between 0 and 2 converges, 1 takes half as long again."""


@dataclass(frozen=True)
class LRSSolution:
    """The map W (d, q), the true labels U and the noise V (n, q), and whether the stopping rule fired."""

    W: FloatArray
    U: FloatArray
    V: FloatArray
    n_iter: int
    converged: bool


def solve_lrs(
    X: Any,
    Y: FloatArray,
    gamma: float,
    beta: float,
    eta: float,
    *,
    mu: float = 1.0,
    tolerance: float = 1e-6,
    max_iter: int = 2000,
) -> LRSSolution:
    r"""Blocks (U, W) and (V, K = U, J = W) in turn, with scaled duals; one decomposition of X for all iterations.

    The first block is linear: with :math:`R = \mu (Y - V + A) + \mu (K - B)` and :math:`m = 1 + 2 \mu`, W solves
    :math:`(\tfrac{2\mu}{m} X^\top X + \mu I) W = \mu (J - C) + X^\top R / m`, and :math:`U = (R + X W) / m`. The
    second is one proximal step each, over-relaxed.
    """
    share = 2 * mu / (1 + 2 * mu)
    solve = ShiftedGram(X).solver(mu / share)
    V, A, B = (np.zeros_like(Y) for _ in range(3))
    K = Y
    J = C = np.zeros((X.shape[1], Y.shape[1]))
    for iteration in range(1, max_iter + 1):
        R = mu * (Y - V + A) + mu * (K - B)
        right = mu * (J - C) + np.asarray(X.T @ R) / (1 + 2 * mu)
        W = solve(right.T).T / share
        U = (R + np.asarray(X @ W)) / (1 + 2 * mu)
        before = V, K, J
        ahead = [RELAXATION * new + (1 - RELAXATION) * old for new, old in zip((Y - U, U, W), before)]
        V = soft_threshold(ahead[0] + A, beta / mu)
        K = shrink_tall(ahead[1] + B, gamma / mu)
        J = shrink_tall(ahead[2] + C, eta / mu)
        A, B, C = A + ahead[0] - V, B + ahead[1] - K, C + ahead[2] - J
        residuals = Y - U - V, U - K, W - J
        changes = V - before[0], K - before[1], J - before[2]
        largest = max(_largest(residuals), mu * _largest(changes))
        if largest < tolerance:
            return LRSSolution(J, K, Y - K, iteration, True)
    return LRSSolution(J, K, Y - K, max_iter, False)


def lrs_objective(X: Any, U: FloatArray, V: FloatArray, W: FloatArray, gamma: float, beta: float, eta: float) -> float:
    r""":math:`\tfrac12 \lVert U - X W \rVert_F^2 + \gamma \lVert U \rVert_* + \beta \lVert V \rVert_1 + \eta \lVert W
    \rVert_*`."""
    fit = ((U - np.asarray(X @ W)) ** 2).sum() / 2
    return float(
        fit
        + gamma * np.linalg.svd(U, compute_uv=False).sum()
        + beta * np.abs(V).sum()
        + eta * np.linalg.svd(W, compute_uv=False).sum()
    )


def _largest(matrices: tuple[FloatArray, ...]) -> float:
    return max(float(np.abs(matrix).max(initial=0.0)) for matrix in matrices)
