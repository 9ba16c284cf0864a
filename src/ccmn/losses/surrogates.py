"""The surrogates phi, one row each, with the properties the theorems ask of them.

At its kink (t = 1) the hinge takes the slope of its flat side, in every formula of this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ccmn._registry import Registry

TwoSided = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Surrogate:
    r"""A margin loss :math:`\phi(t)`, what is known of it, and how its sums over pairs become fast.

    The statements below are checked numerically in the tests, for every row of ``SURROGATES``.
    """

    name: str
    phi: Callable[[Tensor], Tensor]
    fill: Callable[[Tensor, Tensor, Tensor, Tensor], None]
    """(minus_t, weights, phi, slope): writes weights * phi(t) and weights * phi'(t) into the last two, taking no other
    memory; ``minus_t`` is used up."""
    two_sided: TwoSided
    """(f, pos, neg) -> pos phi(f) + neg phi(-f), in its cheapest form."""
    two_sided_slope: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """(f, pos, neg) -> the same and its derivative by f, what they share worked out once."""
    pair_method: str
    """Which fast pair sum applies: "moments", "sorted" or "chebyshev" (see ``losses/pairs``)."""
    convex: bool
    bounded: bool
    """Lemmas 1 and 2 and the bounds of Theorems 2 and 4 ask for a bounded phi (or bounded scores)."""
    symmetric: bool
    """phi(t) + phi(-t) = 2 phi(0) for all t: asked for by Theorem 5, and then no weight need be negative."""
    lipschitz: float
    """The smallest Lipschitz constant of phi; infinite when there is none."""
    hamming_consistent: bool
    """Theorem 3: convex with phi'(0) < 0 is enough; the sigmoid is consistent without being convex."""
    ranking_consistent: bool
    """Theorem 5: differentiable, non-increasing, phi'(0) < 0 and symmetric."""

    def __reduce__(self) -> tuple[Callable[[str], Surrogate], tuple[str]]:
        return _by_name, (self.name,)

    def slope(self, t: Tensor) -> Tensor:
        """phi'(t)."""
        phi, slope = torch.empty_like(t), torch.empty_like(t)
        self.fill(-t, torch.ones_like(t), phi, slope)
        return slope

    @cached_property
    def at_zero(self) -> float:
        """phi(0)."""
        return float(self.phi(torch.zeros((), dtype=torch.float64)))

    @cached_property
    def slope_at_zero(self) -> float:
        """phi'(0)."""
        return float(self.slope(torch.zeros((), dtype=torch.float64)))


def _fill_square(minus_t: Tensor, weights: Tensor, phi: Tensor, slope: Tensor) -> None:
    u = minus_t.add_(1)
    torch.mul(weights, u, out=slope)
    torch.mul(slope, u, out=phi)
    slope.mul_(-2)


def _fill_hinge(minus_t: Tensor, weights: Tensor, phi: Tensor, slope: Tensor) -> None:
    u = minus_t.add_(1).clamp_min_(0)
    torch.mul(weights, u, out=phi)
    torch.mul(weights, u.sign_(), out=slope).neg_()


def _fill_sigmoid(minus_t: Tensor, weights: Tensor, phi: Tensor, slope: Tensor) -> None:
    value = minus_t.sigmoid_()
    torch.mul(weights, value, out=phi)
    torch.addcmul(phi, phi, value, value=-1, out=slope).neg_()


def _fill_logistic(minus_t: Tensor, weights: Tensor, phi: Tensor, slope: Tensor) -> None:
    torch.logaddexp(minus_t, minus_t.new_zeros(()), out=phi).mul_(weights)
    torch.mul(weights, minus_t.sigmoid_(), out=slope).neg_()


