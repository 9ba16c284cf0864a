"""Surrogates: margin losses phi(t), with the properties that the theorems of the paper require.

At t = 1, where the hinge has no derivative, all formulas of this package use the slope 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from ccmn._registry import Registry


@dataclass(frozen=True)
class Surrogate:
    r"""Margin loss :math:`\phi(t)` with its properties and its fast forms.

    The tests check every property numerically, for every member of ``SURROGATES``.

    Parameters
    ----------
    name : str
        Name in ``SURROGATES``.
    phi : callable
        Function phi(t) on tensors.
    fill : callable
        ``fill(minus_t, weights, phi, slope)`` writes weights * phi(t) and weights * phi'(t) into the last two
        arguments. It allocates no memory and overwrites ``minus_t``.
    two_sided : callable
        ``two_sided(f, pos, neg)`` returns pos phi(f) + neg phi(-f) in its cheapest form.
    two_sided_slope : callable
        ``two_sided_slope(f, pos, neg)`` returns the value of ``two_sided`` and its derivative with respect to f.
    pair_method : {"moments", "sorted", "chebyshev"}
        Fast algorithm for sums over label pairs, see :mod:`ccmn.losses._fast.pair_sum`.
    convex : bool
        Whether phi is convex.
    bounded : bool
        Whether phi is bounded. Lemmas 1 and 2 and the bounds of Theorems 2 and 4 require a bounded phi or bounded
        scores.
    symmetric : bool
        Whether phi(t) + phi(-t) = 2 phi(0) for all t. Theorem 5 requires it.
    lipschitz : float
        Smallest Lipschitz constant of phi, or infinity.
    hamming_consistent : bool
        Whether phi is consistent for the Hamming loss. A convex phi with phi'(0) < 0 is (Theorem 3); so is the
        sigmoid, which is not convex.
    ranking_consistent : bool
        Whether phi is consistent for the ranking loss (Theorem 5: differentiable, non-increasing, phi'(0) < 0 and
        symmetric).

    Examples
    --------
    >>> SURROGATES["hinge"].phi(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([2., 1., 0.])
    """

    name: str
    phi: Callable[[Tensor], Tensor]
    fill: Callable[[Tensor, Tensor, Tensor, Tensor], None]
    two_sided: Callable[[Tensor, Tensor, Tensor], Tensor]
    two_sided_slope: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    pair_method: str
    convex: bool
    bounded: bool
    symmetric: bool
    lipschitz: float
    hamming_consistent: bool
    ranking_consistent: bool

    def __reduce__(self) -> tuple[Callable[[str], Surrogate], tuple[str]]:
        """Return the constructor arguments for pickle: members are constants of this module."""
        return _by_name, (self.name,)

    def slope(self, t: Tensor) -> Tensor:
        """Return phi'(t).

        Parameters
        ----------
        t : Tensor
            Margins.

        Returns
        -------
        Tensor
            Derivatives, in the shape of ``t``.
        """
        phi, slope = torch.empty_like(t), torch.empty_like(t)
        self.fill(-t, torch.ones_like(t), phi, slope)
        return slope

    @cached_property
    def at_zero(self) -> float:
        """Value phi(0)."""
        return float(self.phi(torch.zeros((), dtype=torch.float64)))


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
    # With the weights of inactive terms set to 0, the value is pos + neg + f (neg - pos). Comparisons are written as
    # floating-point numbers, because these operations are vectorized on a CPU and boolean ones are not.
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
                phi=lambda t: relu(1 - t),  # unlike clamp_min, relu has the slope 0 at 0
                fill=_fill_hinge,
                two_sided=lambda f, pos, neg: pos * relu(1 - f) + neg * relu(1 + f),
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
                # One softplus instead of two; convex in f whenever pos + neg >= 0.
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
    """Return the surrogate of this name, for unpickling."""
    return SURROGATES[name]


SurrogateLike = str | Callable[[Tensor], Tensor] | Surrogate


def resolve_surrogate(surrogate: SurrogateLike) -> Surrogate | Callable[[Tensor], Tensor]:
    """Return the member of ``SURROGATES`` for a name, or a callable phi unchanged."""
    if isinstance(surrogate, (Surrogate, str)):
        return surrogate if isinstance(surrogate, Surrogate) else SURROGATES[surrogate]
    if not callable(surrogate):
        raise TypeError(
            f"surrogate must be one of {', '.join(SURROGATES)}, or a callable phi(t) on tensors; "
            f"got {type(surrogate).__name__}"
        )
    return surrogate


def phi_of(surrogate: Surrogate | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the function phi of a surrogate or callable."""
    return surrogate.phi if isinstance(surrogate, Surrogate) else surrogate
