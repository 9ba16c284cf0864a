"""Surrogates: margin losses phi(t), with the properties that the theorems of the paper require.

At t = 1, where the hinge has no derivative, all formulas of this package use the slope 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from ccmn._registry import Registry


@dataclass(frozen=True)
class Surrogate:
    r"""Margin loss :math:`\phi(t)` with its properties, which the tests check for every member of ``SURROGATES``.

    >>> SURROGATES["hinge"](torch.tensor([-1.0, 0.0, 2.0]))
    tensor([2., 1., 0.])
    """

    name: str
    phi: Callable[[Tensor], Tensor]
    convex: bool = True
    bounded: bool = False
    """Lemmas 1 and 2 and the bounds of Theorems 2 and 4 require a bounded phi or bounded scores."""
    symmetric: bool = False
    """Whether phi(t) + phi(-t) = 2 phi(0) for all t. Theorem 5 requires it."""
    lipschitz: float = 1.0
    """Smallest Lipschitz constant, or infinity."""
    hamming_consistent: bool = True
    """A convex phi with phi'(0) < 0 is (Theorem 3); so is the sigmoid, which is not convex."""
    ranking_consistent: bool = False
    """Theorem 5: differentiable, non-increasing, phi'(0) < 0 and symmetric."""

    def __call__(self, t: Tensor) -> Tensor:
        """Return phi(t)."""
        return self.phi(t)

    def __reduce__(self) -> Any:
        """Return the constructor arguments for pickle: members are constants of this module."""
        return resolve_surrogate, (self.name,)

    @cached_property
    def at_zero(self) -> float:
        """Value phi(0)."""
        return float(self.phi(torch.zeros((), dtype=torch.float64)))


_SIGMOID = {"convex": False, "bounded": True, "symmetric": True, "lipschitz": 0.25, "ranking_consistent": True}
SURROGATES: Registry[Surrogate] = Registry(
    "surrogate",
    {
        "square": Surrogate("square", lambda t: (1 - t).square(), lipschitz=math.inf),
        "hinge": Surrogate("hinge", lambda t: relu(1 - t)),  # unlike clamp_min, relu has the slope 0 at 0
        "sigmoid": Surrogate("sigmoid", lambda t: torch.sigmoid(-t), **_SIGMOID),  # type: ignore[arg-type]
        "logistic": Surrogate("logistic", lambda t: softplus(-t)),
    },
)

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
