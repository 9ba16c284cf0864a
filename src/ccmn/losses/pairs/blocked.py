"""The double sum itself, block by block, differentiable as often as phi is: O(q^2) time, O(q) memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_MOST_AT_ONCE = 1 << 22
"""Pairs in memory at once."""


def blocked_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """The pair sum of each row for any phi, by ordinary differentiable operations.

    Blocks of labels are recomputed in the backward pass instead of being kept, so memory stays O(q); gradients
    reach the parameters of a learned phi, too.
    """
    rows, q = scores.shape
    size = max(1, _MOST_AT_ONCE // max(1, rows * q))
    if size >= q:
        return _block(scores, pos, neg, phi, 0, q)
    total = scores.new_zeros(rows)
    for start in range(0, q, size):
        part = checkpoint(_block, scores, pos, neg, phi, start, min(start + size, q), use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    return total


def _block(scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor], start: int, stop: int) -> Tensor:
    """The part of the sum whose positive label j is in [start, stop)."""
    values = phi(scores[:, start:stop, None] - scores[:, None, :])
    labels = torch.arange(scores.shape[1], device=scores.device)
    # p_j n_j is 0 for true labels but not for debiased ones: j = k is left out by hand.
    values = values.masked_fill(labels[start:stop, None] == labels, 0)
    return (pos[:, start:stop] * (values * neg[:, None, :]).sum(-1)).sum(-1)
