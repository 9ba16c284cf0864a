"""Sums over labels and over label pairs on a CPU, computed by the fastest of several accurate algorithms.

| phi | algorithm | time per row | function |
| --- | --- | --- | --- |
| square | polynomial of six moments | O(q) | square_pair_sum |
| hinge | sorting and prefix sums | O(q log q) | hinge_pair_sum |
| sigmoid, logistic | Chebyshev moments | O(q M) | chebyshev.chebyshev_pair_sum |
| few labels, or a very wide range of scores | double sum in tiles | O(q^2) | double_sum |
| callable | double sum in blocks | O(q^2) | blocked_pair_sum |

M is the number of terms of the Chebyshev series. All algorithms need O(q) memory per row. On a CUDA device, the fused
kernels of ``losses/_fast`` compute most ranking losses instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, pad
from torch.utils.checkpoint import checkpoint

from ccmn.losses._fast.chebyshev import (
    MAX_WIDTH,
    Needs,
    PairSums,
    chebyshev_pair_sum,
    expansion_for_width,
    order_for,
    rows_per_tile,
)
from ccmn.losses.surrogates import SURROGATES, Surrogate

MAX_PAIRS_WITHOUT_TILES = 1 << 18
"""For batches with at most this number of pairs, the definition is compiled, or used for callables."""
_MAX_BLOCK_PAIRS = 1 << 22
"""Number of pairs in memory at once in ``blocked_pair_sum``."""
_TILE_SIZE = 1 << 17, 1 << 24
"""Number of pairs in memory at once: on a CPU they stay in the cache, and an accelerator is busy."""
_MIN_ORDER = 14
"""Number of terms of the shortest series."""
_SETUP_PAIRS = {"cpu": 100_000, "cuda": 100_000_000}
"""Fixed cost of a series in pairs of the double sum; on an accelerator kernel launches dominate."""

Phi = Callable[[Tensor], Tensor]


def two_sided_sum(f: Tensor, p: Tensor, n: Tensor, phi: Phi) -> Tensor | None:
    """Return the sum over labels of p phi(f) + n phi(-f), where n = 1 - p, or p = n = 0; None if there is no fast form.

    Value and derivative share terms, and are computed in one pass.
    """
    if not isinstance(phi, Surrogate) or p.requires_grad or f.shape != p.shape or torch.compiler.is_compiling():
        return None  # torch.compile fuses the definition
    if phi.name == "logistic":
        return binary_cross_entropy_with_logits(f, p, p + n, reduction="none").sum(-1)
    return _TwoSidedSum.apply(f, p, n, phi)  # type: ignore[no-untyped-call, no-any-return]


class _TwoSidedSum(torch.autograd.Function):
    """Sum over labels; ``forward`` also computes the derivative."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, p: Tensor, n: Tensor, phi: Surrogate) -> Tensor:
        value, slope = _TWO_SIDED[phi.name](f, p, n)
        ctx.phi = phi
        ctx.save_for_backward(slope, f, p, n)
        return value.sum(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slope, f, p, n = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            value = (p * ctx.phi.phi(f) + n * ctx.phi.phi(-f)).sum(-1)
            return *torch.autograd.grad(value, f, grad, create_graph=True), None, None, None
        return grad.unsqueeze(-1) * slope, None, None, None


def _square_and_slope(f: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    both, difference = pos + neg, pos - neg
    half_slope = torch.addcmul(-difference, both, f)
    return torch.addcmul(both, half_slope - difference, f), half_slope.mul_(2)


def _hinge_and_slope(f: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    # With the weights of inactive terms set to 0, the value is pos + neg + f (neg - pos). Comparisons are written as
    # floating-point numbers, because these operations are vectorized on a CPU and boolean ones are not.
    pos = pos * torch.lt(f, 1, out=torch.empty_like(f))
    neg = neg * torch.gt(f, -1, out=torch.empty_like(f))
    slope = neg - pos
    return torch.addcmul(pos + neg, slope, f), slope


_TWO_SIDED: dict[str, Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "square": _square_and_slope,
    "hinge": _hinge_and_slope,
    "sigmoid": lambda f, p, n: (p + (w := (n - p) * (s := torch.sigmoid(f))), torch.addcmul(w, w, s, value=-1)),
}
"""Functions (f, p, n) that return p phi(f) + n phi(-f) and its derivative with respect to f."""


def pair_sum(f: Tensor, p: Tensor, n: Tensor, phi: Phi) -> Tensor | None:
    r"""Return the sum over ordered pairs of different labels, or None if the definition is faster.

    .. math:: L = \sum_{j \neq k} p_j\, n_k\, \phi(f_j - f_k)

    It is differentiable in all three tensors, which broadcast; second derivatives use the double sum.
    """
    dtype = torch.promote_types(f.dtype, torch.float32)
    # Matrices of equal shape and dtype are not reshaped: for small batches, a view takes as long as the arithmetic.
    same = f.shape == p.shape == n.shape and f.dtype == p.dtype == n.dtype == dtype
    if not same or f.ndim != 2:
        shape = torch.broadcast_shapes(f.shape, p.shape, n.shape)  # type: ignore[no-untyped-call]
        f, p, n = (t.to(dtype).expand(shape).reshape(shape[:-1].numel(), shape[-1]) for t in (f, p, n))
        value = pair_sum(f, p, n, phi)
        return None if value is None else value.reshape(shape[:-1])
    if isinstance(phi, Surrogate) and phi.name == "square":
        return square_pair_sum(f, p, n)
    if f.numel() * f.shape[1] <= MAX_PAIRS_WITHOUT_TILES and (
        not isinstance(phi, Surrogate) or phi.name == "hinge" or torch.compiler.is_compiling()
    ):
        return None
    if not isinstance(phi, Surrogate):
        return blocked_pair_sum(f, p, n, phi)
    if phi.name == "hinge":
        return hinge_pair_sum(f, p, n)
    needs = Needs(f.requires_grad, p.requires_grad or n.requires_grad)
    return _PairSum.apply(f, p, n, phi, needs)  # type: ignore[no-untyped-call, no-any-return]


class _PairSum(torch.autograd.Function):
    """Differentiable pair sums; ``forward`` also computes the derivatives, which share terms with the value."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, needs: Needs) -> Tensor:
        ctx.surrogate, ctx.needs = surrogate, needs
        if torch.compiler.is_compiling():  # torch.compile does not look into the operator
            value, *derivatives = _pair_sums_op(scores, pos, neg, surrogate.name, *needs)
            ctx.save_for_backward(*derivatives)
        else:
            value, *derivatives = fast_pair_sums(scores, pos, neg, surrogate, needs)
            ctx.save_for_backward(*derivatives, scores, pos, neg)
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_scores, by_pos, by_neg, *inputs = ctx.saved_tensors
        if inputs and torch.is_grad_enabled():  # create_graph=True: the double sum has all derivatives of phi
            inputs = [t.view_as(t) for t in inputs]  # n may be a function of p
            needed = [t for t, need in zip(inputs, ctx.needs_input_grad) if need]
            scores, pos, neg = inputs
            value = blocked_pair_sum(scores, pos, neg, ctx.surrogate.phi)
            grads = iter(torch.autograd.grad(value, needed, grad, create_graph=True, allow_unused=True))
            return (*(next(grads) if need else None for need in ctx.needs_input_grad[:3]), None, None)
        g = grad.unsqueeze(-1)
        weights = (g * by_pos, g * by_neg) if ctx.needs.by_weights else (None, None)
        return (g * by_scores if ctx.needs.by_scores else None, *weights, None, None)


def fast_pair_sums(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, needs: Needs) -> PairSums:
    """Return the pair sums of rows (n, q) for the sigmoid or logistic phi, and their derivatives."""
    rows, q = scores.shape
    capturing = scores.is_cuda and torch.cuda.is_current_stream_capturing()  # the widths of the rows cannot be read
    if capturing or rows * q * (q - _MIN_ORDER) <= _SETUP_PAIRS[scores.device.type]:
        return double_sum(scores, pos, neg, surrogate.name, needs)
    # Every run of rows has the order of its own width.
    low, high = torch.aminmax(scores, dim=-1)
    widths = ((high - low) / 2).tolist()
    widest = max((w for w in widths if w <= MAX_WIDTH), default=1.0)
    step, parts = rows_per_tile(scores, order_for(max(widest, 1.0), scores.dtype)), []
    for start in range(0, rows, step):
        f, p, n = (t[start : start + step] for t in (scores, pos, neg))
        expansion = expansion_for_width(surrogate.name, f, max(widths[start : start + step]))
        if expansion is None or q < expansion.order:
            parts.append(double_sum(f, p, n, surrogate.name, needs))
        else:
            parts.append(chebyshev_pair_sum(f, p, n, surrogate.at_zero, expansion, needs))
    return joined(parts)


def joined(parts: list[PairSums]) -> PairSums:
    """Return the pair sums of consecutive runs of rows as one."""
    if len(parts) == 1:
        return parts[0]
    value, *others = ([t for t in tensors if t is not None] for tensors in zip(*parts))
    return PairSums(torch.cat(value), *(torch.cat(tensors) if tensors else None for tensors in others))


_PHI: dict[str, tuple[Phi, float, Phi]] = {
    "sigmoid": (torch.sigmoid_, 0.5, lambda phi: phi.addcmul_(phi, phi, value=-1)),
    "logistic": (
        lambda t: torch.logaddexp(t, t.new_zeros(()), out=t),
        math.log(2),
        lambda phi: phi.neg_().expm1_().neg_(),
    ),
}
"""Function that replaces -t by phi(t); phi(0); and function that replaces phi(t) by -phi'(t)."""


def double_sum(scores: Tensor, pos: Tensor, neg: Tensor, surrogate: str, needs: Needs) -> PairSums:
    """Return the pair sums of the sigmoid or logistic phi from all pairs, in tiles that stay in the cache."""
    rows, q = scores.shape
    tile = _TILE_SIZE[scores.device.type != "cpu"]
    if rows > 1 and rows * q * q > tile:
        runs = zip(*(torch.split(t, max(1, tile // (q * q))) for t in (scores, pos, neg)))
        return joined([double_sum(f, p, n, surrogate, needs) for f, p, n in runs])
    # The rows are the last dimension, so that the inner loop runs over rows and not over a few labels.
    f, p, n = (t.t().contiguous() for t in (scores, pos, neg))
    phi_of, at_zero, slope_of = _PHI[surrogate]
    values, up, down, by_pos, by_neg = [], [], [], [], []
    size = q if rows * q * q <= tile else max(1, tile // q)
    for f_j, p_j in ((f, p),) if size == q else zip(torch.split(f, size), torch.split(p, size)):
        p_j = p_j.unsqueeze(1)
        pairs, phi = p_j * n, phi_of(f - f_j.unsqueeze(1))
        values.append((pairs * phi).sum((0, 1)))
        if needs.by_weights:
            by_pos.append((phi * n).sum(1))
            by_neg.append((phi * p_j).sum(0))
        if needs.by_scores:
            slopes = pairs.mul_(slope_of(phi))
            up.append(slopes.sum(0))
            down.append(slopes.sum(1))
    value = reduce(torch.add, values).sub_((p * n).sum(0), alpha=at_zero)
    by_scores = reduce(torch.add, up).sub_(torch.cat(down)).t() if needs.by_scores else None
    if not needs.by_weights:
        return PairSums(value, by_scores, None, None)
    weights = torch.cat(by_pos).sub_(n, alpha=at_zero), reduce(torch.add, by_neg).sub_(p, alpha=at_zero)
    return PairSums(value, by_scores, *(t.t() for t in weights))


@torch.library.custom_op("ccmn::pair_sums", mutates_args=())
def _pair_sums_op(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: str, by_scores: bool, by_weights: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute ``fast_pair_sums`` for torch.compile; derivatives that are not needed are empty."""
    sums = fast_pair_sums(scores, pos, neg, SURROGATES[surrogate], Needs(by_scores, by_weights))
    return sums.value, *(scores.new_empty(0) if t is None else t.contiguous() for t in sums[1:])  # type: ignore[return-value]


@_pair_sums_op.register_fake
def _(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: str, by_scores: bool, by_weights: bool
) -> tuple[Tensor, ...]:
    sizes = [scores.shape if need else (0,) for need in (by_scores, by_weights, by_weights)]
    return scores.new_empty(scores.shape[:1]), *(scores.new_empty(size) for size in sizes)


def blocked_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the pair sum of each row for any phi, by differentiable operations.

    The backward pass recomputes the blocks, so memory stays O(q). The parameters of a learned phi get gradients.
    """
    rows, q = scores.shape
    size = max(1, _MAX_BLOCK_PAIRS // max(1, rows * q))
    if size >= q:
        return pair_block(scores, pos, neg, phi, 0, q)
    total = scores.new_zeros(rows)
    for start in range(0, q, size):
        part = checkpoint(pair_block, scores, pos, neg, phi, start, min(start + size, q), use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    return total


def pair_block(
    scores: Tensor, pos: Tensor, neg: Tensor, phi: Callable[[Tensor], Tensor], start: int, stop: int
) -> Tensor:
    """Return the part of the sum with positive labels j in [start, stop)."""
    values = phi(scores[:, start:stop, None] - scores[:, None, :])
    labels = torch.arange(scores.shape[1], device=scores.device)
    # p_j n_j is 0 for 0/1 labels, but not for debiased labels, so j = k is excluded explicitly.
    values = values.masked_fill(labels[start:stop, None] == labels, 0)
    return (pos[:, start:stop] * (values * neg[:, None, :]).sum(-1)).sum(-1)


def square_pair_sum(f: Tensor, p: Tensor, n: Tensor) -> Tensor:
    r"""Return the pair sum of :math:`\phi(t) = (1 - t)^2` of every row, by differentiable operations.

    With :math:`P_i = \sum_j p_j f_j^i` and :math:`N_i = \sum_k n_k f_k^i`,

    .. math:: \sum_{j,k} p_j n_k (1 - f_j + f_k)^2
              = P_0 (N_0 + 2 N_1 + N_2) - 2 P_1 (N_0 + N_1) + P_2 N_0

    minus the diagonal :math:`\sum_j p_j n_j`. Scores are centered first, which reduces rounding errors; the sum depends
    only on their differences.
    """
    f = f - f.mean(-1, keepdim=True).detach()
    pf, nf = p * f, n * f
    P0, P1, P2 = (t.sum(-1) for t in (p, pf, pf * f))
    N0, N1, N2 = (t.sum(-1) for t in (n, nf, nf * f))
    return P0 * (N0 + 2 * N1 + N2) - 2 * P1 * (N0 + N1) + P2 * N0 - (p * n).sum(-1)


def hinge_pair_sum(f: Tensor, p: Tensor, n: Tensor) -> Tensor:
    r"""Return the pair sum of :math:`\phi(t) = \max(0, 1 - t)` of every row, by differentiable operations.

    A pair contributes when :math:`f_k > f_j - 1`. In sorted order, these labels k are a suffix for each j, found by
    binary search:

    .. math:: L = \sum_j p_j [(1 - f_j) S_0(j) + S_1(j) - n_j], \quad
              S_i(j) = \sum_{k: f_k > f_j - 1} n_k f_k^i

    Scores are centered in float64 at the middle of their range: rounding would move pairs across the kink.
    """
    ascending, order = torch.sort(f.contiguous(), dim=-1)
    p, n = (t.gather(-1, order).double() for t in (p, n))
    scores = ascending.double()
    scores = scores - (scores[..., :1] + scores[..., -1:]).detach() / 2
    begin = torch.searchsorted(scores.detach(), scores.detach() - 1, right=True)
    S0, S1 = (pad(t.flip(-1).cumsum(-1).flip(-1), (0, 1)).gather(-1, begin) for t in (n, n * scores))
    return (p * ((1 - scores) * S0 + S1 - n)).sum(-1).to(f.dtype)
