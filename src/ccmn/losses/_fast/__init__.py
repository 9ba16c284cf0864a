"""Fast forms of the losses; each entry returns the value of the formula beside its call, or None."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ccmn.losses._fast import cuda
from ccmn.losses._fast.pair_sum import pair_sum, two_sided_sum
from ccmn.losses.surrogates import Surrogate
from ccmn.noise.class_conditional import ClassConditionalDebiasing

__all__ = ["KERNEL_DEVICES", "fused_loss", "pair_sum", "two_sided_sum"]

KERNEL_DEVICES = {"cuda"}
"""Types of devices for which there are fused kernels."""


def fused_loss(
    outputs: Tensor,
    labels: Tensor,
    debias: ClassConditionalDebiasing | None,
    surrogate: Callable[[Tensor], Tensor],
    eager: Callable[[Tensor, Tensor], Tensor],
    *,
    loss: str,
    dummy: bool = False,
    reduction: str = "none",
    factor: float = 1.0,
) -> Tensor | None:
    """Return the loss from fused kernels, see ``cuda.fused_loss``, or None if they do not support these tensors."""
    if not isinstance(surrogate, Surrogate) or not cuda.can_fuse(outputs, labels, surrogate):
        return None
    if loss == "hamming" and torch.compiler.is_compiling():
        return None  # torch.compile fuses the operations itself
    options = {"loss": loss, "dummy": dummy, "reduction": reduction, "factor": factor}
    return cuda.fused_loss(outputs, labels, debias, surrogate, eager, **options)  # type: ignore[arg-type]
