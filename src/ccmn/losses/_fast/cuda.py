"""Fused losses on a CUDA device: selection of the algorithm, operators for torch.compile, and the autograd function.

Eager calls use an autograd function, whose second derivatives are those of the loss without fused kernels. Compiled
calls use the operator ``ccmn::fused_loss``, which torch.compile does not look into. It is defined with
``torch.library.Library``, because the wrappers of ``torch.library.custom_op`` take longer than most kernels (40
microseconds per call).

This module does not import Triton, so that a machine without a CUDA device never does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ccmn.losses._fast.chebyshev import expansion_table
from ccmn.losses.surrogates import Surrogate
from ccmn.noise.class_conditional import ClassConditionalDebiasing

if TYPE_CHECKING:
    from ccmn.losses._fast.cuda_pairs import FusedMethod

MAX_DIRECT_COLUMNS = 64
"""All pairs are visited up to this number of columns."""
MAX_DIRECT_PAIRS = 1 << 24
"""All pairs are visited up to this number of pairs in the batch."""
MAX_DIRECT_PAIRS_HINGE = 1 << 27
"""The same limit for the hinge, which has no series: beyond it, differentiable operations sort the rows."""
MAX_BLOCK = {"labels": 1024, "direct": 64, "series": 1024}
"""Largest number of columns per program of each method, a power of two. A program of the direct kernel and of the
moments kernel is one warp."""
_HAS_TRITON = find_spec("triton") is not None
"""Whether Triton is installed; CUDA builds of PyTorch include it."""


def can_fuse(outputs: Tensor, labels: Tensor) -> bool:
    """Return whether the fused kernels support outputs (..., columns) and labels (..., q) of this type and place."""
    if not outputs.is_cuda or not _HAS_TRITON or labels.requires_grad or not outputs.numel():
        return False
    # Compiled code selects the device of its tensors itself.
    here = torch.compiler.is_compiling() or outputs.get_device() == torch.cuda.current_device()
    return here and outputs.dtype in (torch.float32, torch.bfloat16, torch.float16)


def select_method(loss: str, surrogate: str, rows: int, columns: int) -> str:
    """Return the name of the fastest method for a batch of this size; "sorted" has no kernels."""
    if loss == "hamming":
        return "labels"
    max_pairs = MAX_DIRECT_PAIRS_HINGE if surrogate == "hinge" else MAX_DIRECT_PAIRS
    if columns <= MAX_DIRECT_COLUMNS or rows * columns * columns <= max_pairs:
        return "direct"
    return "sorted" if surrogate == "hinge" else "series"


def block_size(method: str, columns: int) -> int:
    """Return the number of columns per program of a method, a power of two."""
    size = MAX_BLOCK[method]
    while size >= 2 * columns and size > 16:
        size //= 2
    return size


class Options(NamedTuple):
    """Arguments of the fused losses that are not tensors."""

    loss: str
    """"hamming" or "ranking"."""
    surrogate: str
    dummy: bool
    """Whether column 0 of the outputs is the dummy label."""
    reduction: str
    """"mean", "sum" or "none": reduction over rows."""
    factor: float
    """Factor of the value of every row."""
    needs_gradient: bool


def fused_loss(
    outputs: Tensor,
    labels: Tensor,
    debias: ClassConditionalDebiasing | None,
    surrogate: Callable[[Tensor], Tensor],
    eager: Callable[[Tensor, Tensor], Tensor],
    *,
    loss: str,
    dummy: bool,
    reduction: str,
    factor: float,
) -> Tensor | None:
    """Return the Hamming or ranking loss in float32, reduced over rows; None if no kernels support the tensors.

    ``labels`` are noisy labels, or targets if ``debias`` is None. ``eager`` maps outputs and labels to one value per
    row by differentiable operations, for second derivatives. The other arguments are the fields of ``Options``.
    """
    if not isinstance(surrogate, Surrogate) or not can_fuse(outputs, labels):
        return None
    if loss == "hamming" and torch.compiler.is_compiling():
        return None  # torch.compile fuses the operations itself
    shape, columns = outputs.shape[:-1], outputs.shape[-1]
    if select_method(loss, surrogate.name, shape.numel(), columns) == "sorted":
        return None
    scale, offset = (None, None) if debias is None else debias.affine(torch.float32)
    labels = _label_rows(outputs, labels)
    if len(shape) != 1:  # even a view without effect would add a node to the graph
        outputs = outputs.reshape(-1, columns)
    outputs = outputs.contiguous()
    needs_gradient = torch.is_grad_enabled() and outputs.requires_grad
    options = Options(loss, surrogate.name, dummy, reduction, factor, needs_gradient)
    value: Tensor
    if torch.compiler.is_compiling():
        if outputs.dtype == torch.float16:
            # The gradient is computed before the upstream gradient is known, which keeps float16 from underflow.
            outputs = outputs.float()
        value = _CompiledLoss.apply(outputs, labels, scale, offset, options)  # type: ignore[no-untyped-call]
    elif needs_gradient:

        def eager_rows(f: Tensor, y: Tensor) -> Tensor:
            return factor * eager(f.view(-1, len(y), columns), y).view(-1)

        value = _FusedLoss.apply(outputs, labels, scale, offset, options, eager_rows)  # type: ignore[no-untyped-call]
    else:
        value = _reduce(_method(outputs, labels, scale, options).parts(outputs, labels, scale, offset)[0], reduction)
    return value.view(shape) if reduction == "none" and len(shape) != 1 else value


def _label_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return labels (n, q) that repeat over the rows of the outputs: one batch may be used by several models."""
    if labels.shape[:-1] != outputs.shape[outputs.ndim - labels.ndim : -1]:
        labels = labels.expand(*outputs.shape[:-1], -1)
    if labels.ndim != 2:
        labels = labels.reshape(-1, labels.shape[-1])
    labels = labels.contiguous()
    if labels.dtype != torch.bool:
        return labels
    # The compiler of PyTorch has no views of bool.
    return labels.to(torch.uint8) if torch.compiler.is_compiling() else labels.view(torch.uint8)


