"""Metrics that treat labels separately: Hamming loss, F1, area under the ROC curve and mean average precision.

The value on true labels is the form for debiased labels p with p = y.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from ccmn._containers import Labels
from ccmn.metrics.corrected_metrics import (
    MetricFunction,
    corrected_hamming,
    corrected_macro_auc,
    corrected_macro_f1,
    corrected_mean_average_precision,
    corrected_micro_f1,
    have_both_classes,
    have_positives,
)
from ccmn.metrics.metric import Form, Noise, evaluate
from ccmn.noise import NoiseModel


def hamming_loss(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> float:
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
    float or Estimate
        Hamming loss; an :class:`Estimate` if ``noise`` is given.

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
    return evaluate("hamming_loss", Y, Y_pred, noise, Form(corrected_hamming, "unbiased"), needs="labels")


def micro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> float:
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
    float or Estimate
        Micro F1; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn.metrics import micro_f1
    >>> micro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.8
    """
    form = Form(corrected_micro_f1, "consistent", "the corrected number of positive labels is negative")
    return evaluate("micro_f1", Y, Y_pred, noise, form, needs="labels")


def macro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> float:
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
    float or Estimate
        Macro F1; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn.metrics import macro_f1
    >>> macro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.5
    """
    return evaluate("macro_f1", Y, Y_pred, noise, _macro_f1_form, needs="labels")


def _macro_f1_form(Y: Tensor, Y_pred: Tensor, model: NoiseModel) -> Form:
    # A label whose corrected number of positives is negative counts 0 without evidence for that value.
    negative = bool((model.debias(Y).nansum(0) < 0).any())
    return Form(corrected_macro_f1, "approximate" if negative else "consistent")


def macro_auc(Y: Labels, scores: Any, noise: Noise | None = None) -> float:
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
    float or Estimate
        Mean area; an :class:`Estimate` if ``noise`` is given.

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
    form = partial(_form_over_labels, corrected_macro_auc, have_both_classes, "positive and negative rows")
    return evaluate("macro_auc", Y, scores, noise, form)


def _form_over_labels(
    value: MetricFunction,
    included: Callable[[Tensor], Tensor],
    rows: str,
    Y: Tensor,
    scores: Tensor,
    model: NoiseModel,
) -> Form:
    """Return the form of a mean over the labels that have certain rows; others have no value and are excluded."""
    # If a label that has these rows in the noisy labels is excluded, the mean covers fewer labels than on true labels.
    excluded = bool((included(Y) & ~included(model.debias(Y))).any())
    return Form(value, "approximate" if excluded else "consistent", f"no label has enough {rows}")


def mean_average_precision(Y: Labels, scores: Any, noise: Noise | None = None) -> float:
    r"""Compute the average precision of each label, averaged over labels; higher is better.

    .. math:: \frac{1}{|L|} \sum_{j \in L} \frac{1}{|P_j|} \sum_{i \in P_j}
              \frac{|\{m \in P_j : f_{mj} \geq f_{ij}\}|}{|\{m : f_{mj} \geq f_{ij}\}|}

    Here :math:`P_j` are the rows with label j, and :math:`L` is the set of labels with at least one. Other labels are
    excluded. The value is NaN if L is empty. This is the mean of ``average_precision_score`` of scikit-learn over these
    labels [1]_. The ranking metric :func:`average_precision` ranks the labels of a row instead.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame or nested lists of shape (n, q)
        Real-valued scores :math:`f`.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, each average precision is a ratio of two unbiased sums of debiased labels, hence
        consistent. Labels whose corrected number of positive rows is within two standard errors of 0 are excluded; the
        status is then "approximate".

    Returns
    -------
    float or Estimate
        Mean average precision; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] M. Zhu, "Recall, Precision and Average Precision", University of Waterloo, 2004.

    Examples
    --------
    >>> from ccmn.metrics import mean_average_precision
    >>> mean_average_precision([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.3], [0.4, 0.2]])
    0.8333333333333333
    """
    form = partial(_form_over_labels, corrected_mean_average_precision, have_positives, "positive rows")
    return evaluate("mean_average_precision", Y, scores, noise, form)
