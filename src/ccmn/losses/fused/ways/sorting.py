"""The hinge on many columns: torch sorts the rows, one kernel adds up prefixes, one finds every label's place in them.

The gradient falls off with the value and is kept, one number a score.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses.fused.kernels import hinge
from ccmn.losses.fused.ways.batch import Batch, Behind
from ccmn.losses.fused.ways.launch import Launcher

_STRIP = 2048
_BLOCK = 512
_SORTED_AT_ONCE = 1 << 21
"""Scores: sorting takes ten times their memory."""

_prefixes = Launcher(hinge.prefixes, 8)
_places = Launcher(hinge.places, 4)


class Sorting:
    """O(q log q) a row."""

    def values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of every row, and the gradient of each."""
        rows, columns = batch.outputs.shape
        parts, gradient = batch.floats(rows, -(-columns // _BLOCK)), batch.floats(rows, columns)
        some = max(1, _SORTED_AT_ONCE // columns)
        for first in range(0, rows, some):
            _sort_some(batch, first, min(some, rows - first), parts, gradient)
        return parts.sum(1), gradient

    def gradient(self, batch: Batch, kept: Tensor | None, behind: Behind) -> Tensor:
        """The gradient in the type of the outputs."""
        assert kept is not None
        factor = behind.grad * behind.share
        return (kept * (factor.unsqueeze(1) if behind.by_row else factor)).to(batch.outputs.dtype)


def _sort_some(batch: Batch, first: int, rows: int, parts: Tensor, gradient: Tensor) -> None:
    """Parts of the values, and the gradient, of some rows."""
    columns = batch.outputs.shape[1]
    scores, order = torch.sort(batch.outputs[first : first + rows].float(), dim=-1)
    given = (*batch.tensors, scores, order, batch.floats(2, rows, columns))
    numbers, constants = (*batch.sizes, first), batch.kind[1:]
    _prefixes((rows, 1), given, numbers, *constants, _STRIP)
    grid = rows, -(-columns // _BLOCK)
    _places(grid, (*given, parts, gradient), (*numbers, columns.bit_length()), *constants, _BLOCK)
