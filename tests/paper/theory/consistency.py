r"""Numerical checks of Definition 1: the consistency of a surrogate with a loss for a given label distribution.

Consistency means that

.. math:: \mathrm{gap}(p) = \inf_{f \notin A(p)} W(p, f) - \inf_{f \in A(p)} W(p, f)

is positive for every p, where W is the conditional surrogate risk and :math:`A(p)` the set of Bayes decisions. A p with
a negative gap is a counterexample: every minimizer of W decides wrongly. For a gap of 0 some do. Theorem 1 uses a
positive gap: a sequence with :math:`W(p, f_n) \to W^*(p)` is in :math:`A(p)` as soon as it is within the gap.

Both Bayes sets are defined by comparisons, :math:`A(p) = \{f : B f > 0\}`. The rows of B are :math:`\pm f_j` for the
Hamming loss, and :math:`f_j - f_k` for the ranking loss, where k has the next smaller marginal (:math:`P(y_j = 1, y_k =
0) - P(y_j = 0, y_k = 1) = \pi_j - \pi_k`). In the coordinates ``z = B f`` each infimum is taken over a box.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import Bounds, minimize
from torch import Tensor

Phi = Callable[[Tensor], Tensor]

BOX = 12.0
"""Minimizers are searched with every |z| <= BOX. That of a bounded phi is at infinity, where phi is constant (for the
sigmoid, phi(12) = 6e-6)."""


class LabelDistribution:
    """Probabilities of all 2^q label vectors in the order of binary numbers: 00, 01, 10, 11 for q = 2."""

    def __init__(self, p) -> None:
        self.p = torch.as_tensor(np.asarray(p, dtype=np.float64))
        self.q = len(self.p).bit_length() - 1
        assert len(self.p) == 2**self.q
        assert abs(float(self.p.sum()) - 1) < 1e-9

    @cached_property
    def vectors(self) -> Tensor:
        """Label vectors, (2^q, q), in the order of ``p``."""
        return torch.tensor(list(product((0.0, 1.0), repeat=self.q)), dtype=torch.float64)

    @cached_property
    def marginals(self) -> Tensor:
        """P(y_j = 1), (q,)."""
        return self.p @ self.vectors

    @cached_property
    def pairs(self) -> Tensor:
        """P(y_j = 1, y_k = 0), (q, q), called Delta_{k,j} in the paper."""
        return (self.p[:, None] * self.vectors).T @ (1 - self.vectors)

    def __repr__(self) -> str:
        return f"LabelDistribution({[round(x, 4) for x in self.p.tolist()]})"


# -- Conditional risks


def hamming_risk(p: LabelDistribution, scores: Tensor) -> Tensor:
    """Return the conditional risk of the Hamming loss, Eq. (1), for each score vector."""
    return torch.where(scores >= 0, 1 - p.marginals, p.marginals).mean(-1)


def ranking_risk(p: LabelDistribution, scores: Tensor) -> Tensor:
    """Return the conditional risk of the ranking loss, Eq. (2), for each score vector; a tie counts 1/2."""
    differences = _differences(scores)
    reversed_pairs = (differences < 0).double() + (differences == 0).double() / 2
    return (p.pairs * reversed_pairs).sum((-2, -1))


def hamming_surrogate_risk(p: LabelDistribution, scores: Tensor, phi: Phi) -> Tensor:
    """Return W(p, f) of Eq. (3) for each score vector; by Lemma 1 also that of Eq. (4) for any noise (Theorem 3)."""
    return (p.marginals * phi(scores) + (1 - p.marginals) * phi(-scores)).sum(-1)


def ranking_surrogate_risk(p: LabelDistribution, scores: Tensor, phi: Phi) -> Tensor:
    """Return W(p, f) of Eq. (5) for each score vector; by Lemma 2 also that of Eq. (6) for any noise (Theorem 5)."""
    return (p.pairs * phi(_differences(scores))).sum((-2, -1))


def _differences(values: Tensor) -> Tensor:
    """Return v_j - v_k, (..., q, q)."""
    return values[..., :, None] - values[..., None, :]


# -- Bayes decisions


@dataclass(frozen=True)
class TargetLoss:
    """Loss with its surrogate and its Bayes decisions."""

    risk: Callable[[LabelDistribution, Tensor], Tensor]
    surrogate_risk: Callable[[LabelDistribution, Tensor, Phi], Tensor]
    decisions: Callable[[int], Iterable[tuple[float, ...]]]
    """q -> score vectors, one for every decision without ties."""
    comparisons: Callable[[Tensor], Tensor]
    """Marginals -> B, of full row rank, with A(p) = {f : B f > 0}."""


TARGETS = {
    "hamming": TargetLoss(
        risk=hamming_risk,
        surrogate_risk=hamming_surrogate_risk,
        decisions=lambda q: product((-1.0, 1.0), repeat=q),
        comparisons=lambda marginals: torch.diag(torch.where(marginals >= 0.5, 1.0, -1.0).double()),
    ),
    "ranking": TargetLoss(
        risk=ranking_risk,
        surrogate_risk=ranking_surrogate_risk,
        decisions=lambda q: permutations(map(float, range(q))),
        comparisons=lambda marginals: torch.eye(len(marginals), dtype=torch.float64)[marginals.argsort()].diff(dim=0),
    ),
}


def bayes_risk(p: LabelDistribution, target: str) -> float:
    """Return the smallest conditional risk; a ranking with ties has the mean risk of its strict refinements."""
    decisions = torch.tensor(list(TARGETS[target].decisions(p.q)), dtype=torch.float64)
    return float(TARGETS[target].risk(p, decisions).min())


def bayes_margin(p: LabelDistribution, target: str) -> float:
    r"""Return :math:`\min_j |\pi_j - \tfrac12|` (Hamming) or :math:`\min_{j \neq k} |\pi_j - \pi_k|` (ranking)."""
    return float((TARGETS[target].comparisons(p.marginals) @ (p.marginals - 0.5)).min())


def in_bayes_set(p: LabelDistribution, scores: Tensor, target: str, tolerance: float = 1e-6) -> bool:
    """Return whether a score vector is a Bayes decision, with every comparison right by more than a tolerance."""
    return bool((_comparisons(p, target) @ scores.double() > tolerance).all())


def _comparisons(p: LabelDistribution, target: str) -> Tensor:
    if bayes_margin(p, target) < 1e-9:
        raise ValueError(f"the Bayes decision of {p} is not unique")
    return TARGETS[target].comparisons(p.marginals)


# -- Minimizers and the gap of Definition 1


class Minimum(NamedTuple):
    """Minimizer and minimum of the conditional surrogate risk."""

    scores: Tensor
    value: float


def minimize_surrogate_risk(
    p: LabelDistribution, phi: Phi, target: str, *, starts: int = 4, random_state: int = 0
) -> Minimum:
    """Return the minimizer of W(p, f) among bounded scores; for the ranking loss they have mean 0.

    ``phi`` may be neither convex nor smooth; the best of several random starting points counts.
    """
    return _minimize(p, phi, target, -BOX, BOX, starts, np.random.default_rng(random_state))


def consistency_gap(p: LabelDistribution, phi: Phi, target: str, *, starts: int = 4, random_state: int = 0) -> float:
    """Return the gap of Definition 1: the infimum of W outside the Bayes set minus the infimum inside."""
    rng = np.random.default_rng(random_state)
    z = np.arange(len(_comparisons(p, target)))
    inside = _minimize(p, phi, target, 0.0, BOX, starts, rng).value
    outside = [_minimize(p, phi, target, -BOX, np.where(z == i, 0.0, BOX), starts, rng).value for i in z]
    return min(outside) - inside


def _minimize(p: LabelDistribution, phi: Phi, target: str, low, high, starts: int, rng) -> Minimum:
    """Return the minimum of W(p, f) subject to low <= B f <= high."""
    scores_of = torch.linalg.pinv(_comparisons(p, target))
    surrogate_risk = TARGETS[target].surrogate_risk

    def value(z) -> float:
        return float(surrogate_risk(p, scores_of @ torch.from_numpy(z), phi))

    def value_and_slope(z):
        point = torch.from_numpy(z).requires_grad_()
        w = surrogate_risk(p, scores_of @ point, phi)
        (slope,) = torch.autograd.grad(w, point)
        return float(w.detach()), slope.numpy()

    m = scores_of.shape[1]
    bounds = Bounds(np.broadcast_to(low, m), np.broadcast_to(high, m))
    ends = []
    for _ in range(starts):
        start = np.clip(rng.normal(size=m), low, high)
        near = minimize(value_and_slope, start, jac=True, bounds=bounds, method="L-BFGS-B", tol=1e-11)
        # L-BFGS may stop early at a kink of phi; the simplex method continues from there.
        last = minimize(value, near.x, bounds=bounds, method="Nelder-Mead", tol=1e-9)
        ends += [near, last]
    best = min(ends, key=lambda end: end.fun)
    return Minimum(scores_of @ torch.from_numpy(best.x), float(best.fun))
