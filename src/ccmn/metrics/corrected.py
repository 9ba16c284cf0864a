"""Metrics on debiased labels, for a stack of models at once: what training chooses epochs and learning rates by.

Labels here are real numbers p with E[p | y] = y, NaN where a label is not observed; for clean labels they are 0 and 1
and nothing is corrected. Each function takes p (n, q), scores or predictions (..., n, q) and row weights (n,); (...)
in float64 comes back. All are differentiable in p and in the weights, which is where standard errors come from.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

_TINY = torch.finfo(torch.float64).tiny


def corrected_hamming(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Unbiased Hamming loss: the mean of :math:`p_j (1 - h_j) + (1 - p_j) h_j` over the labels observed.

    Unbiased because it is linear in the labels; it may be negative on few rows.
    """
    return hamming_sums(p, predicted, weights).ratio()


def corrected_one_error(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    """Unbiased one-error: the mean of 1 - p of the top-scored label (ties shared), rows with NaN left out."""
    return one_error_sums(p, scores, weights).ratio()


def pooled_ranking_loss(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Ranking loss over all pairs of all rows, ties 1/2: a ratio of two unbiased sums, so consistent.

    .. math:: \frac{\sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik}) (1[f_{ij} < f_{ik}] + \frac12 1[f_{ij} = f_{ik}])}
                   {\sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik})}
    """
    sums = pooled_ranking_sums(p, scores, weights)
    # Few noisy rows can have no pairs on balance: then there is nothing to rank by.
    return torch.where(sums.total > 0, sums.ratio(), torch.nan)


class Sums(NamedTuple):
    """A metric of many rows as a quotient of sums over rows: rows may be summed block by block."""

    wrong: Tensor
    """(...), one for each model."""
    total: Tensor
    """A single number."""

    def ratio(self) -> Tensor:
        return self.wrong / self.total.clamp_min(_TINY)


def hamming_sums(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Sums:
    """The two sums of ``corrected_hamming``."""
    p, share = _known(p, weights)
    wrong = p + (1 - 2 * p) * predicted.double()
    return Sums((wrong * share).sum((-1, -2)), share.sum())


def one_error_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Sums:
    """The two sums of ``corrected_one_error``."""
    top = scores == scores.amax(-1, keepdim=True)
    wrong = 1 - (top * p.double().nan_to_num(0.0)).sum(-1) / top.sum(-1)
    return _row_sums(wrong, p, weights)


def pooled_ranking_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Sums:
    """The two sums of ``pooled_ranking_loss``: wrong pairs, and all pairs."""
    seen = ~p.isnan()
    pos = p.double().nan_to_num(0.0)
    neg = torch.where(seen, 1 - pos, 0.0)
    wrong = wrong_pair_weights(pos, neg, scores)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    if weights is not None:
        wrong, pairs = wrong * weights.double(), pairs * weights.double()
    return Sums(wrong.sum(-1), pairs.sum())


def corrected_micro_f1(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""F1 of all entries together, :math:`2 TP / (PP + P)` of unbiased sums: consistent.

    :math:`TP = \sum h p`, :math:`P = \sum p`, :math:`PP = \sum h`. 0 without positives, as for clean labels; NaN
    where there are fewer than none on balance, which tells nothing.
    """
    p, share = _known(p, weights)
    f1, positives = _f1(p, predicted, share, dim=(-2, -1))
    return torch.where(positives < 0, torch.nan, f1)


def corrected_macro_f1(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    """F1 of each label as in ``corrected_micro_f1``, averaged over the labels observed anywhere: consistent.

    A label with no positives on balance counts 0, like one that has none.
    """
    p, share = _known(p, weights)
    f1, _ = _f1(p, predicted, share, dim=(-2,))
    seen = (share > 0).any(-2)
    return torch.where(seen, f1, 0.0).sum(-1) / seen.sum().clamp_min(1)


def corrected_macro_auc(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""AUC of each label, averaged over labels: each a ratio of two unbiased sums, so consistent.

    .. math:: \frac{\sum_{i \ne m} p_i (1 - p_m) (1[f_i > f_m] + \frac12 1[f_i = f_m])}{\sum_{i \ne m} p_i (1 - p_m)}

    Labels that do not clearly have both classes are left out (``have_both_classes``).
    """
    clear = have_both_classes(p, weights)
    p, share = _known(p.mT, weights, rows=-1)
    pos, neg = p * share, (1 - p) * share
    wrong = wrong_pair_weights(pos, neg, scores.mT)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    clear = clear & (pairs > 0)
    auc = torch.where(clear, 1 - wrong / torch.where(clear, pairs, 1.0), 0.0)
    return torch.where(clear.any(-1), auc.sum(-1) / clear.sum(-1).clamp_min(1), torch.nan)


def have_both_classes(p: Tensor, weights: Tensor | None = None) -> Tensor:
    """(q,): are positives and negatives of a label more than two standard errors from none?

    Of a label for which they are not, a ratio of sums may be anything at all. E[p^2 - p] is the variance that noise
    gives to p, hence the standard error; for clean labels it is 0, and any positive and any negative will do.
    """
    p, share = _known(p.detach(), weights)
    spread = 2 * (share.square() * (p.square() - p)).sum(-2).clamp_min(0).sqrt()
    return ((p * share).sum(-2) > spread) & (((1 - p) * share).sum(-2) > spread)


def mean_of_rows(values: Tensor, p: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of values (..., n), weighted; rows with a label that was not observed are left out."""
    return _row_sums(values, p, weights).ratio()


def _row_sums(values: Tensor, p: Tensor, weights: Tensor | None) -> Sums:
    seen = ~p.isnan().any(-1)
    share = seen.double() if weights is None else seen * weights.double()
    return Sums((torch.where(seen, values, 0.0) * share).sum(-1), share.sum())


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


def _known(p: Tensor, weights: Tensor | None, rows: int = -2) -> tuple[Tensor, Tensor]:
    """Labels with 0 for NaN, and the weight of every entry: that of its row, 0 where it was not observed."""
    seen = (~p.isnan()).double()
    share = seen if weights is None else seen * weights.double().unsqueeze(-3 - rows)
    return p.double().nan_to_num(0.0), share


def _f1(p: Tensor, predicted: Tensor, share: Tensor, dim: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """F1 along ``dim``, 0 where there are no positives on balance; and the number of positives."""
    both = (share * p * predicted).sum(dim)
    positives = (share * p).sum(dim)
    either = torch.where(positives > 0, positives + (share * predicted).sum(dim), 1.0)
    return torch.where(positives > 0, 2 * both / either, 0.0), positives
