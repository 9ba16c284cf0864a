r"""Metrics on debiased labels, for one model or a stack of models. They are also used for model selection in training.

Labels p are real numbers with E[p | y] = y, NaN where a label is not observed. True labels are 0 and 1. Each function
takes p of shape (n, q), scores or predictions of shape (..., n, q) and row weights of shape (n,), and returns (...) in
float64. All functions are differentiable in p and in the weights; standard errors are computed from these derivatives.

The functions ``single_label_*`` are for rows with exactly one true label, under noise with a transition matrix. The
flips of a row are then dependent, so products of debiased labels are biased. Since products of two different true
labels are 0, the metrics can be written as linear functions of the labels, which are unbiased.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

_TINY = torch.finfo(torch.float64).tiny


class Sums(NamedTuple):
    """Numerator and denominator of a metric: sums over rows, which can be accumulated block by block.

    Parameters
    ----------
    wrong : tensor of shape (...)
        Numerator of each model.
    total : tensor of shape ()
        Denominator.
    """

    wrong: Tensor
    total: Tensor

    def ratio(self) -> Tensor:
        """Return the quotient; 0 if both sums are 0."""
        return self.wrong / self.total.clamp_min(_TINY)


def corrected_hamming(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the unbiased Hamming loss: the mean of :math:`p_j (1 - h_j) + (1 - p_j) h_j` over observed labels.

    It is unbiased because it is linear in the labels. With few rows it can be negative.
    """
    return hamming_sums(p, predicted, weights).ratio()


