"""Algorithms of the fused losses: kernel launches with everything that does not depend on values computed in advance.

``RegisterMethod`` sums over labels, or over all pairs of labels, which is fastest for few columns. It computes the
gradient with the value, so that the backward pass is one multiplication. ``SeriesMethod`` uses Chebyshev moments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ccmn.losses._fast import cuda_kernels as kernels
from ccmn.losses._fast.chebyshev import N_LEVELS, expansion_table
from ccmn.losses._fast.cuda import Options, block_size, scale_gradient, select_method
from ccmn.losses.surrogates import SURROGATES


class Batch(NamedTuple):
    """Properties of the tensors and options of a call, which determine its kernels."""

    rows: int
    columns: int
    label_rows: int
    """Number of rows of the labels, which repeat over the rows of the outputs."""
    options: Options
    debias: bool
    """Whether labels are debiased, p = scale * y - offset."""
    labels_dtype: torch.dtype
    device: torch.device

    @property
    def sizes(self) -> tuple[int, int]:
        """Arguments ``columns`` and ``label_rows`` of a kernel."""
        return self.columns, self.label_rows

    @property
    def constants(self) -> tuple[str, int, int]:
        """Compile-time constants PHI, DUMMY and DEBIAS of a kernel."""
        return self.options.surrogate, int(self.options.dummy), int(self.debias)

    @property
    def row_factor(self) -> float:
        """Derivative of the reduced loss with respect to the sum over the labels or pairs of a row."""
        return self.options.factor / (self.rows if self.options.reduction == "mean" else 1)

    def empty(self, *shape: int) -> Tensor:
        """Return an uninitialized float32 tensor on the device of the batch."""
        return torch.empty(shape, dtype=torch.float32, device=self.device)


@lru_cache(maxsize=512)
def method_for(
    options: Options,
    shape: tuple[int, int],
    label_rows: int,
    debias: bool,
    outputs_dtype: torch.dtype,
    labels_dtype: torch.dtype,
    device: torch.device,
) -> FusedMethod:
    """Return the method for a batch; the dtype of the outputs is a key because the kernels depend on it."""
    batch = Batch(*shape, label_rows, options, debias, labels_dtype, device)
    series = select_method(options.loss, options.surrogate, *shape) == "series"
    return SeriesMethod(batch) if series else RegisterMethod(batch)


class Launch:
    """Kernel with its grid, sizes and constants.

    Triton's own lookup takes longer than most of these kernels, so the compiled kernel is kept. The kernels are
    declared such that a compiled form depends only on the dtypes of the tensors and on the compile-time constants, not
    on sizes or alignment.
    """

    def __init__(
        self, kernel: Any, warps: int, grid: tuple[int, int], numbers: tuple[float, ...], *constants: Hashable
    ) -> None:
        self._kernel, self._warps, self._grid = kernel, warps, grid
        self._arguments = (*numbers, *constants)
        self._run: Callable[..., Any] | None = None

    def __call__(self, *tensors: Tensor | None) -> None:
        """Run the kernel; tensors are in the order of the kernel's signature, before the numbers and constants."""
        if self._run is not None:
            self._run(*tensors, *self._arguments)
            return
        compiled = self._kernel[self._grid](*tensors, *self._arguments, num_warps=self._warps)
        self._run = compiled[(*self._grid, 1)]


_DIRECT_PAIRS = 1024
"""Number of pairs whose sums a program of the kernel for pairs keeps in registers: it is one warp."""


