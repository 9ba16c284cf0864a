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
    r"""Margin loss :math:`\phi(t)` with its properties.

    The tests check every property numerically, for every member of ``SURROGATES``.

    Parameters
    ----------
    name : str
        Name in ``SURROGATES``.
    phi : callable
        Function phi(t) on tensors.
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
    >>> SURROGATES["hinge"](torch.tensor([-1.0, 0.0, 2.0]))
    tensor([2., 1., 0.])
    """

    name: str
    phi: Callable[[Tensor], Tensor]
    convex: bool
    bounded: bool
    symmetric: bool
    lipschitz: float
    hamming_consistent: bool
    ranking_consistent: bool

    def __call__(self, t: Tensor) -> Tensor:
        """Return phi(t)."""
        return self.phi(t)

    def __reduce__(self) -> tuple[Callable[[str], Surrogate], tuple[str]]:
        """Return the constructor arguments for pickle: members are constants of this module."""
        return _by_name, (self.name,)

    @cached_property
    def at_zero(self) -> float:
        """Value phi(0)."""
        return float(self.phi(torch.zeros((), dtype=torch.float64)))


SURROGATES: Registry[Surrogate] = Registry(
    "surrogate",
    {
        surrogate.name: surrogate
        for surrogate in (
            Surrogate(
                name="square",
                phi=lambda t: (1 - t).square(),
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


SurrogateLike = str | Callable[[Tensor], Tensor]


def resolve_surrogate(surrogate: SurrogateLike) -> Callable[[Tensor], Tensor]:
    """Return the member of ``SURROGATES`` for a name, or a callable phi unchanged."""
    if isinstance(surrogate, str):
        return SURROGATES[surrogate]
    if not callable(surrogate):
        raise TypeError(
            f"surrogate must be one of {', '.join(SURROGATES)}, or a callable phi(t) on tensors; "
            f"got {type(surrogate).__name__}"
        )
    return surrogate
