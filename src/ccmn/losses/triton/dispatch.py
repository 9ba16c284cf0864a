"""Where Triton's kernels can be launched.

Where the fused ranking loss is entered: what it takes, and in which form the kernels want it.

No line here imports Triton: a machine without a CUDA device never does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ccmn.losses.surrogates import Surrogate
from ccmn.noise.class_conditional import ClassConditionalDebiasing


def runs_kernels(tensor: Tensor) -> bool:
    """On the current CUDA device, where there is Triton. Elsewhere Triton is never imported."""
    return tensor.is_cuda and _has_triton() and tensor.get_device() == torch.cuda.current_device()


@cache
def _has_triton() -> bool:
    """Triton comes with builds of torch for CUDA."""
    return find_spec("triton") is not None


def can_fuse(outputs: Tensor, labels: Tensor, surrogate: Surrogate | Callable[[Tensor], Tensor]) -> bool:
    """Is there a fused way for outputs (..., columns) and labels (..., q) of this kind?"""
    return (
        runs_kernels(outputs)
        and isinstance(surrogate, Surrogate)
        and outputs.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and not labels.requires_grad
        and outputs.numel() > 0
        and not torch.compiler.is_compiling()
    )


def fused_loss(
    outputs: Tensor,
    labels: Tensor,
    debias: ClassConditionalDebiasing | None,
    surrogate: Surrogate,
    *,
    dummy: bool,
    reduction: str,
    again: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The ranking loss of outputs (..., columns) and labels as they were given, float32, reduced over rows.

    Parameters
    ----------
    debias : the map from labels to targets; None where they are targets already
    dummy : is column 0 of the outputs the dummy label?
    again : (outputs, labels) -> one value per row by differentiable operations, for second derivatives
    """
    from ccmn.losses.triton.pair_methods import FusedLoss, Settings

    shape, columns = outputs.shape[:-1], outputs.shape[-1]
    rows = shape.numel()
    scale, offset = (None, None) if debias is None else constants_of(debias)
    given = _label_rows(outputs, labels)
    if len(shape) != 1:  # a view that changes nothing would still cost a node of the graph
        outputs = outputs.reshape(rows, columns)

    def by_rows(f: Tensor, y: Tensor) -> Tensor:
        return again(f.view(-1, len(y), columns), y).view(rows)

    settings = Settings(dummy, surrogate, reduction, by_rows)
    value: Tensor = FusedLoss.apply(outputs.contiguous(), given, scale, offset, settings)  # type: ignore[no-untyped-call]
    return value.view(shape) if reduction == "none" and len(shape) != 1 else value


def _label_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Labels (some, q) that repeat themselves over the rows of the outputs: one batch may serve many models."""
    if labels.shape[:-1] != outputs.shape[outputs.ndim - labels.ndim : -1]:
        labels = labels.expand(*outputs.shape[:-1], -1)
    if labels.ndim != 2:
        labels = labels.reshape(-1, labels.shape[-1])
    labels = labels.contiguous()
    return labels.view(torch.uint8) if labels.dtype == torch.bool else labels


class _Constants(NamedTuple):
    rho_pos: Tensor
    rho_neg: Tensor
    versions: tuple[int, int]
    scale: Tensor
    offset: Tensor


_constants: WeakKeyDictionary[ClassConditionalDebiasing, _Constants] = WeakKeyDictionary()


def constants_of(debias: ClassConditionalDebiasing) -> tuple[Tensor, Tensor]:
    """scale and offset of p = scale y - offset, formed in float64 and rounded once; kept until a rate changes."""
    rho_pos, rho_neg = debias.rho_pos, debias.rho_neg
    if rho_pos.is_inference():  # such tensors do not say whether they have changed
        return _make_constants(rho_pos, rho_neg)
    versions = rho_pos._version, rho_neg._version
    kept = _constants.get(debias)
    if kept is not None and kept.rho_pos is rho_pos and kept.rho_neg is rho_neg and kept.versions == versions:
        return kept.scale, kept.offset
    with torch.inference_mode(False):
        made = _make_constants(rho_pos, rho_neg)
    # What a graph works out is there when it is replayed, and not before.
    if not (rho_pos.is_cuda and torch.cuda.is_current_stream_capturing()):
        _constants[debias] = _Constants(rho_pos, rho_neg, versions, *made)
    return made


def _make_constants(rho_pos: Tensor, rho_neg: Tensor) -> tuple[Tensor, Tensor]:
    scale = 1 / (1 - rho_pos - rho_neg)
    return scale.float(), (rho_neg * scale).float()
