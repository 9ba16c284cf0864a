"""pair_sum: the sum over label pairs that every ranking loss is made of, by the fastest way that is exact enough.

| phi | way | time | file |
| --- | --- | --- | --- |
| square | moments | O(q) | moments.py |
| hinge | sort and prefix sums | O(q log q) | sorted.py |
| sigmoid, logistic | Chebyshev moments | O(q M) | chebyshev.py |
| the last three with few labels, or very wide rows | double sum in tiles | O(q^2) | direct.py and others |
| a callable | double sum in blocks | O(q^2) | blocked.py |

All take O(q) memory a row. On a CUDA device the ranking loss comes here only for what ``losses/fused`` does not take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ccmn.losses.pairs.chebyshev import (
    Expansion,
    chebyshev_pair_sum,
    exact_expansion,
    largest_half_width,
    order_for,
)
from ccmn.losses.pairs.direct import PairSums, Wanted, blocked_pair_sum, direct_pair_sum
from ccmn.losses.pairs.sorted_sums import hinge_pair_sum, square_pair_sum
from ccmn.losses.surrogates import SURROGATES, Surrogate

# When is a fast way worth it? Costs are counted in pairs of the double sum in tiles, measured by
# benchmarks/crossover.py: so many per label, and so many to get started (on an accelerator: to launch its many small
# operations, while it goes through the pairs of the double sum in no time).
_FEWEST_FOR_MOMENTS = 10_000
_PAIRS_PER_SORTED_LABEL = 40
_INDICATORS_PER_SORTED_LABEL = 110
_PAIRS_PER_TERM = 1.6
_PAIRS_TO_START = {"sorted": (20_000, 20_000_000), "series": (180_000, 100_000_000)}


def pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate | Callable[[Tensor], Tensor]) -> Tensor:
    r"""Sum over ordered pairs of different labels, one value per row.

    .. math:: L = \sum_{j \neq k} p_j\, n_k\, \phi(f_j - f_k)

    Parameters
    ----------
    scores, pos, neg : tensors broadcastable to one shape (..., q)
        f, p and n: any real numbers; p = n = 0 takes a label out.
    surrogate : a row of ``SURROGATES``, or a callable phi

    Returns
    -------
    Tensor of shape (...)
        float32 for lower-precision scores: inner arithmetic is never below float32. Differentiable in all three
        tensors; second derivatives go through the double sum.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    same = scores.shape == pos.shape == neg.shape and scores.dtype == pos.dtype == neg.dtype == dtype
    if same and scores.ndim == 2:  # as it is: on small batches every view costs as much as the arithmetic
        return _pair_sum_of_rows(scores, pos, neg, surrogate)
    shape = torch.broadcast_shapes(scores.shape, pos.shape, neg.shape)  # type: ignore[no-untyped-call]
    rows = shape[:-1].numel()
    f, p, n = (t.to(dtype).expand(shape).reshape(rows, shape[-1]) for t in (scores, pos, neg))
    return _pair_sum_of_rows(f, p, n, surrogate).reshape(shape[:-1])


def _pair_sum_of_rows(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate | Callable[[Tensor], Tensor]
) -> Tensor:
    """Tensors (n, q) of one floating type -> (n,)."""
    if not isinstance(surrogate, Surrogate):
        return blocked_pair_sum(scores, pos, neg, surrogate)
    if torch.compiler.is_compiling():
        wants_weights = pos.requires_grad or neg.requires_grad
        result: Tensor = _pair_sums_op(scores, pos, neg, surrogate.name, scores.requires_grad, wants_weights)[0]
    else:
        result = _PairSum.apply(scores, pos, neg, surrogate)  # type: ignore[no-untyped-call]
    return result


def pair_row_sums(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate | Callable[[Tensor], Tensor]
) -> Tensor:
    r"""The sums over k of one positive label each, :math:`p_j \sum_{k \ne j} n_k \phi(f_j - f_k)`, shape (..., q).

    Values only, no gradient: what the corrections of the ranking loss look at.
    """
    with torch.enable_grad():
        leaf = pos.detach().to(torch.promote_types(scores.dtype, torch.float32)).requires_grad_()
        total = pair_sum(scores.detach(), leaf, neg.detach(), surrogate).sum()
        (by_pos,) = torch.autograd.grad(total, leaf)
    return leaf.detach() * by_pos


