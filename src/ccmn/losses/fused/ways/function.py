"""The fused ranking loss as a differentiable function: the quickest way, and the reduction over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ccmn.losses.fused.ways.batch import Batch, Behind, Way
from ccmn.losses.fused.ways.direct import Direct
from ccmn.losses.fused.ways.moments import Moments
from ccmn.losses.fused.ways.sorting import Sorting
from ccmn.losses.surrogates import Surrogate

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
