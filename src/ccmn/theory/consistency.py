r"""Definition 1 as a number: is a surrogate consistent with a loss, at a given distribution of the label vector?

.. math:: \mathrm{gap}(p) = \inf_{f \notin A(p)} W(p, f) - \inf_{f \in A(p)} W(p, f)

with :math:`A(p)` the set of Bayes decisions. Consistency (Definition 1) is gap(p) > 0 for every p. A p with a negative
gap is a counterexample: every minimiser of W decides wrongly. At a gap of 0 some do. Theorem 1 says what a positive
gap is good for: a sequence with :math:`W(p, f_n) \to W^*(p)` is inside :math:`A(p)` once it is within the gap.

Both Bayes sets are cut out by comparisons, :math:`A(p) = \{f : B f > 0\}`: the rows of B read :math:`\pm f_j` for the
Hamming loss, and :math:`f_j - f_k` for the ranking loss, where k comes next below j by its marginal. So ``f`` is
outside as soon as one entry of ``B f`` is not positive, and in the coordinates ``z = B f`` each infimum is one over a
box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import Bounds, minimize
from torch import Tensor

from ccmn._random import RandomState, as_generator
from ccmn._registry import Catalogue
from ccmn._validation import FloatArray, check_no_tie
from ccmn.theory.conditional import (
    LabelDistribution,
    Phi,
    hamming_risk,
    hamming_surrogate_risk,
    ranking_risk,
    ranking_surrogate_risk,
)

BOX = 12.0
"""Minimisers are sought with every |z| <= BOX: that of a bounded phi runs off to infinity, where nothing changes any
more (for the sigmoid, phi(12) = 6e-6)."""


def _signs(marginals: Tensor) -> Tensor:
    return torch.diag(torch.where(marginals >= 0.5, 1.0, -1.0).double())


def _steps(marginals: Tensor) -> Tensor:
    return torch.eye(len(marginals), dtype=torch.float64)[marginals.argsort()].diff(dim=0)


@dataclass(frozen=True)
class TargetLoss:
    """A loss of section 4.1 with its surrogate and its Bayes decisions."""

    name: str
    risk: Callable[[LabelDistribution, Tensor], Tensor]
    surrogate_risk: Callable[[LabelDistribution, Tensor, Phi], Tensor]
    decisions: Callable[[int], Iterable[tuple[float, ...]]]
    """q -> score vectors, one for every decision that leaves no tie."""
    comparisons: Callable[[Tensor], Tensor]
    """Marginals -> B, of full row rank, with A(p) = {f : B f > 0}."""


TARGETS: Catalogue[TargetLoss] = Catalogue(
    "target loss",
    {
        target.name: target
        for target in (
            TargetLoss(
                name="hamming",
                risk=hamming_risk,
                surrogate_risk=hamming_surrogate_risk,
                decisions=lambda q: product((-1.0, 1.0), repeat=q),
                comparisons=_signs,
            ),
            TargetLoss(
                name="ranking",
                risk=ranking_risk,
                surrogate_risk=ranking_surrogate_risk,
                decisions=lambda q: permutations(map(float, range(q))),
                comparisons=_steps,
            ),
        )
    },
)


def bayes_risk(p: LabelDistribution, target: str) -> float:
    """The least conditional risk, over all decisions one by one.

    A ranking with ties costs the mean of its strict refinements, so strict ones are enough.

    >>> round(bayes_risk(LabelDistribution([0.1, 0.2, 0.3, 0.4]), "hamming"), 4)
    0.35
    """
    row = TARGETS[target]
    decisions = torch.tensor(list(row.decisions(p.q)), dtype=torch.float64)
    return float(row.risk(p, decisions).min())


def bayes_margin(p: LabelDistribution, target: str) -> float:
    r"""How clearly p prefers its Bayes decisions.

    .. math:: \min_j |\pi_j - \tfrac12| \text{ (Hamming)}, \qquad \min_{j \neq k} |\pi_j - \pi_k| \text{ (ranking)}

    At 0 two decisions tie; near 0 numbers cannot tell them apart, and checks should pass such a p over.

    >>> round(bayes_margin(LabelDistribution([0.1, 0.2, 0.3, 0.4]), "ranking"), 4)
    0.1
    """
    return float((TARGETS[target].comparisons(p.marginals) @ (p.marginals - 0.5)).min())


def in_bayes_set(p: LabelDistribution, scores: Tensor, target: str, tolerance: float = 1e-6) -> bool:
    """Is a score vector a Bayes decision, with every comparison right by more than a tolerance?

    Scores that should be apart and are nearer than the tolerance count as a tie, which is not a Bayes decision.

    >>> p = LabelDistribution([0.1, 0.2, 0.3, 0.4])
    >>> in_bayes_set(p, torch.tensor([0.3, 0.1]), "ranking"), in_bayes_set(p, torch.tensor([0.3, 0.3]), "ranking")
    (True, False)
    """
    return bool((_comparisons(p, target) @ scores.double() > tolerance).all())


class Minimum(NamedTuple):
    """Where the conditional surrogate risk is least, and how low it is there."""

    scores: Tensor
    value: float


def minimise_surrogate_risk(
    p: LabelDistribution, phi: Phi, target: str, *, starts: int = 4, random_state: RandomState = 0
) -> Minimum:
    r"""The minimiser of the conditional surrogate risk :math:`W(p, f)`, among bounded scores (see ``BOX``).

    Parameters
    ----------
    p : LabelDistribution
        Without a tie (see :func:`bayes_margin`).
    phi : callable
        On tensors; may be neither convex nor smooth.
    target : "hamming" or "ranking"
        For the ranking loss the scores returned have mean 0.
    starts : int
        How many random starting points; the best end counts.
    random_state : int, Generator or None

    Examples
    --------
    >>> p = LabelDistribution([0.1, 0.2, 0.3, 0.4])
    >>> minimise_surrogate_risk(p, lambda t: (1 - t) ** 2, "hamming").scores.round(decimals=4).tolist()
    [0.4, 0.2]
    """
    return _minimise(p, phi, target, -BOX, BOX, starts, as_generator(random_state))


def consistency_gap(
    p: LabelDistribution, phi: Phi, target: str, *, starts: int = 4, random_state: RandomState = 0
) -> float:
    r"""Definition 1 at one p: the least W outside the Bayes set minus the least W inside (see the head of this module).

    Parameters
    ----------
    p, phi, target, starts, random_state : see :func:`minimise_surrogate_risk`

    Returns
    -------
    float
        Positive: consistent at p. Negative: every minimiser of W is outside the Bayes set. 0: some minimiser is.

    Examples
    --------
    Labels {2, 3}, {1} and {1, 2} with probabilities .3, .4 and .3: label 1 is the likeliest, but square scores put
    label 2 first.

    >>> p = LabelDistribution([0, 0, 0, 0.3, 0.4, 0, 0.3, 0])
    >>> round(consistency_gap(p, lambda t: (1 - t) ** 2, "ranking"), 4)
    -0.0016
    >>> round(consistency_gap(p, lambda t: torch.sigmoid(-t), "ranking"), 4)
    0.05
    """
    rng = as_generator(random_state)
    z = np.arange(len(_comparisons(p, target)))
    inside = _minimise(p, phi, target, 0.0, BOX, starts, rng).value
    outside = [_minimise(p, phi, target, -BOX, np.where(z == i, 0.0, BOX), starts, rng).value for i in z]
    return min(outside) - inside


def _comparisons(p: LabelDistribution, target: str) -> Tensor:
    check_no_tie(bayes_margin(p, target), target)
    return TARGETS[target].comparisons(p.marginals)


def _minimise(
    p: LabelDistribution,
    phi: Phi,
    target: str,
    low: float,
    high: float | FloatArray,
    starts: int,
    rng: np.random.Generator,
) -> Minimum:
    """The least W(p, f) with low <= B f <= high."""
    scores_of = torch.linalg.pinv(_comparisons(p, target))
    surrogate_risk = TARGETS[target].surrogate_risk

    def W(z: Tensor) -> Tensor:
        return surrogate_risk(p, scores_of @ z, phi)

    def value(z: FloatArray) -> float:
        return float(W(torch.from_numpy(z)))

    def value_and_slope(z: FloatArray) -> tuple[float, FloatArray]:
        point = torch.from_numpy(z).requires_grad_()
        w = W(point)
        (slope,) = torch.autograd.grad(w, point)
        return float(w.detach()), slope.numpy()

    m = scores_of.shape[1]
    bounds = Bounds(np.broadcast_to(low, m), np.broadcast_to(high, m))
    ends = []
    for _ in range(starts):
        start = np.clip(rng.normal(size=m), low, high)
        near = minimize(value_and_slope, start, jac=True, bounds=bounds, method="L-BFGS-B", tol=1e-11)
        # A phi with a kink can stop L-BFGS short; the simplex method takes it the rest of the way.
        last = minimize(value, near.x, bounds=bounds, method="Nelder-Mead", tol=1e-9)
        ends += [near, last]
    best = min(ends, key=lambda end: end.fun)
    return Minimum(scores_of @ torch.from_numpy(best.x), float(best.fun))
