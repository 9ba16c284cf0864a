r"""Two ways to the optimum of PML-NI: the released program's augmented Lagrangian, and proximal gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccmn._registry import Catalogue
from ccmn._validation import FloatArray
from ccmn.baselines.decomposition import ShiftedGram, dense
from ccmn.baselines.proximal import shrink_singular_values, soft_threshold


class NIProblem:
    r""":math:`\tfrac12 \lVert Y - \Phi W^\top \rVert^2 + \tfrac\lambda2 \lVert W \rVert^2 + \beta \lVert U \rVert_* +
    \gamma \lVert V \rVert_1` with W = U + V, all of shape (q, D); rows enter only through two products."""

    def __init__(self, Phi: Any, Y: FloatArray, lam: float, beta: float, gamma: float) -> None:
        self.A = dense((Phi.T @ Y).T)
        self.B = ShiftedGram(Phi)
        self.lam, self.beta, self.gamma = lam, beta, gamma
        self.square = float((Y**2).sum())

    def gradient(self, W: FloatArray) -> FloatArray:
        r"""Of the smooth part, :math:`W B + \lambda W - A`."""
        return self._times_gram(W) + self.lam * W - self.A

    def objective(self, U: FloatArray, V: FloatArray) -> float:
        W = U + V
        fit = self.square / 2 - (self.A * W).sum() + (self._times_gram(W) * W).sum() / 2
        penalty = np.linalg.svd(U, compute_uv=False).sum() * self.beta if U.any() else 0.0
        # An infinite gamma is allowed: its V is zero.
        penalty += self.gamma * np.abs(V).sum() if V.any() else 0.0
        return float(fit + self.lam / 2 * (W**2).sum() + penalty)

    def _times_gram(self, W: FloatArray) -> FloatArray:
        return np.asarray(((W @ self.B.vectors) * self.B.values) @ self.B.vectors.T)


@dataclass(frozen=True)
class NISolution:
    """The two parts, and whether the stopping rule fired."""

    U: FloatArray
    V: FloatArray
    n_iter: int
    converged: bool


def augmented_lagrangian(problem: NIProblem, max_iter: int) -> NISolution:
    r"""The released program: its steps in its order, with one decomposition for all its linear systems.

    The penalty :math:`\mu` starts at 1e-4, so U = V = 0 for some sixty iterations while it grows by 10 % each; the dual
    step uses the :math:`\mu` of the NEXT iteration. The objective is not monotone on the way.
    """
    U, V, dual = (np.zeros_like(problem.A) for _ in range(3))
    mu, growth, largest = 1e-4, 1.1, 1e10
    for iteration in range(1, max_iter + 1):
        W = problem.B.solve(problem.A + mu * (U + V) + dual, problem.lam + mu)
        before = U
        U = shrink_singular_values(W - V - dual / mu, problem.beta / mu)
        V = soft_threshold(W - U - dual / mu, problem.gamma / mu)
        size = float(np.linalg.norm(W))
        moved, apart = mu * float(np.linalg.norm(U - before)), float(np.linalg.norm(W - U - V))
        # W = 0 (no candidate at all) is solved by zeros: 0/0 counts as 0.
        still, joined = (moved < 1e-5 * size, apart < 1e-7 * size) if size else (True, True)
        if still:
            mu = min(growth * mu, largest)
        dual = dual + mu * (U + V - W)
        if still and joined:
            return NISolution(U, V, iteration, True)
    return NISolution(U, V, max_iter, False)


def proximal_gradient(
    problem: NIProblem, max_iter: int, *, accelerate: bool = True, tolerance: float = 1e-10
) -> NISolution:
    r"""Proximal gradient on (U, V) together, step 1/L with :math:`L = 2 (\lVert B \rVert_2 + \lambda)`.

    Accelerated with a restart whenever the momentum points uphill; without acceleration the objective never rises. It
    stops when the step, times L, is below ``tolerance`` times the norm of :math:`Y^\top \Phi`.
    """
    L = 2 * (problem.B.largest + problem.lam) or 1.0
    goal = tolerance * float(np.linalg.norm(problem.A))
    U, V = np.zeros_like(problem.A), np.zeros_like(problem.A)
    U_ahead, V_ahead, t = U, V, 1.0
    for iteration in range(1, max_iter + 1):
        gradient = problem.gradient(U_ahead + V_ahead)
        U_new = shrink_singular_values(U_ahead - gradient / L, problem.beta / L)
        V_new = soft_threshold(V_ahead - gradient / L, problem.gamma / L)
        step = L * float(np.sqrt(((U_new - U_ahead) ** 2).sum() + ((V_new - V_ahead) ** 2).sum()))
        uphill = ((U_ahead - U_new) * (U_new - U)).sum() + ((V_ahead - V_new) * (V_new - V)).sum() > 0
        t_new = (1 + np.sqrt(1 + 4 * t * t)) / 2 if accelerate and not uphill else 1.0
        momentum = (t - 1) / t_new if accelerate and not uphill else 0.0
        U_ahead, V_ahead = U_new + momentum * (U_new - U), V_new + momentum * (V_new - V)
        U, V, t = U_new, V_new, t_new
        if step <= goal:
            return NISolution(U, V, iteration, True)
    return NISolution(U, V, max_iter, False)


SOLVERS: Catalogue[Callable[[NIProblem, int], NISolution]] = Catalogue(
    "solver", {"alm": augmented_lagrangian, "proximal": proximal_gradient}
)