def fast_pair_sums(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, wanted: Wanted) -> PairSums:
    """Value and derivatives of rows (n, q), by the fastest way."""
    q = scores.shape[-1]
    if scores.numel() == 0:
        found = [torch.zeros_like(scores) if on else None for on in (wanted.by_scores, *2 * (wanted.by_weights,))]
        return PairSums(scores.new_zeros(len(scores)), *found)
    if surrogate.pair_method == "moments" and scores.numel() * q > _FEWEST_FOR_MOMENTS:
        return square_pair_sum(scores, pos, neg, wanted)
    # Without derivatives by the weights the hinge's pairs are mere indicators on a CPU, and cheaper.
    indicators = scores.device.type == "cpu" and not wanted.by_weights
    per_label = _INDICATORS_PER_SORTED_LABEL if indicators else _PAIRS_PER_SORTED_LABEL
    if surrogate.pair_method == "sorted" and _saves_pairs(scores, per_label, "sorted"):
        return hinge_pair_sum(scores, pos, neg, wanted)
    if surrogate.pair_method == "chebyshev" and (expansion := _choose_expansion(scores, surrogate)) is not None:
        return chebyshev_pair_sum(scores, pos, neg, surrogate.at_zero, expansion, wanted)
    return direct_pair_sum(scores, pos, neg, surrogate, wanted)


def _saves_pairs(scores: Tensor, per_label: float, way: str) -> bool:
    """Is a way that costs as much as ``per_label`` pairs per label cheaper than all q of them?"""
    start = _PAIRS_TO_START[way][scores.device.type != "cpu"]
    return scores.numel() * (scores.shape[-1] - per_label) > start


def _choose_expansion(scores: Tensor, surrogate: Surrogate) -> Expansion | None:
    """The series for these rows, or None where the double sum is the better way."""
    narrowest = order_for(1.0, scores.dtype)
    if not _saves_pairs(scores, _PAIRS_PER_TERM * narrowest, "series"):
        return None
    if scores.is_cuda and torch.cuda.is_current_stream_capturing():
        return None  # The width of the rows cannot be read while a CUDA graph is captured.
    half_width = largest_half_width(scores)
    expansion = exact_expansion(surrogate.name, scores, float(half_width))
    if expansion is None:
        return None
    order = len(expansion.coefficients)
    return expansion if _saves_pairs(scores, _PAIRS_PER_TERM * order, "series") else None


class _PairSum(torch.autograd.Function):
    """The derivatives are computed with the value, while what they need is at hand; backward only scales them."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate) -> Tensor:
        needs = ctx.needs_input_grad
        sums = fast_pair_sums(scores, pos, neg, surrogate, Wanted(needs[0], needs[1] or needs[2]))
        ctx.surrogate = surrogate
        ctx.save_for_backward(scores, pos, neg, sums.by_scores, sums.by_pos, sums.by_neg)
        return sums.value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, pos, neg, *found = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # create_graph=True: the double sum is differentiable as often as phi
            inputs = [t for t, need in zip((scores, pos, neg), needs) if need]
            value = blocked_pair_sum(scores, pos, neg, ctx.surrogate.phi)
            grads = iter(torch.autograd.grad(value, inputs, grad, create_graph=True, allow_unused=True))
            return (*(next(grads) if need else None for need in needs), None)
        return (*(grad.unsqueeze(-1) * d if need else None for d, need in zip(found, needs)), None)


@torch.library.custom_op("ccmn::pair_sums", mutates_args=())
def _pair_sums_op(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: str, want_scores: bool, want_weights: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``fast_pair_sums`` as one opaque operator, for torch.compile; what is not wanted comes back empty."""
    sums = fast_pair_sums(scores, pos, neg, SURROGATES[surrogate], Wanted(want_scores, want_weights))
    by_scores, by_pos, by_neg = (scores.new_empty(0) if t is None else t for t in sums[1:])
    return sums.value, by_scores, by_pos, by_neg


@_pair_sums_op.register_fake
def _(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: str, want_scores: bool, want_weights: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    by_scores = torch.empty_like(scores) if want_scores else scores.new_empty(0)
    by_pos, by_neg = (torch.empty_like(scores) if want_weights else scores.new_empty(0) for _ in range(2))
    return scores.new_empty(scores.shape[0]), by_scores, by_pos, by_neg


def _keep_derivatives(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.want_scores, ctx.want_weights = inputs[4:]


def _scale_derivatives(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    by_scores, by_pos, by_neg = ctx.saved_tensors
    g = grad.unsqueeze(-1)
    weights = (g * by_pos, g * by_neg) if ctx.want_weights else (None, None)
    return (g * by_scores if ctx.want_scores else None, *weights, None, None, None)


_pair_sums_op.register_autograd(_scale_derivatives, setup_context=_keep_derivatives)
