"""The series that fused kernels choose from, each row its own, without a word from the host."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ccmn.losses.pairs.chebyshev import derivative_matrix, kernel_coefficients, order_for

LEVELS = 32
"""A power of two, since a kernel looks at all of them at once."""
_STEP = {"square": 2.0, "sigmoid": 2.0**0.2, "logistic": 2.0**0.2}
"""From one half width to the next, beginning with 1: the series end at 73, the square's three terms at 2^31."""


class Ladder(NamedTuple):
    """Half widths w, orders M, and the matrices of all levels one behind the other, on a device."""

    widths: Tensor
    """float32 (LEVELS,), ascending."""
    orders: Tensor
    """int32 (LEVELS,), even."""
    starts: Tensor
    """int32 (LEVELS,): how many M^2 come before."""
    matrices: Tensor
    """float64: C, then C'D / w, then C D / w of every level: P C N is the value, N C'D / w and P C D / w the series of
    the gradient along p and along n."""
    largest_order: int


@lru_cache(maxsize=16)
def ladder_for(surrogate: str, device: torch.device) -> Ladder:
    """The ladder of a surrogate on a device; made once."""
    widths = (_STEP[surrogate] ** np.arange(LEVELS)).astype(np.float32)
    orders = [_even(3 if surrogate == "square" else order_for(float(w), torch.float32)) for w in widths]
    matrices = np.concatenate([_matrices(surrogate, float(w), order) for w, order in zip(widths, orders)])
    starts = np.cumsum([0, *(order**2 for order in orders[:-1])])
    return Ladder(
        torch.from_numpy(widths).to(device),
        torch.tensor(orders, dtype=torch.int32, device=device),
        torch.tensor(starts, dtype=torch.int32, device=device),
        torch.from_numpy(matrices).to(device),
        max(orders),
    )


def _even(order: int) -> int:
    """Kernels take two terms at a time."""
    return order + order % 2


def _matrices(surrogate: str, half_width: float, order: int) -> np.ndarray:
    C, D = kernel_coefficients(surrogate, half_width, order), derivative_matrix(order)
    return np.concatenate([m.ravel() for m in (C, C.T @ D / half_width, C @ D / half_width)])
