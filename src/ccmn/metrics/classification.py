"""Metrics that treat labels separately: Hamming loss, F1, area under the ROC curve and mean average precision.

The value on true labels is the form for debiased labels p with p = y.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from ccmn._containers import Labels
from ccmn.metrics import corrected_metrics as corrected
from ccmn.metrics.metric import Form, Noise, evaluate
from ccmn.noise import NoiseModel


def hamming_loss(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> float:
    r"""Compute the fraction of labels that are predicted incorrectly; lower is better.

    .. math:: \frac{1}{n q} \sum_{i=1}^{n} \sum_{j=1}^{q} 1[h_{ij} \neq y_{ij}]

    This is Eq. (1) of [1]_ divided by q, and ``hamming_loss`` of scikit-learn.

    Parameters
    ----------
    Y, Y_pred : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y`, with ``noise`` noisy ones (NaN if not observed), and predicted labels :math:`h`, 0 or 1.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The mean of :math:`p_j (1 - h_j) + (1 - p_j) h_j` over observed labels is unbiased.

    Returns
    -------
    float or Estimate
        Hamming loss; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> from ccmn import ClassConditionalNoise
    >>> from ccmn.metrics import hamming_loss
    >>> hamming_loss([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    0.25
    >>> hamming_loss([[1, 0], [1, 1]], [[1, 0], [0, 1]], noise=ClassConditionalNoise([0.1, 0.0], [0.0, 0.2]))
    Estimate(value=0.1875, se=0.368..., status='unbiased')
    """
    return evaluate(
        "hamming_loss", Y, Y_pred, noise, Form(corrected.quotient(corrected.hamming_sums), "unbiased"), needs="labels"
    )


def micro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> float:
    r"""Compute F1 over all labels of all rows (micro average); higher is better.

    .. math:: F_1 = \frac{2 \sum_{ij} y_{ij} h_{ij}}{\sum_{ij} y_{ij} + \sum_{ij} h_{ij}}

    It is 0 if no label is true and none is predicted. This is scikit-learn's ``f1_score(average="micro")``.

    Parameters
    ----------
    Y, Y_pred : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y`, with ``noise`` noisy ones (NaN if not observed), and predicted labels :math:`h`, 0 or 1.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The estimate is consistent [1]_, and NaN if the corrected number of positives is negative.

    Returns
    -------
    float or Estimate
        Micro F1; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] N. Natarajan et al., "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn.metrics import micro_f1
    >>> micro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.8
    """
    reason = "the corrected number of positive labels is negative"
    form = Form(partial(corrected.f1, macro=False), "consistent", reason)
    return evaluate("micro_f1", Y, Y_pred, noise, form, needs="labels")


def macro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> float:
    r"""Compute F1 of each label, averaged over labels (macro average); higher is better.

    .. math:: \frac{1}{q} \sum_{j=1}^{q} \frac{2 \sum_i y_{ij} h_{ij}}{\sum_i y_{ij} + \sum_i h_{ij}}

    A label that is never true and never predicted counts 0. This is scikit-learn's ``f1_score(average="macro")``.

    Parameters
    ----------
    Y, Y_pred : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y`, with ``noise`` noisy ones (NaN if not observed), and predicted labels :math:`h`, 0 or 1.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The estimate is consistent [1]_. A label whose corrected number of positives is not positive counts
        0; if it is negative, the status is "approximate".

    Returns
    -------
    float or Estimate
        Macro F1; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] N. Natarajan et al., "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn.metrics import macro_f1
    >>> macro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.5
    """

    def form(Y: Tensor, Y_pred: Tensor, model: NoiseModel) -> Form:
        # A label whose corrected number of positives is negative counts 0 without evidence for that value.
        negative = bool((model.debias(Y).nansum(0) < 0).any())
        return Form(partial(corrected.f1, macro=True), "approximate" if negative else "consistent")

    return evaluate("macro_f1", Y, Y_pred, noise, form, needs="labels")


def macro_auc(Y: Labels, scores: Any, noise: Noise | None = None) -> float:
    r"""Compute the area under the ROC curve of each label, averaged over labels; higher is better.

    .. math:: \frac{1}{|L|} \sum_{j \in L} \frac{1}{|P_j| |N_j|} \sum_{i \in P_j} \sum_{m \in N_j}
              \left( 1[f_{ij} > f_{mj}] + \tfrac{1}{2}\, 1[f_{ij} = f_{mj}] \right)

    Here :math:`P_j` and :math:`N_j` are the rows with and without label j, and :math:`L` are the labels that have both.
    The value is NaN if L is empty. An area is the probability that a positive row ranks above a negative one [1]_.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, nested lists or, for Y, sparse matrix of shape (n, q)
        True labels 0 or 1, with ``noise`` noisy ones (NaN if not observed), and real-valued scores :math:`f`.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The estimate is consistent. Labels whose corrected number of positive or negative rows is within two
        standard errors of 0 are excluded ("approximate").

    Returns
    -------
    float or Estimate
        Mean area; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] J. A. Hanley and B. J. McNeil, "The Meaning and Use of the Area under a ROC Curve", Radiology 143(1), 1982.

    Examples
    --------
    >>> from ccmn.metrics import macro_auc
    >>> macro_auc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.3], [0.4, 0.2]])
    0.5
    """
    form = partial(_form_over_labels, corrected.macro_auc, corrected.have_both_classes, "positive and negative rows")
    return evaluate("macro_auc", Y, scores, noise, form)


def _form_over_labels(
    value: corrected.MetricFunction,
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

    Here :math:`P_j` are the rows with label j, and :math:`L` are the labels with at least one. The value is NaN if L is
    empty. This is the mean of ``average_precision_score`` of scikit-learn over L [1]_.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, nested lists or, for Y, sparse matrix of shape (n, q)
        True labels 0 or 1, with ``noise`` noisy ones (NaN if not observed), and real-valued scores :math:`f`.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The estimate is consistent. Labels whose corrected number of positive rows is within two standard
        errors of 0 are excluded ("approximate").

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
    form = partial(_form_over_labels, corrected.mean_average_precision, corrected.have_positives, "positive rows")
    return evaluate("mean_average_precision", Y, scores, noise, form)