def hamming_sums(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Sums:
    """Return the two sums of ``corrected_hamming``."""
    p, entry_weights = _fill_unobserved(p, weights)
    wrong = p + (1 - 2 * p) * predicted.double()
    return Sums((wrong * entry_weights).sum((-1, -2)), entry_weights.sum())


def corrected_one_error(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the unbiased one-error: the mean of 1 - p of the top-ranked label over rows without NaN."""
    return one_error_sums(p, scores, weights).ratio()


def one_error_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Sums:
    """Return the two sums of ``corrected_one_error``."""
    top = scores == scores.amax(-1, keepdim=True)
    wrong = 1 - (top * p.double().nan_to_num(0.0)).sum(-1) / top.sum(-1)
    return _row_sums(wrong, p, weights)


def pooled_ranking_loss(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the ranking loss over all pairs of all rows: a ratio of two unbiased sums, hence consistent.

    .. math:: \frac{\sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik}) (1[f_{ij} < f_{ik}] + \frac12 1[f_{ij} = f_{ik}])}
                   {\sum_i \sum_{j \ne k} p_{ij} (1 - p_{ik})}

    A tied pair counts 1/2. The value is NaN if the corrected number of pairs is not positive, which can happen with few
    rows.
    """
    sums = pooled_ranking_sums(p, scores, weights)
    return torch.where(sums.total > 0, sums.ratio(), torch.nan)


def pooled_ranking_sums(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Sums:
    """Return the two sums of ``pooled_ranking_loss``: wrong pairs and all pairs."""
    observed = ~p.isnan()
    pos = p.double().nan_to_num(0.0)
    neg = torch.where(observed, 1 - pos, 0.0)
    wrong = wrong_pair_weights(pos, neg, scores)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    if weights is not None:
        wrong, pairs = wrong * weights.double(), pairs * weights.double()
    return Sums(wrong.sum(-1), pairs.sum())


def wrong_pair_weights(pos: Tensor, neg: Tensor, scores: Tensor) -> Tensor:
    """Return for each row the sum of pos_j neg_k over pairs j != k with f_j < f_k; tied pairs count 1/2."""
    ordered, order = scores.contiguous().sort(dim=-1)
    p, n = (t.expand(scores.shape).gather(-1, order) for t in (pos, neg))
    below = torch.searchsorted(ordered, ordered)
    up_to = torch.searchsorted(ordered, ordered, right=True)
    prefix = pad(n.cumsum(-1), (1, 0))
    total = prefix[..., -1:]
    # Weight above j: total - up_to. Weight tied with j, including j itself: up_to - below. The tie of j with itself is
    # subtracted.
    above = total - (prefix.gather(-1, up_to) + prefix.gather(-1, below)) / 2
    return (p * (above - n / 2)).sum(-1)


def corrected_micro_f1(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the micro-averaged F1, :math:`2 TP / (PP + P)`: a ratio of unbiased sums, hence consistent.

    Here :math:`TP = \sum h p`, :math:`P = \sum p` and :math:`PP = \sum h`. The value is 0 if P = 0, as for true
    labels, and NaN if P < 0.
    """
    p, entry_weights = _fill_unobserved(p, weights)
    f1, positives = _f1(p, predicted, entry_weights, dim=(-2, -1))
    return torch.where(positives < 0, torch.nan, f1)


def corrected_macro_f1(p: Tensor, predicted: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean of the F1 of all labels with observations; each is computed as in ``corrected_micro_f1``.

    The estimate is consistent. F1 is 0 for a label whose corrected number of positives is not positive.
    """
    p, entry_weights = _fill_unobserved(p, weights)
    f1, _ = _f1(p, predicted, entry_weights, dim=(-2,))
    observed = (entry_weights > 0).any(-2)
    return torch.where(observed, f1, 0.0).sum(-1) / observed.sum().clamp_min(1)


def _f1(p: Tensor, predicted: Tensor, entry_weights: Tensor, dim: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return F1 along ``dim`` (0 if the number of positives is not positive), and the number of positives."""
    true_positives = (entry_weights * p * predicted).sum(dim)
    positives = (entry_weights * p).sum(dim)
    denominator = torch.where(positives > 0, positives + (entry_weights * predicted).sum(dim), 1.0)
    return torch.where(positives > 0, 2 * true_positives / denominator, 0.0), positives


def corrected_macro_auc(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the AUC averaged over labels; each AUC is a ratio of two unbiased sums, hence consistent.

    .. math:: \frac{\sum_{i \ne m} p_i (1 - p_m) (1[f_i > f_m] + \frac12 1[f_i = f_m])}{\sum_{i \ne m} p_i (1 - p_m)}

    Only labels that have both classes (``have_both_classes``) are included.
    """
    included = have_both_classes(p, weights)
    p, entry_weights = _fill_unobserved(p.mT, weights, rows=-1)
    pos, neg = p * entry_weights, (1 - p) * entry_weights
    wrong = wrong_pair_weights(pos, neg, scores.mT)
    pairs = pos.sum(-1) * neg.sum(-1) - (pos * neg).sum(-1)
    included = included & (pairs > 0)
    auc = torch.where(included, 1 - wrong / torch.where(included, pairs, 1.0), 0.0)
    return torch.where(included.any(-1), auc.sum(-1) / included.sum(-1).clamp_min(1), torch.nan)


def have_both_classes(p: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return for each label (q,) whether its positives and its negatives exceed 0 by two standard errors.

    The ratio of sums is unstable for other labels. The standard error follows from E[p^2 - p], the variance that noise
    adds to p. It is 0 for true labels, for which one positive and one negative row are sufficient.
    """
    p, entry_weights = _fill_unobserved(p.detach(), weights)
    margin = 2 * (entry_weights.square() * (p.square() - p)).sum(-2).clamp_min(0).sqrt()
    return ((p * entry_weights).sum(-2) > margin) & (((1 - p) * entry_weights).sum(-2) > margin)


def single_label_ranking_loss(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the mean of :math:`\sum_j p_j a_j / (q - 1)`; :math:`a_j` counts labels above j, and ties as 1/2."""
    not_below, above = _ranks(scores)
    wrong = (not_below - 1 + above) / 2 / max(1, scores.shape[-1] - 1)
    return _mean_at_true_label(wrong, p, weights)


def single_label_average_precision(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the mean of :math:`\sum_j p_j / r_j`, where :math:`r_j` is the number of labels not below j."""
    return _mean_at_true_label(1 / _ranks(scores)[0], p, weights)


def single_label_coverage(
    p: Tensor, scores: Tensor, weights: Tensor | None = None, *, normalized: bool = False
) -> Tensor:
    r"""Return the mean of :math:`\sum_j p_j r_j`, or of :math:`\sum_j p_j (r_j - 1) / q` if normalized."""
    depth = _ranks(scores)[0]
    return _mean_at_true_label((depth - 1) / scores.shape[-1] if normalized else depth, p, weights)


def _ranks(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each label the number of labels not below it, including itself, and of labels strictly above it."""
    ordered = scores.sort(dim=-1).values.contiguous()
    scores, q = scores.contiguous(), scores.shape[-1]
    lower, up_to = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    return (q - lower).double(), (q - up_to).double()


def _mean_at_true_label(values: Tensor, p: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean over rows of the value (..., n, q) at the true label."""
    return mean_of_rows((p.double().nan_to_num(0.0) * values).sum(-1), p, weights)


def mean_of_rows(values: Tensor, p: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean of values (..., n) over rows in which every label is observed."""
    return _row_sums(values, p, weights).ratio()


def _row_sums(values: Tensor, p: Tensor, weights: Tensor | None) -> Sums:
    """Return the two sums of ``mean_of_rows``."""
    observed = ~p.isnan().any(-1)
    row_weights = observed.double() if weights is None else observed * weights.double()
    return Sums((torch.where(observed, values, 0.0) * row_weights).sum(-1), row_weights.sum())


def _fill_unobserved(p: Tensor, weights: Tensor | None, rows: int = -2) -> tuple[Tensor, Tensor]:
    """Return labels with NaN replaced by 0, and the weight of every entry: that of its row, or 0 if not observed."""
    observed = (~p.isnan()).double()
    entry_weights = observed if weights is None else observed * weights.double().unsqueeze(-3 - rows)
    return p.double().nan_to_num(0.0), entry_weights
