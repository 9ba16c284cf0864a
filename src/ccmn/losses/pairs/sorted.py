r"""Hinge surrogate: sort once, then prefix sums. O(q log q) time, O(q) memory, exact."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ccmn.losses.pairs.result import PairSums, Wanted


def hinge_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, wanted: Wanted) -> PairSums:
    r"""Pair sums of :math:`\phi(t) = \max(0, 1 - t)`.

    A pair counts when :math:`f_k > f_j - 1`. On sorted scores the k that count for j are a suffix, found by
    binary search, and the j that count for k a prefix:

    .. math:: L = \sum_j p_j [(1 - f_j) S_0(j) + S_1(j)] - \sum_j p_j n_j, \quad
              S_i(j) = \sum_{k: f_k > f_j - 1} n_k f_k^i

    .. math:: \partial L / \partial f_j = -p_j S_0(j) + n_j R_0(j), \quad R_0(k) = \sum_{j: f_k > f_j - 1} p_j

    (The diagonal is in both terms of the gradient and cancels.) Prefix sums are float64: they lose no digits in
    long rows.
    """
    low, high = torch.aminmax(scores, dim=-1, keepdim=True)
    f, order = torch.sort(scores - (low + high) / 2, dim=-1)
    p, n = pos.gather(-1, order), neg.gather(-1, order)
    # How many scores are <= f_j - 1: where the suffix of j begins. Ascending, as f is.
    begin = torch.searchsorted(f, f - 1, right=True)
    wide = f.double()
    S0, S1 = (_suffix_sums(t).gather(-1, begin) for t in (n.double(), n * wide))
    by_pos = (1 - wide) * S0 + S1 - n
    value = (p * by_pos).sum(-1).to(scores.dtype)
    by_scores = by_neg = None
    if wanted.by_scores or wanted.by_weights:
        # The j whose suffix has begun at k: a prefix, read off the same boundaries, so that value and
        # gradient agree on which side of the kink every pair is.
        position = torch.arange(f.shape[-1], device=f.device).expand_as(begin).contiguous()
        ended = torch.searchsorted(begin, position, right=True)
        R0 = _prefix_sums(p.double()).gather(-1, ended)
        if wanted.by_scores:
            by_scores = _unsort(n * R0 - p * S0, order, scores)
        if wanted.by_weights:
            R1 = _prefix_sums(p * wide).gather(-1, ended)
            by_neg = _unsort((1 + wide) * R0 - R1 - p, order, scores)
    return PairSums(value, by_scores, _unsort(by_pos, order, scores) if wanted.by_weights else None, by_neg)


def _prefix_sums(values: Tensor) -> Tensor:
    """[i] = sum of the first i values, i = 0 .. q."""
    return pad(values.cumsum(-1), (1, 0))


def _suffix_sums(values: Tensor) -> Tensor:
    """[i] = sum of all but the first i values."""
    prefix = _prefix_sums(values)
    return prefix[..., -1:] - prefix


def _unsort(values: Tensor, order: Tensor, like: Tensor) -> Tensor:
    return torch.empty_like(like).scatter_(-1, order, values.to(like.dtype))
