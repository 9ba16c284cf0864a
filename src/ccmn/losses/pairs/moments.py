r"""Square surrogate: the pair sum is a polynomial of a few moments. O(q) time and memory, exact."""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses.pairs.result import PairSums, Wanted


def square_pair_sum(scores: Tensor, pos: Tensor, neg: Tensor, wanted: Wanted) -> PairSums:
    r"""Pair sums of :math:`\phi(t) = (1 - t)^2`.

    With :math:`P_i = \sum_j p_j f_j^i` and :math:`N_i = \sum_k n_k f_k^i`,

    .. math:: \sum_{j,k} p_j n_k (1 - f_j + f_k)^2
              = P_0 N_0 + P_2 N_0 + P_0 N_2 - 2 P_1 N_0 + 2 P_0 N_1 - 2 P_1 N_1

    and the diagonal takes away :math:`\sum_j p_j n_j`. Scores are centred first: the sum depends on differences
    only, and small moments keep their digits.
    """
    f = scores - scores.mean(-1, keepdim=True)
    pf, nf = pos * f, neg * f
    P0, P1, P2 = (t.sum(-1, keepdim=True) for t in (pos, pf, pf * f))
    N0, N1, N2 = (t.sum(-1, keepdim=True) for t in (neg, nf, nf * f))
    # For p: the sum over k of n_k (1 - f_j + f_k)^2, a polynomial a - 2 b f + N0 f^2; for n alike.
    a_pos, b_pos = N0 + 2 * N1 + N2, N0 + N1
    a_neg, b_neg = P0 - 2 * P1 + P2, P0 - P1
    value = P0 * a_pos - 2 * P1 * b_pos + P2 * N0 - (pos * neg).sum(-1, keepdim=True)
    by_scores = by_pos = by_neg = None
    if wanted.by_scores:
        # 2 p_j (f_j N0 - b) + 2 n_j (f_j P0 + b'), in few passes.
        by_scores = torch.addcmul(-2 * b_pos, f, 2 * N0).mul_(pos)
        by_scores.addcmul_(torch.addcmul(2 * b_neg, f, 2 * P0), neg)
    if wanted.by_weights:
        by_pos = a_pos - 2 * b_pos * f + N0 * f.square() - neg
        by_neg = a_neg + 2 * b_neg * f + P0 * f.square() - pos
    return PairSums(value.squeeze(-1), by_scores, by_pos, by_neg)
