"""Metrics that treat labels separately: Hamming loss, F1 (micro and macro) and area under the ROC curve.

Functions with the suffix ``_rows`` return one value per row. They work on tensors with broadcast leading dimensions,
without validation and without host synchronization.
"""

from __future__ import annotations

import warnings
from typing import Any, overload

import torch
from torch import Tensor

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
    map_row_blocks,
    read_labels,
    read_noisy_labels,
    read_noisy_scores,
    read_scores,
    resolve_noise_model,
)
from ccmn.metrics.ranking_metrics import Ranking, ranking_loss_from


@overload
def hamming_loss(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def hamming_loss(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def hamming_loss(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the fraction of labels that are predicted incorrectly; lower is better.

    .. math:: \frac{1}{n q} \sum_{i=1}^{n} \sum_{j=1}^{q} 1[h_{ij} \neq y_{ij}]

    This is Eq. (1) of [1]_ divided by q, and ``hamming_loss`` of scikit-learn.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    Y_pred : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Predicted labels :math:`h` in {0, 1}.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, the value on the true labels is estimated from debiased labels p as the mean of
        :math:`p_j (1 - h_j) + (1 - p_j) h_j` over observed labels. The estimate is unbiased [2]_.

    Returns
    -------
    float, tensor or Estimate
        Hamming loss; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.
    .. [2] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn import ClassConditionalNoise
    >>> from ccmn.metrics import hamming_loss
    >>> hamming_loss([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    0.25
    >>> hamming_loss([[1, 0], [1, 1]], [[1, 0], [0, 1]], noise=ClassConditionalNoise([0.1, 0.0], [0.0, 0.2]))
    Estimate(value=0.1875, se=0.368..., status='unbiased')
    """
    if noise is not None:
        noisy, h = read_noisy_labels(Y, Y_pred, noise)
        return estimate(
            noisy, noise, lambda p, weights: corrected_hamming(p, h, weights), "unbiased", metric="hamming_loss"
        )
    true, predicted, to_output = read_labels(Y, Y_pred)
    return to_output(map_row_blocks(hamming_rows, true, predicted).mean())


def hamming_rows(Y: Tensor, Y_pred: Tensor) -> Tensor:
    """Return the Hamming loss of each row: (..., q) and (..., q) -> (...), float64."""
    return (Y_pred.bool() != Y.bool()).sum(-1).double() / Y.shape[-1]


@overload
def micro_f1(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def micro_f1(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def micro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute F1 over all labels of all rows (micro average); higher is better.

    .. math:: F_1 = \frac{2 \sum_{ij} y_{ij} h_{ij}}{\sum_{ij} y_{ij} + \sum_{ij} h_{ij}}

    The value is 0 if no label is true and none is predicted. This is ``f1_score(average="micro", zero_division=0)`` of
    scikit-learn.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    Y_pred : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Predicted labels :math:`h` in {0, 1}.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, debiased labels replace y in the sums, which are then unbiased [1]_; their ratio is
        consistent. The estimate is NaN if the corrected number of positive labels is negative.

    Returns
    -------
    float, tensor or Estimate
        Micro F1; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn.metrics import micro_f1
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
    true, predicted, to_output = read_labels(Y, Y_pred)
    return to_output(f1_over(true, predicted, dim=(-2, -1)))


@overload
def macro_f1(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def macro_f1(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def macro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute F1 of each label, averaged over labels (macro average); higher is better.

    .. math:: \frac{1}{q} \sum_{j=1}^{q} \frac{2 \sum_i y_{ij} h_{ij}}{\sum_i y_{ij} + \sum_i h_{ij}}

    A label that is never true and never predicted counts 0. This is ``f1_score(average="macro", zero_division=0)`` of
    scikit-learn.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    Y_pred : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Predicted labels :math:`h` in {0, 1}.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, debiased labels replace y in the sums, which are then unbiased [1]_; the estimate is
        consistent. A label whose corrected number of positives is not positive counts 0. If the number is negative for
        any label, the status is "approximate".

    Returns
    -------
    float, tensor or Estimate
        Macro F1; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn.metrics import macro_f1
    >>> macro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.5
    """
    if noise is not None:
        noisy, h = read_noisy_labels(Y, Y_pred, noise)
        # A label whose corrected number of positives is negative counts 0 without evidence for that value.
        negative = (resolve_noise_model(noise, noisy).debias(noisy).nansum(0) < 0).any()
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_macro_f1(p, h, weights),
            "approximate" if bool(negative) else "consistent",
            metric="macro_f1",
        )
    true, predicted, to_output = read_labels(Y, Y_pred)
    return to_output(f1_over(true, predicted, dim=(-2,)).mean(-1))


def f1_over(Y: Tensor, Y_pred: Tensor, dim: tuple[int, ...]) -> Tensor:
    """Return F1 pooled over the dimensions ``dim``, in float64; leading dimensions broadcast."""
    both = (Y * Y_pred).sum(dim, dtype=torch.float64)
    either = Y.sum(dim, dtype=torch.float64) + Y_pred.sum(dim, dtype=torch.float64)
    return 2 * both / either.clamp(min=1)


@overload
def macro_auc(Y: Labels, scores: Any, noise: None = None) -> Value: ...
@overload
def macro_auc(Y: Labels, scores: Any, noise: Noise) -> Estimate: ...
def macro_auc(Y: Labels, scores: Any, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the area under the ROC curve of each label, averaged over labels; higher is better.

    .. math:: \frac{1}{|L|} \sum_{j \in L} \frac{1}{|P_j| |N_j|} \sum_{i \in P_j} \sum_{m \in N_j}
              \left( 1[f_{ij} > f_{mj}] + \tfrac{1}{2}\, 1[f_{ij} = f_{mj}] \right)

    Here :math:`P_j` and :math:`N_j` are the rows with and without label j, and :math:`L` is the set of labels that have
    both. Other labels have no ROC curve and are excluded. The value is NaN if L is empty. The area is the probability
    that a positive row has a higher score than a negative row [1]_.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame or nested lists of shape (n, q)
        Real-valued scores :math:`f`.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, each area is a ratio of two sums over pairs of rows weighted by debiased labels; the sums
        are unbiased [2]_ and the ratio is consistent. Labels whose corrected number of positive or negative rows is
        within two standard errors of 0 are excluded; the status is then "approximate".

    Returns
    -------
    float, tensor or Estimate
        Mean area; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] J. A. Hanley and B. J. McNeil, "The Meaning and Use of the Area under a Receiver Operating Characteristic
       (ROC) Curve", Radiology 143(1), 1982.
    .. [2] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn.metrics import macro_auc
    >>> macro_auc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.3], [0.4, 0.2]])
    0.5
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        # If a label with both noisy classes is excluded, the mean covers fewer labels than the metric on true labels.
        has_both = (noisy == 0).any(0) & (noisy == 1).any(0)
        excluded = has_both & ~have_both_classes(resolve_noise_model(noise, noisy).debias(noisy))
        status: Status = "approximate" if bool(excluded.any()) else "consistent"
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_macro_auc(p, f, weights),
            status,
            metric="macro_auc",
            undefined="for no label are the corrected numbers of positive and negative rows both more than two "
            "standard errors above 0",
        )
    true, real, to_output = read_scores(Y, scores)
    value = map_row_blocks(auc_rows, true.mT, real.mT).nanmean()
    if bool(value.isnan()):
        warnings.warn("macro_auc is NaN: no label has positive and negative rows", stacklevel=2)
    return to_output(value)


def auc_rows(Y: Tensor, scores: Tensor) -> Tensor:
    """Return the AUC within each row: (..., n) and (..., n) -> (...), float64; NaN if the row has one class only.

    For one value per label, pass transposed matrices: ``auc_rows(Y.mT, scores.mT)``.
    """
    # AUC = 1 - ranking loss with ties counted 1/2: both are fractions of the same pairs.
    ranking = Ranking.of(Y, scores)
    has_both = (ranking.positives > 0) & (ranking.positives < Y.shape[-1])
    return torch.where(has_both, 1 - ranking_loss_from(ranking, ties="half"), torch.nan)
