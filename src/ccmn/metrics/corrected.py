"""Metrics on debiased labels, for a stack of models at once: what training chooses epochs and learning rates by.

Labels here are real numbers p with E[p | y] = y, NaN where a label is not observed; for clean labels they are 0 and 1
and nothing is corrected. Each function takes p (n, q) and scores or predictions (..., n, q); (...) in float64 comes
back.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def corrected_hamming(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Unbiased Hamming loss: the mean of :math:`p_j (1 - h_j) + (1 - p_j) h_j` over the labels observed.

    Unbiased because it is linear in the labels; it may be negative on few rows.
    """
    seen = ~p.isnan()
    p = p.double().nan_to_num(0.0)
    wrong = torch.where(seen, p + (1 - 2 * p) * predicted.double(), 0.0)
    share = seen.double() if weights is None else seen * weights.double().unsqueeze(-1)
    return (wrong * share).sum((-1, -2)) / share.sum().clamp_min(torch.finfo(torch.float64).tiny)


def corrected_one_error(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    """Unbiased one-error: the mean of 1 - p of the top-scored label (ties shared), rows with NaN left out."""
    seen = ~p.isnan().any(-1)
    top = scores == scores.amax(-1, keepdim=True)
    wrong = 1 - (top * p.double().nan_to_num(0.0)).sum(-1) / top.sum(-1)
    share = seen.double() if weights is None else seen * weights.double()
    return (wrong * share).sum(-1) / share.sum().clamp_min(torch.finfo(torch.float64).tiny)


def pooled_ranking_loss(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Ranking loss over all pairs of all rows, ties 1/2: a ratio of two unbiased sums, so consistent.

    .. math:: \frac{\sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik}) (1[f_{ij} < f_{ik}] + \frac12 1[f_{ij} = f_{ik}])}
                   {\sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik})}
    """
    seen = ~p.isnan()
    pos = p.double().nan_to_num(0.0)
    neg = torch.where(seen, 1 - pos, 0.0)
    wrong = wrong_pair_weights(pos, neg, scores)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    if weights is not None:
        wrong, pairs = wrong * weights.double(), pairs * weights.double()
    total = pairs.sum()
    # Few noisy rows can have no pairs on balance: then there is nothing to rank by.
    return torch.where(total > 0, wrong.sum(-1) / total.clamp_min(torch.finfo(torch.float64).tiny), torch.nan)


def wrong_pair_weights(pos: Tensor, neg: Tensor, scores: Tensor) -> Tensor:
    """Per row: the weight of pairs j != k with f_j < f_k, and half of that of ties; one sort."""
    ordered, order = scores.contiguous().sort(dim=-1)
    p, n = (t.expand(scores.shape).gather(-1, order) for t in (pos, neg))
    below = torch.searchsorted(ordered, ordered)
    up_to = torch.searchsorted(ordered, ordered, right=True)
    prefix = pad(n.cumsum(-1), (1, 0))
    total = prefix[..., -1:]
    # Above j: total - up_to; tied with j, itself included: up_to - below. The tie of j with itself is taken off.
    above = total - (prefix.gather(-1, up_to) + prefix.gather(-1, below)) / 2
    return (p * (above - n / 2)).sum(-1)
