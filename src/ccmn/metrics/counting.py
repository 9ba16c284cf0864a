"""Ranks of few labels by counting, pair by pair, on a CPU: label by label, so that operations run along many rows."""

from __future__ import annotations

import torch
from torch import Tensor

FEW_LABELS = 32
"""Up to so many labels are compared pair by pair: sorting many short rows is slow."""
HIT = 64
"""What a true label adds to a count that holds two at once; more than there are labels to count."""
_PAIRS_AT_ONCE = 1 << 17
"""Pairs that are compared at a time: they stay in a CPU's cache."""


def pairs_in_cache(f: Tensor) -> Tensor:
    """Room for ``sum_not_below`` to compare some labels of f (q, ...) with all."""
    some = max(1, min(len(f), _PAIRS_AT_ONCE // max(1, f.numel())))
    return f.new_empty(some, *f.shape)


def sum_not_below(f: Tensor, weights: Tensor, room: Tensor, out: Tensor) -> Tensor:
    """The sum of the weights w_k over all k with f_k >= f_j, for every j: (q, ...) and (q, ...) to (q, ...)."""
    some = len(room)
    for start in range(0, len(f), some):
        part = f[start : start + some]
        # Comparisons into floating numbers are vectorised, into booleans they are not.
        not_below = torch.ge(f, part.unsqueeze(1), out=room[: len(part)])
        torch.sum(not_below.mul_(weights), 1, out=out[start : start + some])
    return out
