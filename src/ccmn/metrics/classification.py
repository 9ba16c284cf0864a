"""Hamming loss: the part of the labels that is wrong, Eq. (1) of the paper.

F1: the harmonic mean of precision and recall, pooled (micro) or label by label (macro).

Area under the ROC curve, label by label.
"""

from __future__ import annotations

from typing import Any, overload

import torch

from ccmn._containers import Labels
from ccmn.metrics.corrected_metrics import (
    corrected_hamming,
    corrected_macro_auc,
    corrected_macro_f1,
    corrected_micro_f1,
    have_both_classes,
)
from ccmn.metrics.metric import (
    Estimate,
    Noise,
    Status,
    Value,
    estimate,
    in_blocks,
    model_of,
    read_labels,
    read_noisy_labels,
    read_noisy_scores,
    read_scores,
)
from ccmn.metrics.ranking_metrics import Ranking, ranking_loss_from


@overload
def hamming_loss(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def hamming_loss(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def hamming_loss(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""Part of the entries that differ, Eq. (1) of the paper over q; lower is better.

    .. math:: \frac{1}{n q} \sum_{i=1}^{n} \sum_{j=1}^{q} 1[h_{ij} \neq y_{ij}]

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Unbiased: the mean of
        :math:`p_j (1 - h_j) + (1 - p_j) h_j` over the entries observed, with debiased labels p.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> hamming_loss([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    0.25
    """
    if noise is not None:
        noisy, h = read_noisy_labels(Y, Y_pred, noise)
        return estimate(
            noisy, noise, lambda p, weights: corrected_hamming(p, h, weights), "unbiased", metric="hamming_loss"
        )
    true, predicted, answer = read_labels(Y, Y_pred)
    return answer(in_blocks(hamming_rows, true, predicted).mean())


def hamming_rows(Y: torch.Tensor, Y_pred: torch.Tensor) -> torch.Tensor:
    """The Hamming loss of each row: (..., q) and (..., q), broadcast, to (...) in float64."""
    return (Y_pred.bool() != Y.bool()).sum(-1).double() / Y.shape[-1]


@overload
def micro_f1(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def micro_f1(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def micro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""F1 of all entries taken together; higher is better.

    .. math:: F_1 = \frac{2 \sum_{ij} y_{ij} h_{ij}}{\sum_{ij} y_{ij} + \sum_{ij} h_{ij}}

    0 where no label is true and none predicted (scikit-learn's ``f1_score`` with ``zero_division=0``).

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Consistent: debiased labels
        stand for y in the sums. NaN where there are fewer positives than none on balance.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> micro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.8
    """
    if noise is not None:
        noisy, h = read_noisy_labels(Y, Y_pred, noise)
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_micro_f1(p, h, weights),
            "consistent",
            metric="micro_f1",
            undefined="the corrected number of positive labels is negative",
        )
    true, predicted, answer = read_labels(Y, Y_pred)
    return answer(f1_over(true, predicted, dim=(-2, -1)))


@overload
def macro_f1(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def macro_f1(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def macro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""F1 of each label, averaged over labels; higher is better.

    .. math:: \frac{1}{q} \sum_{j=1}^{q} \frac{2 \sum_i y_{ij} h_{ij}}{\sum_i y_{ij} + \sum_i h_{ij}}

    A label that is never true and never predicted counts 0 (scikit-learn's ``f1_score`` with ``zero_division=0``).

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Consistent: debiased labels
        stand for y in the sums. A label with no positives on balance counts 0, like one that has none; where that
        number is negative, the estimate is called approximate.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> macro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.5
    """
    if noise is not None:
        noisy, h = read_noisy_labels(Y, Y_pred, noise)
        # A label whose corrected number of positives is negative counts 0 without evidence for that value.
        negative = (model_of(noise, noisy).debias(noisy).nansum(0) < 0).any()
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_macro_f1(p, h, weights),
            "approximate" if bool(negative) else "consistent",
            metric="macro_f1",
        )
    true, predicted, answer = read_labels(Y, Y_pred)
    return answer(f1_over(true, predicted, dim=(-2,)).mean(-1))


def f1_over(Y: torch.Tensor, Y_pred: torch.Tensor, dim: tuple[int, ...]) -> torch.Tensor:
    """F1 of the entries along ``dim`` taken together, in float64; leading dimensions broadcast."""
    both = (Y * Y_pred).sum(dim, dtype=torch.float64)
    either = Y.sum(dim, dtype=torch.float64) + Y_pred.sum(dim, dtype=torch.float64)
    return 2 * both / either.clamp(min=1)


@overload
def macro_auc(Y: Labels, scores: Any, noise: None = None) -> Value: ...
@overload
def macro_auc(Y: Labels, scores: Any, noise: Noise) -> Estimate: ...
def macro_auc(Y: Labels, scores: Any, noise: Noise | None = None) -> Value | Estimate:
    r"""Area under the ROC curve of each label, averaged over labels; higher is better.

    .. math:: \frac{1}{|L|} \sum_{j \in L} \frac{1}{|P_j| |N_j|} \sum_{i \in P_j} \sum_{m \in N_j}
              \left( 1[f_{ij} > f_{mj}] + \tfrac{1}{2}\, 1[f_{ij} = f_{mj}] \right)

    with :math:`P_j` and :math:`N_j` the rows with and without label j, and :math:`L` the labels that have both:
    a label all of whose rows are alike has no curve and is left out. NaN where every label is so.

    Parameters
    ----------
    Y : array, tensor, DataFrame or nested lists of shape (n, q), values 0 and 1
    scores : the same, real values :math:`f`
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Consistent: a ratio of sums
        of debiased labels over pairs of rows. Left out as well are labels whose positives (or negatives) are within
        two standard errors of none; where there are such labels, the average is over fewer than the clean one and is
        called approximate.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> macro_auc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.3], [0.4, 0.2]])
    0.5
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        status: Status = "approximate" if _leaves_out(noisy, noise) else "consistent"
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_macro_auc(p, f, weights),
            status,
            metric="macro_auc",
            undefined="for no label are the corrected numbers of positive and negative rows both more than two "
            "standard errors above 0",
        )
    true, real, answer = read_scores(Y, scores)
    return answer(in_blocks(auc_rows, true.mT, real.mT).nanmean())


def _leaves_out(Y: torch.Tensor, noise: Noise) -> bool:
    """Is there a label with both noisy classes that does not clearly have both true ones?"""
    both = (Y == 0).any(0) & (Y == 1).any(0)
    return bool((both & ~have_both_classes(model_of(noise, Y).debias(Y))).any())


def auc_rows(Y: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The AUC within each row: (..., n) and (..., n), broadcast, to (...) in float64; NaN where all of Y is alike.

    For one value per label the labels are to be rows: ``auc_rows(Y.mT, scores.mT)``.
    """
    # The AUC is what the ranking loss leaves of 1: its pairs are the same, counted when in order.
    ranking = Ranking.of(Y, scores)
    has_both = (ranking.positives > 0) & (ranking.positives < Y.shape[-1])
    return torch.where(has_both, 1 - ranking_loss_from(ranking, ties="half"), torch.nan)
