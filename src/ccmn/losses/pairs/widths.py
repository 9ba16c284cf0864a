"""Which Chebyshev series fits the rows at hand.

On a CPU the width of the widest row is simply read. On another device reading it would make every call wait for
the device, so there the series is chosen on the device among a few, and the host hears of the width later.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ccmn.losses.pairs.chebyshev import (
    LARGEST_ORDER,
    Expansion,
    derivative_matrix,
    expansion_for,
    kernel_coefficients,
    order_for,
    round_up_width,
)

SAFE_HALF_WIDTH = 32.0
"""Rows up to twice this wide (64) need no word from the device."""
_LADDER = (2.0, 4.0, 8.0, 16.0, SAFE_HALF_WIDTH, 64.0, 128.0, 256.0, 512.0, 1024.0)


def largest_half_width(scores: Tensor) -> Tensor:
    """Half the distance from the lowest to the highest score, of the widest row, on the scores' device."""
    low, high = torch.aminmax(scores, dim=-1)
    return (high - low).amax() / 2


def exact_expansion(surrogate: str, scores: Tensor, half_width: float) -> Expansion | None:
    """The series for rows of a known width, or None where too many terms would be needed."""
    if not half_width <= 1e4:  # NaN and infinite scores too: the double sum tells what comes of them
        return None
    half_width = round_up_width(half_width)
    order = order_for(half_width, scores.dtype)
    return expansion_for(surrogate, half_width, order, scores.device) if order <= LARGEST_ORDER else None


class _Ladder(NamedTuple):
    half_widths: Tensor
    coefficients: Tensor
    derivative: Tensor


@lru_cache(maxsize=16)
def _ladder(surrogate: str, dtype: torch.dtype, device: torch.device) -> _Ladder:
    """C for every width of the ladder, all cut or padded to the order that the safe width needs."""
    order = order_for(SAFE_HALF_WIDTH, dtype)
    stack = torch.zeros(len(_LADDER), order, order, dtype=torch.float64)
    for level, half_width in zip(stack, _LADDER):
        whole = kernel_coefficients(surrogate, half_width, min(order_for(half_width, dtype), 2 * LARGEST_ORDER))
        size = min(order, len(whole))
        level[:size, :size] = torch.from_numpy(whole[:size, :size])
    return _Ladder(
        torch.tensor(_LADDER, dtype=torch.float64, device=device),
        stack.to(device),
        torch.from_numpy(derivative_matrix(order)).to(device),
    )


def device_expansion(surrogate: str, scores: Tensor, half_width: Tensor) -> Expansion:
    """A series chosen on the device, without waiting for it.

    Exact to the usual tolerance up to ``SAFE_HALF_WIDTH``; beyond it digits are lost little by little (about 1e-3
    of the total weight at twice that width), until the watch below has told the host.
    """
    widths, coefficients, derivative = _ladder(surrogate, scores.dtype, scores.device)
    level = torch.searchsorted(widths, half_width.double().reshape(1)).clamp_max(len(_LADDER) - 1)
    # index_select takes a device index without a round trip to the host.
    C = coefficients.index_select(0, level).squeeze(0)
    w = torch.maximum(widths.index_select(0, level).squeeze(0), half_width.double())
    return Expansion(w, C, derivative)


class WidthWatch:
    """Hears of widths on a CUDA device without ever waiting for it.

    Each call leaves its width on the way to the host; the next call looks whether one has arrived. Once a width
    above the safe one has been seen, widths are read (and waited for) until they are safe again.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seen = torch.zeros((), dtype=torch.float64, pin_memory=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.wide = False

    def look(self) -> bool:
        """Has a width above the safe one been seen?"""
        if self._arrived.query():  # type: ignore[no-untyped-call]
            self.wide = not float(self._seen) <= SAFE_HALF_WIDTH
        return self.wide

    def leave(self, half_width: Tensor) -> None:
        """Send this call's width to the host."""
        self._seen.copy_(half_width, non_blocking=True)
        self._arrived.record(torch.cuda.current_stream(self._device))


@lru_cache(maxsize=16)
def watch_for(device: torch.device) -> WidthWatch:
    """The watch of a device."""
    return WidthWatch(device)
