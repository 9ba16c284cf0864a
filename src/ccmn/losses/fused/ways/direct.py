"""Every pair, in registers: one kernel each way. For few columns nothing is quicker."""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses.fused.kernels import pairs
from ccmn.losses.fused.ways.batch import Batch, Behind
from ccmn.losses.fused.ways.launch import Launcher

_MOST_AT_ONCE = 64
_values = Launcher(pairs.pair_values, 1)
_gradient = Launcher(pairs.pair_gradient, 1)


class Direct:
    """O(q^2) a row."""

    def values(self, batch: Batch) -> tuple[Tensor, None]:
        """The loss of every row; nothing is kept."""
        block, blocks = _blocks(batch)
        rows = len(batch.outputs)
        parts = batch.floats(rows, blocks)
        _values((rows, blocks), (*batch.tensors, parts), batch.sizes, *batch.kind, block)
        return (parts.view(rows) if blocks == 1 else parts.sum(1)), None

    def gradient(self, batch: Batch, kept: Tensor | None, behind: Behind) -> Tensor:
        """The gradient in the type of the outputs."""
        block, blocks = _blocks(batch)
        out = torch.empty_like(batch.outputs)
        _gradient(
            (len(out), blocks),
            (*batch.tensors, behind.grad, out),
            (*batch.sizes, behind.share),
            *(*batch.kind, int(behind.by_row), block),
        )
        return out


def _blocks(batch: Batch) -> tuple[int, int]:
    """Columns of a program, a power of two, and how many programs there are to a row."""
    columns = batch.outputs.shape[1]
    block = min(_MOST_AT_ONCE, max(16, 1 << (columns - 1).bit_length()))
    return block, -(-columns // block)
