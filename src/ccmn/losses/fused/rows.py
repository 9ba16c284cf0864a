"""The ranking loss by fused kernels. Imported on CUDA devices with Triton only.

Forward: extents of the rows, moments, and their combination; backward: one kernel that writes the gradient in the type
of the outputs. Between them nothing is kept but a line of coefficients a row. Few columns, and the hinge, need one
kernel each way, which looks at all pairs in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ccmn.losses.fused.kernels import pairs, series
from ccmn.losses.fused.ladder import LEVELS, ladder_for
from ccmn.losses.fused.launch import Launcher
from ccmn.losses.surrogates import Surrogate

_BLOCK = 1024
"""Columns of a program. Of the moments' it is one warp: a moment is 32 sums in a thread, then one across the warp."""
_INNER = 64
"""Columns whose pairs are in registers at once."""
_PIECE = 4096
"""Columns whose ends one program finds."""
_ALONE = 8192
"""Rows of up to so many columns are one piece, whose ends every program of the moments finds by itself."""
_ALWAYS_DIRECT = 64
_PAIRS_FOR_SERIES = 1 << 25
"""Up to so many columns, or pairs in all, looking at every pair is quicker than a series."""

_extents = Launcher(series.extents, 4)
_moments = Launcher(series.moments, 1)
_combine = Launcher(series.combine, 8)
_gradient = Launcher(series.gradient, 4)
_pair_values = Launcher(pairs.pair_values, 1)
_pair_gradient = Launcher(pairs.pair_gradient, 1)


class Batch(NamedTuple):
    """What the kernels read."""

    outputs: Tensor
    """(rows, columns), contiguous."""
    labels: Tensor
    """(label rows, q), contiguous: they repeat themselves over the rows of the outputs."""
    scale: Tensor | None
    offset: Tensor | None
    dummy: bool
    surrogate: Surrogate

    @property
    def sizes(self) -> tuple[int, int]:
        return self.outputs.shape[1], len(self.labels)

    @property
    def kind(self) -> tuple[str, int, int]:
        """The constants PHI, DUMMY and DEBIAS of a kernel."""
        return self.surrogate.name, int(self.dummy), int(self.scale is not None)


class FusedLoss(torch.autograd.Function):
    """Batch -> the loss of every row (rows,), their mean or sum."""

    @staticmethod
    def forward(
        ctx: Any,
        outputs: Tensor,
        labels: Tensor,
        scale: Tensor | None,
        offset: Tensor | None,
        dummy: bool,
        surrogate: Surrogate,
        reduction: str,
        again: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        values, lines = _forward(Batch(outputs, labels, scale, offset, dummy, surrogate))
        ctx.save_for_backward(outputs, labels, scale, offset, lines)
        ctx.settings = dummy, surrogate
        ctx.reduction, ctx.again = reduction, again
        return _reduce(values, reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        outputs, labels, scale, offset, lines = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the eager way is differentiable as often as phi
            value = _reduce(ctx.again(outputs, labels), ctx.reduction)
            (by_outputs,) = torch.autograd.grad(value, outputs, grad, create_graph=True)
        else:
            batch = Batch(outputs, labels, scale, offset, *ctx.settings)
            by_outputs = _backward(batch, lines, grad, ctx.reduction)
        return by_outputs, *(None,) * 7


def _reduce(values: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


def _forward(batch: Batch) -> tuple[Tensor, Tensor | None]:
    """The values of all rows, and the lines from which the gradient is made."""
    rows, columns = batch.outputs.shape
    if _is_direct(batch):
        return _direct_values(batch), None
    block = _block(columns)
    alone, may_miss = int(columns <= _ALONE), int(batch.labels.dtype.is_floating_point)
    blocks, pieces = triton.cdiv(columns, block), 1 if alone else triton.cdiv(columns, _PIECE)
    pieces_above = triton.next_power_of_2(pieces)
    ladder = ladder_for(batch.surrogate.name, batch.outputs.device)
    slot, line = 1 + 2 * ladder.largest_order, series.HEAD + 2 * ladder.largest_order
    room = _floats(batch, rows, 2 * pieces + (blocks + 1) * slot)
    lines, values = _floats(batch, rows, line), _floats(batch, rows)
    if not alone:
        grid, constants = (rows, pieces), (slot, int(batch.dummy), may_miss, _PIECE)
        _extents(grid, (*batch[:2], room), (*batch.sizes, blocks), *constants)
    _moments(
        (rows, blocks),
        (*batch[:4], ladder.widths, ladder.orders, room),
        (*batch.sizes, pieces),
        *(slot, pieces_above, LEVELS, *batch.kind, block, min(_INNER, block), alone, may_miss),
    )
    _combine(
        (rows, 1),
        (*ladder[:4], room, lines, values),
        (blocks, pieces, batch.surrogate.at_zero),
        *(slot, line, series.HEAD, pieces_above, LEVELS, min(64, triton.next_power_of_2(blocks))),
    )
    return values, lines


def _direct_values(batch: Batch) -> Tensor:
    rows, columns = batch.outputs.shape
    block = min(_INNER, _block(columns))
    blocks = triton.cdiv(columns, block)
    parts = _floats(batch, rows, blocks)
    _pair_values((rows, blocks), (*batch[:4], parts), batch.sizes, *batch.kind, block)
    return parts.view(rows) if blocks == 1 else parts.sum(1)


def _backward(batch: Batch, lines: Tensor | None, grad: Tensor, reduction: str) -> Tensor:
    rows, columns = batch.outputs.shape
    out = torch.empty_like(batch.outputs)
    numbers = (*batch.sizes, 1 / rows if reduction == "mean" else 1.0)
    grad, by_row = grad.contiguous(), int(reduction == "none")
    if lines is None:
        block = min(_INNER, _block(columns))
        grid = rows, triton.cdiv(columns, block)
        _pair_gradient(grid, (*batch[:4], grad, out), numbers, *batch.kind, by_row, block)
        return out
    block = _block(columns)
    _gradient(
        (rows, triton.cdiv(columns, block)),
        (*batch[:4], lines, grad, out),
        numbers,
        *(lines.shape[1], series.HEAD, *batch.kind, by_row, block, min(_INNER, block)),
    )
    return out


def _floats(batch: Batch, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=batch.outputs.device)


def _block(columns: int) -> int:
    return min(_BLOCK, max(16, 1 << (columns - 1).bit_length()))


def _is_direct(batch: Batch) -> bool:
    """Is every pair looked at? The hinge has no series."""
    columns = batch.outputs.shape[1]
    few = columns <= _ALWAYS_DIRECT or batch.outputs.numel() * columns <= _PAIRS_FOR_SERIES
    return few or batch.surrogate.name == "hinge"