def _square_and_slope(f: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    both, difference = pos + neg, pos - neg
    half_slope = torch.addcmul(-difference, both, f)
    return torch.addcmul(both, half_slope - difference, f), half_slope.mul_(2)


def _hinge_and_slope(f: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    # Over the sides that count, pos (1 - f) + neg (1 + f) = pos + neg + f (neg - pos). Comparisons go into numbers:
    # on a CPU those are vectorised, booleans are not.
    pos = pos * torch.lt(f, 1, out=torch.empty_like(f))
    neg = neg * torch.gt(f, -1, out=torch.empty_like(f))
    slope = neg - pos
    return torch.addcmul(pos + neg, slope, f), slope


def _sigmoid_and_slope(f: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.sigmoid(f)
    weighted = (neg - pos) * value
    return pos + weighted, torch.addcmul(weighted, weighted, value, value=-1)


def _logistic_and_slope(f: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    both = pos + neg
    return both * softplus(f) - pos * f, both * torch.sigmoid(f) - pos


SURROGATES: Registry[Surrogate] = Registry(
    "surrogate",
    {
        surrogate.name: surrogate
        for surrogate in (
            Surrogate(
                name="square",
                phi=lambda t: (1 - t).square(),
                fill=_fill_square,
                two_sided=lambda f, pos, neg: (pos + neg) * (1 + f.square()) - 2 * (pos - neg) * f,
                two_sided_slope=_square_and_slope,
                pair_method="moments",
                convex=True,
                bounded=False,
                symmetric=False,
                lipschitz=math.inf,
                hamming_consistent=True,
                ranking_consistent=False,
            ),
            Surrogate(
                name="hinge",
                phi=lambda t: (1 - t).clamp_min(0),
                fill=_fill_hinge,
                two_sided=lambda f, pos, neg: pos * (1 - f).clamp_min(0) + neg * (1 + f).clamp_min(0),
                two_sided_slope=_hinge_and_slope,
                pair_method="sorted",
                convex=True,
                bounded=False,
                symmetric=False,
                lipschitz=1.0,
                hamming_consistent=True,
                ranking_consistent=False,
            ),
            Surrogate(
                name="sigmoid",
                phi=lambda t: torch.sigmoid(-t),
                fill=_fill_sigmoid,
                two_sided=lambda f, pos, neg: pos + (neg - pos) * torch.sigmoid(f),
                two_sided_slope=_sigmoid_and_slope,
                pair_method="chebyshev",
                convex=False,
                bounded=True,
                symmetric=True,
                lipschitz=0.25,
                hamming_consistent=True,
                ranking_consistent=True,
            ),
            Surrogate(
                name="logistic",
                phi=lambda t: softplus(-t),
                fill=_fill_logistic,
                # Not pos softplus(-f) + neg softplus(f): one softplus, and convex in f for every real pos, neg >= -pos.
                two_sided=lambda f, pos, neg: (pos + neg) * softplus(f) - pos * f,
                two_sided_slope=_logistic_and_slope,
                pair_method="chebyshev",
                convex=True,
                bounded=False,
                symmetric=False,
                lipschitz=1.0,
                hamming_consistent=True,
                ranking_consistent=False,
            ),
        )
    },
)


def _by_name(name: str) -> Surrogate:
    """How a row is pickled: it is a constant of this module."""
    return SURROGATES[name]


SurrogateLike = str | Callable[[Tensor], Tensor] | Surrogate


def resolve_surrogate(surrogate: SurrogateLike) -> Surrogate | Callable[[Tensor], Tensor]:
    """A row of ``SURROGATES`` by name, or the user's own callable phi as it is."""
    if isinstance(surrogate, (Surrogate, str)):
        return surrogate if isinstance(surrogate, Surrogate) else SURROGATES[surrogate]
    if not callable(surrogate):
        raise TypeError(
            f"surrogate must be one of {', '.join(SURROGATES)} or a callable phi(t) on tensors; "
            f"got {type(surrogate).__name__}"
        )
    return surrogate


def phi_of(surrogate: Surrogate | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function phi itself."""
    return surrogate.phi if isinstance(surrogate, Surrogate) else surrogate
