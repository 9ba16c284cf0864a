"""What the kernels read, and what every way of summing returns.

Launching a kernel without Triton's look-up, which takes longer than most of the kernels do.

Every pair, in registers: one kernel each way. For few columns nothing is quicker.

Chebyshev moments: ends of the rows, moments, and their combination; then one kernel that writes the gradient.

Between them nothing is kept but a line of coefficients a row.

The hinge on many columns: torch sorts the rows, one kernel adds up prefixes, one finds every label's place in them.

The gradient falls off with the value and is kept, one number a score.

The fused ranking loss as a differentiable function: the quickest way, and the reduction over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ccmn.losses.pairs.chebyshev import LEVELS, ladder_for
from ccmn.losses.surrogates import Surrogate
from ccmn.losses.triton import pair_kernels, series_kernels


class Batch(NamedTuple):
    """Outputs and labels as they were given, and two constants per label: p = scale y - offset."""

    outputs: Tensor
    """(rows, columns), contiguous."""
    labels: Tensor
    """(label rows, q), contiguous: they repeat themselves over the rows of the outputs."""
    scale: Tensor | None
    offset: Tensor | None
    dummy: bool
    surrogate: Surrogate

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self[:4]

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers ``columns`` and ``label_rows`` of a kernel."""
        return self.outputs.shape[1], self.labels.shape[0]

    @property
    def kind(self) -> tuple[str, int, int]:
        """The constants PHI, DUMMY and DEBIAS of a kernel."""
        return self.surrogate.name, int(self.dummy), int(self.scale is not None)

    def floats(self, *shape: int) -> Tensor:
        """Room for float32 numbers on the device of the batch."""
        return torch.empty(shape, dtype=torch.float32, device=self.outputs.device)


class Behind(NamedTuple):
    """What comes from behind the value in a backward pass: one number for all rows, or one for each."""

    grad: Tensor
    share: float
    """What each row's value has in the reduced one."""
    by_row: bool


class Way(Protocol):
    """A way of summing pairs."""

    def values(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The loss of every row, (rows,), and what the gradient is made from."""

    def gradient(self, batch: Batch, kept: Tensor | None, behind: Behind) -> Tensor:
        """The gradient in the type of the outputs."""


class Launcher:
    """A kernel, and its compiled forms by the types of its tensors and by the constants compiled into it.

    Kernels are declared so that they depend on nothing else: neither on sizes nor on where a tensor lies.
    """

    def __init__(self, kernel: Any, warps: int) -> None:
        self._kernel, self._warps = kernel, warps
        self._compiled: dict[Hashable, Any] = {}

    def __call__(
        self,
        grid: tuple[int, int],
        tensors: tuple[Tensor | None, ...],
        numbers: tuple[float, ...],
        *constants: Hashable,
    ) -> None:
        """Run ``grid`` programs; constants are those of the signature, in its order."""
        types = tuple(None if t is None else t.dtype for t in tensors)
        key = (tensors[0].device, types, constants)  # type: ignore[union-attr]
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = self._kernel[grid](*tensors, *numbers, *constants, num_warps=self._warps)
        else:
            compiled[(*grid, 1)](*tensors, *numbers, *constants)


_MOST_AT_ONCE = 64
_values = Launcher(pair_kernels.pair_values, 1)
_gradient = Launcher(pair_kernels.pair_gradient, 1)


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


_BLOCK = 1024
"""Columns of a program. Of the moments' it is one warp: a moment is 32 sums in a thread, then one across the warp."""
_PIECE = 4096
"""Columns whose ends one program finds."""
_ALONE = 8192
"""Rows of up to so many columns are one piece, whose ends every program of the moments finds by itself."""
_INNER = 64
"""Columns whose pairs are in registers at once, where a row is too wide for any series."""

_extents = Launcher(series_kernels.extents, 4)
_moments = Launcher(series_kernels.moments, 1)
_combine = Launcher(series_kernels.combine, 8)
_gradient_moments = Launcher(series_kernels.gradient, 4)


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
        _gradient_moments(
            (rows, -(-columns // block)),
            (*batch.tensors, kept, behind.grad, out),
            (*batch.sizes, behind.share),
            *(kept.shape[1], series.HEAD, *batch.kind, int(behind.by_row), block, min(_INNER, block)),
        )
        return out


def _block(columns: int) -> int:
    return min(_BLOCK, max(16, 1 << (columns - 1).bit_length()))


_STRIP = 2048
_SORT_BLOCK = 512
_SORTED_AT_ONCE = 1 << 21
"""Scores: sorting takes ten times their memory."""

_prefixes = Launcher(pair_kernels.prefixes, 8)
_places = Launcher(pair_kernels.places, 4)


class Sorting:
    """O(q log q) a row."""

    def values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of every row, and the gradient of each."""
        rows, columns = batch.outputs.shape
        parts, gradient = batch.floats(rows, -(-columns // _SORT_BLOCK)), batch.floats(rows, columns)
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
    grid = rows, -(-columns // _SORT_BLOCK)
    _places(grid, (*given, parts, gradient), (*numbers, columns.bit_length()), *constants, _SORT_BLOCK)


_ALWAYS_DIRECT = 64
_PAIRS_DIRECT = 1 << 24
_PAIRS_DIRECT_HINGE = 1 << 27
"""Up to so many columns, or pairs in all, looking at every pair is quickest."""


class Settings(NamedTuple):
    """What a call needs beside tensors."""

    dummy: bool
    surrogate: Surrogate
    reduction: str
    again: Callable[[Tensor, Tensor], Tensor]
    """(outputs, labels) -> the value of every row by differentiable operations."""


class FusedLoss(torch.autograd.Function):
    """A batch -> the loss of every row (rows,), or their mean or sum."""

    @staticmethod
    def forward(
        ctx: Any, outputs: Tensor, labels: Tensor, scale: Tensor | None, offset: Tensor | None, settings: Settings
    ) -> Tensor:
        batch = Batch(outputs, labels, scale, offset, settings.dummy, settings.surrogate)
        way = _choose(batch)
        values, kept = way.values(batch)
        ctx.save_for_backward(outputs, labels, scale, offset, kept)
        ctx.settings, ctx.way = settings, way
        return _reduce(values, settings.reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        outputs, labels, scale, offset, kept = ctx.saved_tensors
        dummy, surrogate, reduction, again = ctx.settings
        if torch.is_grad_enabled():  # create_graph=True: the eager way is differentiable as often as phi
            value = _reduce(again(outputs, labels), reduction)
            (by_outputs,) = torch.autograd.grad(value, outputs, grad, create_graph=True)
        else:
            share = 1 / outputs.shape[0] if reduction == "mean" else 1.0
            behind = Behind(grad.contiguous(), share, reduction == "none")
            by_outputs = ctx.way.gradient(Batch(outputs, labels, scale, offset, dummy, surrogate), kept, behind)
        return by_outputs, None, None, None, None


def _choose(batch: Batch) -> Way:
    """The quickest way for a batch of this size."""
    columns, hinge = batch.outputs.shape[1], batch.surrogate.name == "hinge"
    few = _PAIRS_DIRECT_HINGE if hinge else _PAIRS_DIRECT
    if columns <= _ALWAYS_DIRECT or batch.outputs.numel() * columns <= few:
        return Direct()
    return Sorting() if hinge else Moments()


def _reduce(values: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()
