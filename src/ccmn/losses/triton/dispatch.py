"""Selection of the fused ranking loss, and the conversion of its arguments.

This module does not import Triton, so that a machine without a CUDA device never does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from ccmn.losses.surrogates import Surrogate
from ccmn.noise.class_conditional import ClassConditionalDebiasing


def can_fuse(outputs: Tensor, labels: Tensor, surrogate: Surrogate | Callable[[Tensor], Tensor]) -> bool:
    """Return whether the fused kernels support outputs (..., columns) and labels (..., q) of this type."""
    return (
        can_run_kernels(outputs)
        and isinstance(surrogate, Surrogate)
        and outputs.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and not labels.requires_grad
        and outputs.numel() > 0
        and not torch.compiler.is_compiling()
    )


def can_run_kernels(tensor: Tensor) -> bool:
    """Return whether the tensor is on the current CUDA device and Triton is installed."""
    return tensor.is_cuda and _has_triton() and tensor.get_device() == torch.cuda.current_device()


@cache
def _has_triton() -> bool:
    """Return whether Triton is installed; CUDA builds of PyTorch include it."""
    return find_spec("triton") is not None


def fused_ranking_loss(
    outputs: Tensor,
    labels: Tensor,
    debias: ClassConditionalDebiasing | None,
    surrogate: Surrogate,
    *,
    dummy: bool,
    reduction: str,
    eager: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return the ranking loss in float32, reduced over rows.

    Parameters
    ----------
    outputs : Tensor of shape (..., columns)
        Outputs of the network.
    labels : Tensor of shape (..., q)
        Noisy labels, or targets.
    debias : ClassConditionalDebiasing or None
        Map from labels to targets, or None if the labels are targets.
    surrogate : Surrogate
        Margin loss phi.
    dummy : bool
        Whether column 0 of the outputs is the dummy label.
    reduction : {"mean", "sum", "none"}
        Reduction over rows.
    eager : callable
        Function (outputs, labels) -> one value per row by differentiable operations, for second derivatives.

    Returns
    -------
    Tensor
        Loss reduced over rows, or one value per row for ``reduction="none"``.
    """
    from ccmn.losses.triton.pair_methods import FusedLoss, Settings

    shape, columns = outputs.shape[:-1], outputs.shape[-1]
    rows = shape.numel()
    scale, offset = (None, None) if debias is None else debias.affine(torch.float32)
    label_rows = _label_rows(outputs, labels)
    if len(shape) != 1:  # even a view without effect would add a node to the graph
        outputs = outputs.reshape(rows, columns)

    def eager_rows(f: Tensor, y: Tensor) -> Tensor:
        return eager(f.view(-1, len(y), columns), y).view(rows)

    settings = Settings(dummy, surrogate, reduction, eager_rows)
    value: Tensor = FusedLoss.apply(  # type: ignore[no-untyped-call]
        outputs.contiguous(), label_rows, scale, offset, settings
    )
    return value.view(shape) if reduction == "none" and len(shape) != 1 else value


def _label_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return labels (n, q) that repeat over the rows of the outputs: one batch may be used by several models."""
    if labels.shape[:-1] != outputs.shape[outputs.ndim - labels.ndim : -1]:
        labels = labels.expand(*outputs.shape[:-1], -1)
    if labels.ndim != 2:
        labels = labels.reshape(-1, labels.shape[-1])
    labels = labels.contiguous()
    return labels.view(torch.uint8) if labels.dtype == torch.bool else labels
