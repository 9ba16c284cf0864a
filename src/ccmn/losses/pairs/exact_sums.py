"""Exact pair sums in less than quadratic time.

For the square surrogate the pair sum is a polynomial of six moments: O(q) time. For the hinge it follows from sorted
scores and prefix sums: O(q log q) time. Both need O(q) memory.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ccmn.losses.pairs.direct import Needs, PairSums


def square_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, needs: Needs) -> PairSums:
    r"""Return the pair sums of :math:`\phi(t) = (1 - t)^2`.

    With :math:`P_i = \sum_j p_j f_j^i` and :math:`N_i = \sum_k n_k f_k^i`,

    .. math:: \sum_{j,k} p_j n_k (1 - f_j + f_k)^2
              = P_0 N_0 + P_2 N_0 + P_0 N_2 - 2 P_1 N_0 + 2 P_0 N_1 - 2 P_1 N_1

    minus the diagonal :math:`\sum_j p_j n_j`. Scores are centered first, which reduces rounding errors; the sum depends
    only on their differences.
    """
    f = scores - scores.mean(-1, keepdim=True).detach()  # the sum does not depend on the center
    pf, nf = pos * f, neg * f
    P0, P1, P2 = (t.sum(-1, keepdim=True) for t in (pos, pf, pf * f))
    N0, N1, N2 = (t.sum(-1, keepdim=True) for t in (neg, nf, nf * f))
    # The sum over k of n_k (1 - f_j + f_k)^2 is the polynomial a_pos - 2 b_pos f_j + N0 f_j^2; similarly for n.
    a_pos, b_pos = N0 + 2 * N1 + N2, N0 + N1
    a_neg, b_neg = P0 - 2 * P1 + P2, P0 - P1
    value = P0 * a_pos - 2 * P1 * b_pos + P2 * N0 - (pos * neg).sum(-1, keepdim=True)
    by_scores = by_pos = by_neg = None
    if needs.by_scores:
        # 2 p_j (f_j N0 - b_pos) + 2 n_j (f_j P0 + b_neg), in few passes.
        by_scores = torch.addcmul(-2 * b_pos, f, 2 * N0).mul_(pos)
        by_scores.addcmul_(torch.addcmul(2 * b_neg, f, 2 * P0), neg)
    if needs.by_weights:
        by_pos = a_pos - 2 * b_pos * f + N0 * f.square() - neg
        by_neg = a_neg + 2 * b_neg * f + P0 * f.square() - pos
    return PairSums(value.squeeze(-1), by_scores, by_pos, by_neg)


def hinge_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, needs: Needs) -> PairSums:
    r"""Return the pair sums of :math:`\phi(t) = \max(0, 1 - t)`.

    A pair contributes when :math:`f_k > f_j - 1`. In sorted order the labels k that contribute for j are a suffix,
    found by binary search, and the labels j that contribute for k are a prefix:

    .. math:: L = \sum_j p_j [(1 - f_j) S_0(j) + S_1(j)] - \sum_j p_j n_j, \quad
              S_i(j) = \sum_{k: f_k > f_j - 1} n_k f_k^i

    .. math:: \partial L / \partial f_j = -p_j S_0(j) + n_j R_0(j), \quad R_0(k) = \sum_{j: f_k > f_j - 1} p_j

    The diagonal cancels in the gradient. Prefix sums are computed in float64, because float32 loses digits in long
    rows.
    """
    scores, pos, neg = (t.contiguous() for t in (scores, pos, neg))  # sorting would copy every row
    low, high = torch.aminmax(scores, dim=-1, keepdim=True)
    f, order = torch.sort(scores - (low + high) / 2, dim=-1)
    p, n = pos.gather(-1, order), neg.gather(-1, order)
    # Number of scores <= f_j - 1, the index at which the suffix of j begins. It is ascending, because f is.
    begin = torch.searchsorted(f, f - 1, right=True)
    f64 = f.double()
    S0, S1 = (_suffix_sums(t).gather(-1, begin) for t in (n.double(), n * f64))
    by_pos = (1 - f64) * S0 + S1 - n
    value = (p * by_pos).sum(-1).to(scores.dtype)
    by_scores = by_neg = None
    if needs.by_scores or needs.by_weights:
        # The labels j whose suffix contains k are a prefix. It is computed from the same boundaries, so that value
        # and gradient agree for pairs at the kink.
        position = torch.arange(f.shape[-1], device=f.device).expand_as(begin).contiguous()
        ended = torch.searchsorted(begin, position, right=True)
        R0 = _prefix_sums(p.double()).gather(-1, ended)
        if needs.by_scores:
            by_scores = _unsort(n * R0 - p * S0, order, scores)
        if needs.by_weights:
            R1 = _prefix_sums(p * f64).gather(-1, ended)
            by_neg = _unsort((1 + f64) * R0 - R1 - p, order, scores)
    return PairSums(value, by_scores, _unsort(by_pos, order, scores) if needs.by_weights else None, by_neg)


def _prefix_sums(values: Tensor) -> Tensor:
    """Return the sums of the first i values, i = 0 .. q."""
    return pad(values.cumsum(-1), (1, 0))


def _suffix_sums(values: Tensor) -> Tensor:
    """Return the sums of all but the first i values, i = 0 .. q."""
    prefix = _prefix_sums(values)
    return prefix[..., -1:] - prefix


def _unsort(values: Tensor, order: Tensor, like: Tensor) -> Tensor:
    return torch.empty_like(like).scatter_(-1, order, values.to(like.dtype))
