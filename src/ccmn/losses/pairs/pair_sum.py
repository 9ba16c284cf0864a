"""Sum over label pairs in the ranking losses, computed by the fastest of several accurate algorithms.

| phi | algorithm | time per row | module |
| --- | --- | --- | --- |
| square | moments | O(q) | exact_sums |
| hinge | sorting and prefix sums | O(q log q) | exact_sums |
| sigmoid, logistic | Chebyshev moments | O(q M) | chebyshev |
| any of these, few labels or a very wide range of scores | double sum in tiles | O(q^2) | direct |
| callable | double sum in blocks | O(q^2) | direct |

M is the number of terms of the Chebyshev series. All algorithms need O(q) memory per row. On a CUDA device, the fused
kernels of ``losses/triton`` compute most ranking losses instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ccmn.losses.pairs.chebyshev import Expansion, chebyshev_pair_sum, expansion_for_width, max_half_width, order_for
from ccmn.losses.pairs.direct import (
    MAX_PAIRS_WITHOUT_TILES,
    Needs,
    PairSums,
    blocked_pair_sum,
    direct_pair_sum,
    pair_block,
)
from ccmn.losses.pairs.exact_sums import hinge_pair_sum, square_pair_sum
from ccmn.losses.surrogates import SURROGATES, Surrogate

# Costs of the algorithms, measured by benchmarks/crossover.py. The unit is one pair of the double sum in tiles.
_MIN_PAIRS_FOR_MOMENTS = 10_000
"""The square surrogate uses moments above this number of pairs in the batch."""
_PAIRS_PER_SORTED_LABEL = 40
"""Cost per label of sorting, compared with a double sum that evaluates phi for every pair."""
_INDICATORS_PER_SORTED_LABEL = 110
"""Cost per label of sorting, compared with ``hinge_indicator_sum``, which is faster per pair."""
_PAIRS_PER_TERM = 1.6
"""Cost per label and term of a Chebyshev series."""
_SETUP_PAIRS = {"sorted": (20_000, 20_000_000), "series": (180_000, 100_000_000)}
"""Fixed cost of an algorithm: (CPU, accelerator). Kernel launches dominate the cost on an accelerator."""


def pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate | Callable[[Tensor], Tensor]) -> Tensor:
    r"""Return the sum over ordered pairs of different labels, one value per row.

    .. math:: L = \sum_{j \neq k} p_j\, n_k\, \phi(f_j - f_k)

    Parameters
    ----------
    scores, pos, neg : Tensors that broadcast to a shape (..., q)
        Scores f, positive weights p and negative weights n, any real numbers. p = n = 0 removes a label.
    surrogate : Surrogate or callable
        Margin loss phi.

    Returns
    -------
    Tensor of shape (...)
        Value of every row, in float32 or higher precision. It is differentiable in all three tensors; second
        derivatives use the double sum.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    # Matrices of equal shape and dtype are not reshaped: for small batches, a view takes as long as the arithmetic.
    same = scores.shape == pos.shape == neg.shape and scores.dtype == pos.dtype == neg.dtype == dtype
    if not same or scores.ndim != 2:
        shape = torch.broadcast_shapes(scores.shape, pos.shape, neg.shape)  # type: ignore[no-untyped-call]
        rows = shape[:-1].numel()
        f, p, n = (t.to(dtype).expand(shape).reshape(rows, shape[-1]) for t in (scores, pos, neg))
        return pair_sum(f, p, n, surrogate).reshape(shape[:-1])
    if not isinstance(surrogate, Surrogate):
        return blocked_pair_sum(scores, pos, neg, surrogate)
    if torch.compiler.is_compiling():
        return _compiled_pair_sum(scores, pos, neg, surrogate)
    result: Tensor = _PairSum.apply(scores, pos, neg, surrogate)  # type: ignore[no-untyped-call]
    return result


def _compiled_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate) -> Tensor:
    """Return the pair sum by operations that torch.compile can fuse, if they are the fastest, or by an operator."""
    q = scores.shape[1]
    if surrogate.pair_method == "moments" and not (pos.requires_grad or neg.requires_grad):
        moments: Tensor = _CompiledMoments.apply(scores, pos, neg)  # type: ignore[no-untyped-call]
        return moments
    if is_compiled_block(scores, surrogate):
        return pair_block(scores, pos, neg, surrogate.phi, 0, q)
    needs = Needs(scores.requires_grad, pos.requires_grad or neg.requires_grad)
    result: Tensor = _CompiledPairSum.apply(scores, pos, neg, surrogate.name, needs)  # type: ignore[no-untyped-call]
    return result


def is_compiled_block(scores: Tensor, surrogate: Surrogate | Callable[[Tensor], Tensor]) -> bool:
    """Return whether torch.compile computes the pair sums of rows (n, q) as one block of all pairs."""
    moments = isinstance(surrogate, Surrogate) and surrogate.pair_method == "moments"
    return not moments and scores.numel() * scores.shape[-1] <= MAX_PAIRS_WITHOUT_TILES


def pair_sums_by_label(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate | Callable[[Tensor], Tensor]
) -> Tensor:
    r"""Return the part of every label in the pair sum, :math:`p_j \sum_{k \ne j} n_k \phi(f_j - f_k)`, detached.

    Parameters
    ----------
    scores, pos, neg : Tensors of shape (..., q)
        Scores, positive weights and negative weights.
    surrogate : Surrogate or callable
        Margin loss phi.

    Returns
    -------
    Tensor of shape (..., q)
        Parts; their sum over labels is ``pair_sum``.
    """
    with torch.enable_grad():
        leaf = pos.detach().to(torch.promote_types(scores.dtype, torch.float32)).requires_grad_()
        total = pair_sum(scores.detach(), leaf, neg.detach(), surrogate).sum()
        (by_pos,) = torch.autograd.grad(total, leaf)
    return leaf.detach() * by_pos