class RegisterMethod:
    """Sum over labels in O(q) time per row, or over all pairs in O(q^2), by one kernel, with the gradient."""

    def __init__(self, batch: Batch) -> None:
        pairs = batch.options.loss == "ranking"
        block = block_size("direct" if pairs else "labels", batch.columns)
        self._batch, self._blocks = batch, -(-batch.columns // block)
        self._needs_gradient = batch.options.needs_gradient
        phi, dummy, debias = batch.constants
        constants = phi, *((dummy,) if pairs else ()), debias, int(self._needs_gradient), block
        self._sums = Launch(
            *(kernels.pair_sums if pairs else kernels.label_sums, 4 if block > 128 else 1, (batch.rows, self._blocks)),
            *((*batch.sizes, batch.row_factor), *constants, *((_DIRECT_PAIRS // block,) if pairs else ())),
        )

    def parts(self, *tensors: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return parts of the value, (rows, n), and the gradient; tensors are outputs, labels, scale and offset."""
        batch = self._batch
        parts = batch.empty(batch.rows, self._blocks)
        gradient = batch.empty(batch.rows, batch.columns) if self._needs_gradient else None
        self._sums(*tensors, parts, parts if gradient is None else gradient)
        return parts, gradient

    def gradient(
        self, outputs: Tensor, labels: Tensor, scale: Tensor | None, offset: Tensor | None, saved: Tensor, grad: Tensor
    ) -> Tensor:
        """Return the gradient in the dtype of the outputs; ``grad`` is the upstream gradient."""
        return scale_gradient(saved, grad, outputs.dtype)


_PIECE = 4096
"""Columns per program of the kernel that computes the range of the scores."""
_MAX_SINGLE_PIECE = 8192
"""Rows up to this length are one piece, whose range every program of the moments kernel computes itself."""
RECORD_HEADER = 4
"""Number of values before the series in the record of a row: center, 1 / w, order (-1 without a series), unused."""
_INNER_BLOCK = 64
"""Columns whose pairs are in registers at once, for rows that are too wide for all series."""


class SeriesMethod:
    """Chebyshev moments, O(q M) time per row, where the order M depends on the range of the row.

    Kernels compute the range of the rows, the moments, and their combination. One record per row is saved: the series
    of its gradient. One kernel then evaluates the gradient.
    """

    def __init__(self, batch: Batch) -> None:
        rows, columns = batch.rows, batch.columns
        block = block_size("series", columns)
        inner = min(_INNER_BLOCK, block)
        single, may_have_nan = int(columns <= _MAX_SINGLE_PIECE), int(batch.labels_dtype.is_floating_point)
        blocks, pieces = -(-columns // block), 1 if single else -(-columns // _PIECE)
        max_pieces = 1 << (pieces - 1).bit_length()
        self._batch, self._table = batch, expansion_table(batch.options.surrogate, batch.device)
        slot, record = 1 + 2 * self._table.max_order, RECORD_HEADER + 2 * self._table.max_order
        self._workspace, self._record = 2 * pieces + (blocks + 1) * slot, record
        self._ranges = None
        if not single:
            constants = slot, int(batch.options.dummy), may_have_nan, _PIECE
            self._ranges = Launch(kernels.row_ranges, 4, (rows, pieces), (*batch.sizes, blocks), *constants)
        self._moments = Launch(
            *(kernels.moments, 1, (rows, blocks), (*batch.sizes, pieces), slot, max_pieces, N_LEVELS),
            *(*batch.constants, block, inner, single, may_have_nan),
        )
        self._combine = Launch(
            *(kernels.combine, 8, (rows, 1)),
            (blocks, pieces, SURROGATES[batch.options.surrogate].at_zero, batch.row_factor),
            *(slot, record, RECORD_HEADER, max_pieces, N_LEVELS, min(64, 1 << (blocks - 1).bit_length())),
        )
        self._gradient = Launch(
            *(kernels.series_gradient, 4, (rows, blocks), (*batch.sizes, batch.row_factor)),
            *(record, RECORD_HEADER, *batch.constants, int(batch.options.reduction == "none"), block, inner),
        )

    def parts(self, *tensors: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the value of every row, and the records."""
        batch, table = self._batch, self._table
        workspace = batch.empty(batch.rows, self._workspace)
        records, values = batch.empty(batch.rows, self._record), batch.empty(batch.rows, 1)
        if self._ranges is not None:
            self._ranges(*tensors[:2], workspace)
        self._moments(*tensors, table.widths, table.orders, workspace)
        self._combine(*table[:4], workspace, records, values)
        return values, records if batch.options.needs_gradient else None

    def gradient(
        self, outputs: Tensor, labels: Tensor, scale: Tensor | None, offset: Tensor | None, saved: Tensor, grad: Tensor
    ) -> Tensor:
        """Return the gradient in the dtype of the outputs."""
        out = torch.empty_like(outputs)
        self._gradient(outputs, labels, scale, offset, saved, grad.contiguous(), out)
        return out


FusedMethod = RegisterMethod | SeriesMethod
