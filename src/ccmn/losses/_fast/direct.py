"""Double sums over all label pairs by differentiable operations, for callables and second derivatives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

MAX_PAIRS_WITHOUT_TILES = 1 << 18
"""For batches with at most this number of pairs, the definition is compiled, or used for callables."""
_MAX_BLOCK_PAIRS = 1 << 22
"""Number of pairs in memory at once in ``blocked_pair_sum``."""


class PairSums(NamedTuple):
    r"""Value :math:`L = \sum_{j \ne k} p_j n_k \phi(f_j - f_k)` of every row, and its derivatives."""

    value: Tensor
    """L, shape (rows,)."""
    by_scores: Tensor | None
    """dL/df, shape (rows, q)."""
    by_pos: Tensor | None
    """dL/dp_j = sum over k != j of n_k phi(f_j - f_k), shape (rows, q)."""
    by_neg: Tensor | None
    """dL/dn_k = sum over j != k of p_j phi(f_j - f_k), shape (rows, q)."""


class Needs(NamedTuple):
    """Derivatives to compute."""

    by_scores: bool
    by_weights: bool


def joined(parts: list[PairSums]) -> PairSums:
    """Return the pair sums of consecutive runs of rows as one."""
    if len(parts) == 1:
        return parts[0]
    value, *others = ([t for t in tensors if t is not None] for tensors in zip(*parts))
    return PairSums(torch.cat(value), *(torch.cat(tensors) if tensors else None for tensors in others))


_thread_memory = threading.local()


def workspace(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of ``size`` values that the next call in this thread overwrites.

    New memory costs more than the arithmetic on it, because each page causes a page fault. The workspace is kept on
    a CPU only; the allocators of accelerators cache memory.
    """
    if device.type != "cpu":
        return torch.empty(size, dtype=dtype, device=device)
    buffers: dict[torch.dtype, Tensor] = _thread_memory.__dict__.setdefault("buffers", {})
    if dtype not in buffers or buffers[dtype].numel() < size:
        # An inference tensor could not be written to during training.
        with torch.inference_mode(False):
            buffers[dtype] = torch.empty(size, dtype=dtype, device="cpu")
    return buffers[dtype][:size]


def blocked_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the pair sum of each row for any phi, by differentiable operations.

    The backward pass recomputes the blocks, so memory stays O(q). The parameters of a learned phi get gradients.
    """
    rows, q = scores.shape
    size = max(1, _MAX_BLOCK_PAIRS // max(1, rows * q))
    if size >= q:
        return pair_block(scores, pos, neg, phi, 0, q)
    total = scores.new_zeros(rows)
    for start in range(0, q, size):
        part = checkpoint(pair_block, scores, pos, neg, phi, start, min(start + size, q), use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    return total


def pair_block(
    scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor], start: int, stop: int
) -> Tensor:
    """Return the part of the sum with positive labels j in [start, stop)."""
    values = phi(scores[:, start:stop, None] - scores[:, None, :])
    labels = torch.arange(scores.shape[1], device=scores.device)
    # p_j n_j is 0 for 0/1 labels, but not for debiased labels, so j = k is excluded explicitly.
    values = values.masked_fill(labels[start:stop, None] == labels, 0)
    return (pos[:, start:stop] * (values * neg[:, None, :]).sum(-1)).sum(-1)