class _PairSum(torch.autograd.Function):
    """Differentiable pair sums; ``forward`` also computes the derivatives, which share terms with the value."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate) -> Tensor:
        needs = ctx.needs_input_grad
        sums = fast_pair_sums(scores, pos, neg, surrogate, Needs(needs[0], needs[1] or needs[2]))
        ctx.surrogate = surrogate
        ctx.save_for_backward(scores, pos, neg, sums.by_scores, sums.by_pos, sums.by_neg)
        return sums.value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, pos, neg, *derivatives = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # create_graph=True: the double sum has all derivatives of phi
            inputs = [t for t, need in zip((scores, pos, neg), needs) if need]
            value = blocked_pair_sum(scores, pos, neg, ctx.surrogate.phi)
            grads = iter(torch.autograd.grad(value, inputs, grad, create_graph=True, allow_unused=True))
            return (*(next(grads) if need else None for need in needs), None)
        return (*(grad.unsqueeze(-1) * d if need else None for d, need in zip(derivatives, needs)), None)


def fast_pair_sums(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, needs: Needs) -> PairSums:
    """Return the pair sums of rows (n, q) and their derivatives, by the algorithm with the lowest cost."""
    q = scores.shape[-1]
    if scores.numel() == 0:
        zeros = [torch.zeros_like(scores) if need else None for need in (needs.by_scores, *2 * (needs.by_weights,))]
        return PairSums(scores.new_zeros(len(scores)), *zeros)
    if surrogate.pair_method == "moments" and scores.numel() * q > _MIN_PAIRS_FOR_MOMENTS:
        return square_pair_sum(scores, pos, neg, needs)
    if surrogate.pair_method == "sorted":
        indicators = scores.device.type == "cpu" and not needs.by_weights
        per_label = _INDICATORS_PER_SORTED_LABEL if indicators else _PAIRS_PER_SORTED_LABEL
        if _is_cheaper(scores, per_label, "sorted"):
            return hinge_pair_sum(scores, pos, neg, needs)
    if surrogate.pair_method == "chebyshev" and (expansion := _select_expansion(scores, surrogate)) is not None:
        return chebyshev_pair_sum(scores, pos, neg, surrogate.at_zero, expansion, needs)
    return direct_pair_sum(scores, pos, neg, surrogate, needs)


def _is_cheaper(scores: Tensor, per_label: float, algorithm: str) -> bool:
    """Return whether an algorithm with the cost of ``per_label`` pairs per label is cheaper than the double sum."""
    setup = _SETUP_PAIRS[algorithm][scores.device.type != "cpu"]
    return scores.numel() * (scores.shape[-1] - per_label) > setup


def _select_expansion(scores: Tensor, surrogate: Surrogate) -> Expansion | None:
    """Return the Chebyshev expansion for these rows, or None if the double sum is cheaper."""
    min_order = order_for(1.0, scores.dtype)
    if not _is_cheaper(scores, _PAIRS_PER_TERM * min_order, "series"):
        return None
    if scores.is_cuda and torch.cuda.is_current_stream_capturing():
        return None  # The width of the rows cannot be read during CUDA graph capture.
    expansion = expansion_for_width(surrogate.name, scores, float(max_half_width(scores)))
    if expansion is None or not _is_cheaper(scores, _PAIRS_PER_TERM * len(expansion.coefficients), "series"):
        return None
    return expansion


class _CompiledMoments(torch.autograd.Function):
    """Pair sums of the square surrogate for torch.compile, which fuses the moments with the derivative."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        sums = square_pair_sum(scores, pos, neg, Needs(True, False))
        ctx.save_for_backward(sums.by_scores)
        return sums.value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (by_scores,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * by_scores, None, None


class _CompiledPairSum(torch.autograd.Function):
    """The same for torch.compile, which does not look into the operator ``ccmn::pair_sums``."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, pos: Tensor, neg: Tensor, surrogate: str, needs: Needs) -> Tensor:
        value, *derivatives = torch.ops.ccmn.pair_sums(scores, pos, neg, surrogate, *needs)
        ctx.needs = needs
        ctx.save_for_backward(*derivatives)
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_scores, by_pos, by_neg = ctx.saved_tensors
        g = grad.unsqueeze(-1)
        weights = (g * by_pos, g * by_neg) if ctx.needs.by_weights else (None, None)
        return (g * by_scores if ctx.needs.by_scores else None, *weights, None, None)


# The wrappers of torch.library.custom_op take 40 microseconds per call, as long as the sums of a small batch.
_LIBRARY: Any = torch.library.Library("ccmn", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "pair_sums(Tensor scores, Tensor pos, Tensor neg, str surrogate, bool by_scores, bool by_weights) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)


def _pair_sums_op(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: str, by_scores: bool, by_weights: bool
) -> tuple[Tensor, ...]:
    """Compute ``fast_pair_sums``; derivatives that are not needed are empty."""
    sums = fast_pair_sums(scores, pos, neg, SURROGATES[surrogate], Needs(by_scores, by_weights))
    return sums.value, *(scores.new_empty(0) if t is None else t.contiguous() for t in sums[1:])


_LIBRARY.impl("pair_sums", _pair_sums_op, "CompositeExplicitAutograd")


@torch.library.register_fake("ccmn::pair_sums", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: str, by_scores: bool, by_weights: bool
) -> tuple[Tensor, ...]:
    sizes = [scores.shape if need else (0,) for need in (by_scores, by_weights, by_weights)]
    return scores.new_empty(scores.shape[:1]), *(scores.new_empty(size) for size in sizes)