def _method(outputs: Tensor, labels: Tensor, scale: Tensor | None, options: Options) -> FusedMethod:
    """Return the method for these tensors."""
    from ccmn.losses._fast.cuda_pairs import method_for

    debias = scale is not None
    return method_for(options, outputs.shape, len(labels), debias, outputs.dtype, labels.dtype, outputs.device)


class _FusedLoss(torch.autograd.Function):
    """Loss of every row (rows,), or its mean or sum; ``forward`` also computes or prepares the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        outputs: Tensor,
        labels: Tensor,
        scale: Tensor | None,
        offset: Tensor | None,
        options: Options,
        eager: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        method = _method(outputs, labels, scale, options)
        parts, saved = method.parts(outputs, labels, scale, offset)
        ctx.save_for_backward(outputs, labels, scale, offset, saved)
        ctx.method, ctx.reduction, ctx.eager = method, options.reduction, eager
        return _reduce(parts, options.reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        outputs, labels, scale, offset, saved = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the eager loss has all derivatives of phi
            value = ctx.eager(outputs, labels)
            if ctx.reduction != "none":
                value = value.mean() if ctx.reduction == "mean" else value.sum()
            (by_outputs,) = torch.autograd.grad(value, outputs, grad, create_graph=True)
        else:
            by_outputs = ctx.method.gradient(outputs, labels, scale, offset, saved, grad)
        return by_outputs, None, None, None, None, None


class _CompiledLoss(torch.autograd.Function):
    """The same for torch.compile, which replaces it by its operator and fuses the other operations."""

    @staticmethod
    def forward(
        ctx: Any, outputs: Tensor, labels: Tensor, scale: Tensor | None, offset: Tensor | None, options: Options
    ) -> Tensor:
        parts, gradient = torch.ops.ccmn.fused_loss(outputs, labels, scale, offset, *options)
        ctx.dtype = outputs.dtype
        ctx.save_for_backward(gradient)
        return _reduce(parts, options.reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return scale_gradient(gradient, grad, ctx.dtype), None, None, None, None


def _reduce(parts: Tensor, reduction: str) -> Tensor:
    """Return the sum of parts (rows, n), which contain the factor of a mean, or the sum of every row."""
    if reduction != "none":
        return parts.sum()
    return parts.sum(1) if parts.shape[1] > 1 else parts.view(parts.shape[0])


def scale_gradient(saved: Tensor, grad: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a saved gradient (rows, columns) times the upstream gradient: one number, or one for each row."""
    by_outputs = saved * (grad.unsqueeze(1) if grad.ndim else grad)
    return by_outputs if dtype == torch.float32 else by_outputs.to(dtype)


_LIBRARY: Any = torch.library.Library("ccmn", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "fused_loss(Tensor outputs, Tensor labels, Tensor? scale, Tensor? offset, str loss, str surrogate, bool dummy, "
    "str reduction, float factor, bool needs_gradient) -> (Tensor, Tensor)"
)


def _fused_loss_op(
    outputs: Tensor, labels: Tensor, scale: Tensor | None, offset: Tensor | None, *options: Any
) -> tuple[Tensor, Tensor]:
    """Return parts of the value (rows, n), and its gradient, which is empty if it is not needed."""
    method = _method(outputs, labels, scale, Options(*options))
    parts, saved = method.parts(outputs, labels, scale, offset)
    if saved is None:
        return parts, outputs.new_empty(0)
    one = outputs.new_ones(len(outputs), dtype=torch.float32)
    return parts, method.gradient(outputs, labels, scale, offset, saved, one)


_LIBRARY.impl("fused_loss", _fused_loss_op, "CUDA")


@torch.library.register_fake("ccmn::fused_loss", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _(
    outputs: Tensor, labels: Tensor, scale: Tensor | None, offset: Tensor | None, *options: Any
) -> tuple[Tensor, Tensor]:
    loss, surrogate, _, _, _, needs_gradient = options
    rows, columns = outputs.shape
    method = select_method(loss, surrogate, rows, columns)
    if method == "series" and torch.cuda.is_available():
        # The table is built while a call is compiled: later, it would be in the memory pool of a CUDA graph. The mode
        # in which tensors have no values is that of the current thread.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(expansion_table, surrogate, outputs.device).result()
    n_parts = 1 if method == "series" else -(-columns // block_size(method, columns))
    parts = outputs.new_empty((rows, n_parts), dtype=torch.float32)
    return parts, torch.empty_like(outputs) if needs_gradient else outputs.new_empty(0)
