r"""Block minimisation for fPML: factors by a truncated decomposition, the classifier by ridge regression, in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray
from ccmn.baselines.decomposition import ShiftedGram
from ccmn.baselines.leading import Leading, make_leading
from ccmn.baselines.nonnegative import NonNegativeFactors

SMALLEST_DECREASE = 1e-13
"""Relative to the objective; W is then exact to about the root of it."""


class Weights(NamedTuple):
    """Of the features' factorisation, of the agreement of classifier and factors, and of the ridge."""

    lambda1: float
    lambda2: float
    lambda3: float


@dataclass(frozen=True)
class FPMLSolution:
    """Classifier W (d, q), confidences Z = S G (n, q), and the objective after every half round."""

    W: FloatArray
    Z: FloatArray
    objective: FloatArray
    n_iter: int
    converged: bool


def solve_fpml(
    X: Any,
    Y: FloatArray,
    rank: int,
    weights: Weights,
    *,
    svd: str = "auto",
    nonnegative: bool = False,
    max_iter: int = 500,
    random_state: RandomState = None,
) -> FPMLSolution:
    r"""From W = 0, each half round an exact minimum of its block.

    With :math:`T = (Y + \lambda_2 X W) / (1 + \lambda_2)` the factors minimise :math:`(1 + \lambda_2) \lVert T - S G
    \rVert^2 + \lambda_1 \lVert X - S F \rVert^2`, which the rank-k truncated decomposition of :math:`[\sqrt{1 +
    \lambda_2}\, T, \sqrt{\lambda_1} X]` does globally. W is ridge regression of S G on X with penalty
    :math:`\lambda_3 / \lambda_2`. With ``nonnegative`` the factors' half round is some multiplicative updates instead.
    """
    leading: Leading
    if nonnegative:
        leading = NonNegativeFactors(X, Y.shape[1], rank, weights.lambda1, as_generator(random_state))
    else:
        leading = make_leading(X, Y.shape[1], rank, weights.lambda1, svd, as_generator(random_state))
    gram = ShiftedGram(X) if weights.lambda2 else None
    W, XW = np.zeros((X.shape[1], Y.shape[1])), np.zeros_like(Y)
    objective: list[float] = []
    for iteration in range(1, max_iter + 1):
        Z, unexplained = _factors(leading, Y, XW, weights)
        objective.append(_objective(Y, Z, unexplained, XW, W, weights))
        if gram is not None:
            W = gram.solve(np.asarray(X.T @ Z).T, weights.lambda3 / weights.lambda2).T
            XW = np.asarray(X @ W)
        objective.append(_objective(Y, Z, unexplained, XW, W, weights))
        before = objective[-3] if iteration > 1 else np.inf
        if before - objective[-1] <= SMALLEST_DECREASE * abs(objective[-1]):
            return FPMLSolution(W, Z, np.array(objective), iteration, True)
    return FPMLSolution(W, Z, np.array(objective), max_iter, False)


def _factors(leading: Leading, Y: FloatArray, XW: FloatArray, weights: Weights) -> tuple[FloatArray, float]:
    """Z = S G, and what the factors leave of the features, ||X - S F||^2."""
    T = (Y + weights.lambda2 * XW) / (1 + weights.lambda2)
    return leading.project(T, 1 + weights.lambda2)


def _objective(
    Y: FloatArray, Z: FloatArray, unexplained: float, XW: FloatArray, W: FloatArray, weights: Weights
) -> float:
    return float(
        ((Y - Z) ** 2).sum()
        + weights.lambda1 * unexplained
        + weights.lambda2 * ((Z - XW) ** 2).sum()
        + weights.lambda3 * (W**2).sum()
    )
