"""Fused ranking loss as an autograd function: kernel launches, the three algorithms, and their selection.

``DirectMethod`` visits all pairs in registers, which is fastest for few columns. ``SeriesMethod`` uses Chebyshev
moments. ``SortedMethod`` sorts rows and uses prefix sums, for the hinge with many columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ccmn.losses.pairs.chebyshev import N_LEVELS, expansion_table
from ccmn.losses.surrogates import Surrogate
from ccmn.losses.triton import pair_kernels, series_kernels

MAX_DIRECT_COLUMNS = 64
"""``DirectMethod`` is always used up to this number of columns."""
MAX_DIRECT_PAIRS = 1 << 24
"""``DirectMethod`` is used up to this number of pairs in the batch."""
MAX_DIRECT_PAIRS_HINGE = 1 << 27
"""The same limit for the hinge, where the alternative is sorting."""


class Settings(NamedTuple):
    """Arguments of ``FusedLoss`` that are not tensors."""

    dummy: bool
    surrogate: Surrogate
    reduction: str
    eager: Callable[[Tensor, Tensor], Tensor]
    """Function (outputs, labels) -> value of every row by differentiable operations."""


class FusedLoss(torch.autograd.Function):
    """Ranking loss of every row (rows,), or its mean or sum."""

    @staticmethod
    def forward(
        ctx: Any, outputs: Tensor, labels: Tensor, scale: Tensor | None, offset: Tensor | None, settings: Settings
    ) -> Tensor:
        """Return the reduced loss and save what the backward pass needs."""
        batch = Batch(outputs, labels, scale, offset, settings.dummy, settings.surrogate)
        method = _select_method(batch)
        values, saved = method.values(batch)
        ctx.save_for_backward(outputs, labels, scale, offset, saved)
        ctx.settings, ctx.method = settings, method
        return _reduce(values, settings.reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient with respect to the outputs."""
        outputs, labels, scale, offset, saved = ctx.saved_tensors
        dummy, surrogate, reduction, eager = ctx.settings
        if torch.is_grad_enabled():  # create_graph=True: the eager loss has all derivatives of phi
            value = _reduce(eager(outputs, labels), reduction)
            (by_outputs,) = torch.autograd.grad(value, outputs, grad, create_graph=True)
        else:
            row_factor = 1 / outputs.shape[0] if reduction == "mean" else 1.0
            grad_output = GradOutput(grad.contiguous(), row_factor, reduction == "none")
            batch = Batch(outputs, labels, scale, offset, dummy, surrogate)
            by_outputs = ctx.method.gradient(batch, saved, grad_output)
        return by_outputs, None, None, None, None


def _select_method(batch: Batch) -> PairMethod:
    """Return the fastest method for a batch of this size."""
    columns, hinge = batch.outputs.shape[1], batch.surrogate.name == "hinge"
    max_pairs = MAX_DIRECT_PAIRS_HINGE if hinge else MAX_DIRECT_PAIRS
    if columns <= MAX_DIRECT_COLUMNS or batch.outputs.numel() * columns <= max_pairs:
        return DirectMethod()
    return SortedMethod() if hinge else SeriesMethod()


