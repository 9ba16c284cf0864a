"""Chebyshev moments: ends of the rows, moments, and their combination; then one kernel that writes the gradient.

Between them nothing is kept but a line of coefficients a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses.fused.kernels import series
from ccmn.losses.fused.ladder import LEVELS, ladder_for
from ccmn.losses.fused.ways.batch import Batch, Behind
from ccmn.losses.fused.ways.launch import Launcher

_BLOCK = 1024
"""Columns of a program. Of the moments' it is one warp: a moment is 32 sums in a thread, then one across the warp."""
_PIECE = 4096
"""Columns whose ends one program finds."""
_ALONE = 8192
"""Rows of up to so many columns are one piece, whose ends every program of the moments finds by itself."""
_INNER = 64
"""Columns whose pairs are in registers at once, where a row is too wide for any series."""

_extents = Launcher(series.extents, 4)
_moments = Launcher(series.moments, 1)
_combine = Launcher(series.combine, 8)
_gradient = Launcher(series.gradient, 4)


class Moments:
    """O(q M) a row, M terms as the width of the row asks for."""

    def values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of every row, and the lines from which the gradient is made."""
        rows, columns = batch.outputs.shape
        block = _block(columns)
        alone, may_miss = int(columns <= _ALONE), int(batch.labels.dtype.is_floating_point)
        blocks, pieces = -(-columns // block), 1 if alone else -(-columns // _PIECE)
        pieces_above = 1 << (pieces - 1).bit_length()
        ladder = ladder_for(batch.surrogate.name, batch.outputs.device)
        slot, line = 1 + 2 * ladder.largest_order, series.HEAD + 2 * ladder.largest_order
        room = batch.floats(rows, 2 * pieces + (blocks + 1) * slot)
        lines, values = batch.floats(rows, line), batch.floats(rows)
        if not alone:
            constants = slot, int(batch.dummy), may_miss, _PIECE
            _extents((rows, pieces), (*batch[:2], room), (*batch.sizes, blocks), *constants)
        _moments(
            (rows, blocks),
            (*batch.tensors, ladder.widths, ladder.orders, room),
            (*batch.sizes, pieces),
            *(slot, pieces_above, LEVELS, *batch.kind, block, min(_INNER, block), alone, may_miss),
        )
        _combine(
            (rows, 1),
            (*ladder[:4], room, lines, values),
            (blocks, pieces, batch.surrogate.at_zero),
            *(slot, line, series.HEAD, pieces_above, LEVELS, min(64, 1 << (blocks - 1).bit_length())),
        )
        return values, lines

    def gradient(self, batch: Batch, kept: Tensor | None, behind: Behind) -> Tensor:
        """The gradient in the type of the outputs."""
        assert kept is not None
        out = torch.empty_like(batch.outputs)
        rows, columns = out.shape
        block = _block(columns)
        _gradient(
            (rows, -(-columns // block)),
            (*batch.tensors, kept, behind.grad, out),
            (*batch.sizes, behind.share),
            *(kept.shape[1], series.HEAD, *batch.kind, int(behind.by_row), block, min(_INNER, block)),
        )
        return out


def _block(columns: int) -> int:
    return min(_BLOCK, max(16, 1 << (columns - 1).bit_length()))