def _reduce(values: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


class Batch(NamedTuple):
    """Outputs and labels of a batch, and the coefficients of the targets p = scale * y - offset."""

    outputs: Tensor
    """(rows, columns), contiguous."""
    labels: Tensor
    """(label rows, q), contiguous; they repeat over the rows of the outputs."""
    scale: Tensor | None
    offset: Tensor | None
    dummy: bool
    surrogate: Surrogate

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Tensor arguments that all kernels start with."""
        return self[:4]

    @property
    def sizes(self) -> tuple[int, int]:
        """Arguments ``columns`` and ``label_rows`` of a kernel."""
        return self.outputs.shape[1], self.labels.shape[0]

    @property
    def constants(self) -> tuple[str, int, int]:
        """Compile-time constants PHI, DUMMY and DEBIAS of a kernel."""
        return self.surrogate.name, int(self.dummy), int(self.scale is not None)

    def empty(self, *shape: int) -> Tensor:
        """Return an uninitialized float32 tensor on the device of the batch."""
        return torch.empty(shape, dtype=torch.float32, device=self.outputs.device)


class GradOutput(NamedTuple):
    """Upstream gradient: one number for all rows, or one for each row."""

    grad: Tensor
    row_factor: float
    """Derivative of the reduced loss with respect to the value of a row."""
    by_row: bool


class PairMethod(Protocol):
    """Algorithm for pair sums on a device."""

    def values(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the loss of every row, (rows,), and a tensor to save for the gradient."""

    def gradient(self, batch: Batch, saved: Tensor | None, grad_output: GradOutput) -> Tensor:
        """Return the gradient in the dtype of the outputs."""


class Launcher:
    """Kernel with a cache of its compiled forms.

    Triton's own lookup takes longer than most of these kernels. The kernels are declared such that a compiled form
    depends only on the dtypes of the tensors and on the compile-time constants, not on sizes or alignment.
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
        """Run ``grid`` programs; tensors, numbers and constants are in the order of the kernel's signature."""
        dtypes = tuple(None if t is None else t.dtype for t in tensors)
        key = (tensors[0].device, dtypes, constants)  # type: ignore[union-attr]
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = self._kernel[grid](*tensors, *numbers, *constants, num_warps=self._warps)
        else:
            compiled[(*grid, 1)](*tensors, *numbers, *constants)


_DIRECT_BLOCK = 64
"""Largest number of columns per program of the direct kernels."""

_pair_values = Launcher(pair_kernels.pair_values, 1)
_pair_gradient = Launcher(pair_kernels.pair_gradient, 1)


class DirectMethod:
    """Sum over all pairs in registers, O(q^2) time per row."""

    def values(self, batch: Batch) -> tuple[Tensor, None]:
        """Return the loss of every row; nothing is saved."""
        block = _block_size(batch, _DIRECT_BLOCK)
        rows, blocks = len(batch.outputs), -(-batch.outputs.shape[1] // block)
        parts = batch.empty(rows, blocks)
        _pair_values((rows, blocks), (*batch.tensors, parts), batch.sizes, *batch.constants, block)
        return (parts.view(rows) if blocks == 1 else parts.sum(1)), None

    def gradient(self, batch: Batch, saved: Tensor | None, grad_output: GradOutput) -> Tensor:
        """Return the gradient in the dtype of the outputs."""
        out = torch.empty_like(batch.outputs)
        rows, columns = out.shape
        block = _block_size(batch, _DIRECT_BLOCK)
        _pair_gradient(
            (rows, -(-columns // block)),
            (*batch.tensors, grad_output.grad, out),
            (*batch.sizes, grad_output.row_factor),
            *(*batch.constants, int(grad_output.by_row), block),
        )
        return out


def _block_size(batch: Batch, largest: int) -> int:
    """Return the number of columns per program, a power of two."""
    return min(largest, max(16, 1 << (batch.outputs.shape[1] - 1).bit_length()))


_SERIES_BLOCK = 1024
"""Columns per program. A program of the moments kernel is one warp: each moment is 32 sums and a reduction."""
_PIECE = 4096
"""Columns per program of the kernel that computes the range of the scores."""
_MAX_SINGLE_PIECE = 8192
"""Rows up to this length are one piece, whose range every program of the moments kernel computes itself."""
_INNER_BLOCK = 64
"""Columns whose pairs are in registers at once, for rows that are too wide for all series."""

_row_ranges = Launcher(series_kernels.row_ranges, 4)
_moments = Launcher(series_kernels.moments, 1)
_combine = Launcher(series_kernels.combine, 8)
_series_gradient = Launcher(series_kernels.series_gradient, 4)


class SeriesMethod:
    """Chebyshev moments, O(q M) time per row, where the order M depends on the range of the row.

    Kernels compute the range of the rows, the moments, and their combination. One record per row is saved: the series
    of its gradient. One kernel then evaluates the gradient.
    """

    def values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss of every row, and the records."""
        rows, columns = batch.outputs.shape
        block = _block_size(batch, _SERIES_BLOCK)
        single, may_have_nan = int(columns <= _MAX_SINGLE_PIECE), int(batch.labels.dtype.is_floating_point)
        blocks, pieces = -(-columns // block), 1 if single else -(-columns // _PIECE)
        max_pieces = 1 << (pieces - 1).bit_length()
        table = expansion_table(batch.surrogate.name, batch.outputs.device)
        slot, record = 1 + 2 * table.max_order, series_kernels.HEADER + 2 * table.max_order
        workspace = batch.empty(rows, 2 * pieces + (blocks + 1) * slot)
        records, values = batch.empty(rows, record), batch.empty(rows)
        if not single:
            constants = slot, int(batch.dummy), may_have_nan, _PIECE
            _row_ranges((rows, pieces), (*batch[:2], workspace), (*batch.sizes, blocks), *constants)
        _moments(
            (rows, blocks),
            (*batch.tensors, table.widths, table.orders, workspace),
            (*batch.sizes, pieces),
            *(slot, max_pieces, N_LEVELS, *batch.constants, block, min(_INNER_BLOCK, block), single, may_have_nan),
        )
        _combine(
            (rows, 1),
            (*table[:4], workspace, records, values),
            (blocks, pieces, batch.surrogate.at_zero),
            *(slot, record, series_kernels.HEADER, max_pieces, N_LEVELS, min(64, 1 << (blocks - 1).bit_length())),
        )
        return values, records

    def gradient(self, batch: Batch, saved: Tensor | None, grad_output: GradOutput) -> Tensor:
        """Return the gradient in the dtype of the outputs."""
        assert saved is not None
        out = torch.empty_like(batch.outputs)
        rows, columns = out.shape
        block = _block_size(batch, _SERIES_BLOCK)
        inner = min(_INNER_BLOCK, block)
        _series_gradient(
            (rows, -(-columns // block)),
            (*batch.tensors, saved, grad_output.grad, out),
            (*batch.sizes, grad_output.row_factor),
            *(saved.shape[1], series_kernels.HEADER, *batch.constants, int(grad_output.by_row), block, inner),
        )
        return out


_STRIP = 2048
"""Columns whose prefix sums are computed at once."""
_SORTED_BLOCK = 512
"""Columns per program of the kernel for sorted rows."""
_MAX_SORTED_SCORES = 1 << 21
"""Number of scores that are sorted at once, because sorting needs ten times their memory."""

_prefix_sums = Launcher(pair_kernels.prefix_sums, 8)
_sorted_sums = Launcher(pair_kernels.sorted_sums, 4)


class SortedMethod:
    """Hinge on sorted rows, O(q log q) time per row; the gradient is computed with the value and saved."""

    def values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss of every row, and its gradient."""
        rows, columns = batch.outputs.shape
        blocks = -(-columns // _SORTED_BLOCK)
        parts, gradient = batch.empty(rows, blocks), batch.empty(rows, columns)
        max_rows = max(1, _MAX_SORTED_SCORES // columns)
        for first in range(0, rows, max_rows):
            n = min(max_rows, rows - first)
            scores, order = torch.sort(batch.outputs[first : first + n].float(), dim=-1)
            tensors = (*batch.tensors, scores, order, batch.empty(2, n, columns))
            numbers, constants = (*batch.sizes, first), batch.constants[1:]
            _prefix_sums((n, 1), tensors, numbers, *constants, _STRIP)
            steps = columns.bit_length()
            _sorted_sums((n, blocks), (*tensors, parts, gradient), (*numbers, steps), *constants, _SORTED_BLOCK)
        return parts.sum(1), gradient

    def gradient(self, batch: Batch, saved: Tensor | None, grad_output: GradOutput) -> Tensor:
        """Return the gradient in the dtype of the outputs."""
        assert saved is not None
        factor = grad_output.grad * grad_output.row_factor
        return (saved * (factor.unsqueeze(1) if grad_output.by_row else factor)).to(batch.outputs.dtype)
