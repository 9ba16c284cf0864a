r"""Metrics of the k highest-ranked labels: precision, recall, nDCG, their propensity-scored and macro forms.

The labels of row i with the k highest scores are :math:`T_i`. Labels with equal scores are ranked by their index: the
lower index comes first. In a sparse score matrix only stored entries are scores. A row with fewer than k stored scores
has fewer than k labels in :math:`T_i`; the empty positions count as misses. Rows without true labels count 0, as in
pyxclib.

The scores are read in blocks of rows (:mod:`ccmn.metrics.top_labels`). Each row is reduced to its top k labels and its
positive labels, so memory grows with n k and with the number of positive labels, but not with n q.

A metric with ``noise=`` is a ratio of two sums over rows, or a mean of such ratios over labels. Its standard error
follows from the derivatives of these sums; see ``ccmn.metrics.metric``. Metrics are computed outside of inference mode,
whose tensors cannot be differentiated.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ccmn._containers import Labels, label_names_of
from ccmn._validation import (
    check_count,
    check_label_width,
    check_matrix_pair,
    check_noise_or_rates,
    check_rates_known,
    check_same_labels,
)
from ccmn.metrics.corrected_metrics import MIN_ROWS_PER_INFLATION, variance_inflation
from ccmn.metrics.metric import (
    Estimate,
    EstimatedNoise,
    Noise,
    Status,
    ToOutput,
    Value,
    status_with_rates,
    undefined_estimate,
    variance_of_estimate,
)
from ccmn.metrics.top_labels import LabelValues, TopLabels, as_matrix, read_top_labels
from ccmn.noise import ClassConditionalNoise, NoiseModel

MAX_EXACT_LABELS = 64
"""Recall and nDCG are unbiased under added labels up to this number of labels: their cost grows with its square."""

MAX_RELATIVE_SE = 0.05
"""The multilinear form of nDCG is used if that of |Y| / D(|Y|) has at most this standard error relative to its mean."""

MIN_POSITIVE = 1e-9
"""Smallest divisor in the approximation of recall and nDCG; avoids a division by 0."""

MAX_COUNT_DEVIATION = 20
"""Numbers of labels that exceed their mean by more than this multiple of their scale are neglected."""

NO_COMPLETE_ROW = "no row has all labels observed"
"""Reason in the warning if every row contains NaN."""

Divisor = Callable[[Tensor], Tensor]
"""Function that maps the number of true labels of a row, possibly not an integer, to the divisor of its gain."""


@overload
def precision_at_k(Y: Labels, scores: Any, k: int, noise: None = None) -> Value: ...
@overload
def precision_at_k(Y: Labels, scores: Any, k: int, noise: Noise) -> Estimate: ...
def precision_at_k(Y: Labels, scores: Any, k: int, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the fraction of true labels among the k highest-ranked labels; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{k} \sum_{j \in T_i} y_{ij}

    Here :math:`T_i` are the k labels with the highest scores; ties are broken by the label index.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Real-valued scores. Entries that a sparse matrix does not store have no score and are never selected.
    k : int
        Number of labels that are selected in each row, at most q.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y. If given, debiased labels replace y. The estimate is unbiased. Rows with NaN are excluded.

    Returns
    -------
    float, tensor or Estimate
        Precision; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    See Also
    --------
    psp_at_k : The same for missing labels, divided by the best possible value.

    Examples
    --------
    >>> from ccmn import MissingNoise
    >>> from ccmn.metrics import precision_at_k
    >>> Y, scores = [[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]]
    >>> precision_at_k(Y, scores, k=2)
    0.5
    >>> precision_at_k(Y, scores, k=2, noise=MissingNoise([0.0, 0.5, 0.0, 0.0]))
    Estimate(value=0.75, se=0.25, status='unbiased')
    """
    with torch.inference_mode(False):
        task = _read_task(Y, scores, k, noise)
        return _mean_ratio(task, _precision_rows, "unbiased", metric="precision_at_k")


@overload
def recall_at_k(Y: Labels, scores: Any, k: int, noise: None = None) -> Value: ...
@overload
def recall_at_k(Y: Labels, scores: Any, k: int, noise: Noise) -> Estimate: ...
def recall_at_k(Y: Labels, scores: Any, k: int, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the fraction of the true labels that are among the k highest-ranked labels; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{\max(1, |Y_i|)} \sum_{j \in T_i} y_{ij}

    Here :math:`T_i` are the k labels with the highest scores and :math:`Y_i` the true labels. Ties are broken by the
    label index. A row without true labels counts 0.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Real-valued scores. Entries that a sparse matrix does not store have no score and are never selected.
    k : int
        Number of labels that are selected in each row, at most q.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y. If given, the estimate is unbiased if noise rates and q are small enough for the number of rows, in
        particular for missing labels with rates up to 1/2. Otherwise it is approximate; the user guide on metrics
        states the condition and the approximation. Rows with NaN are excluded.

    Returns
    -------
    float, tensor or Estimate
        Recall; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    Examples
    --------
    >>> from ccmn.metrics import recall_at_k
    >>> recall_at_k([[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]], k=2)
    0.75
    """
    with torch.inference_mode(False):
        task = _read_task(Y, scores, k, noise)
        gains = torch.ones(task.top.k, dtype=torch.float64)
        rows, status, widths = _select_quotient(task, gains, partial(torch.clamp, min=1.0), smooth=True)
        return _mean_ratio(task, rows, status, metric="recall_at_k", widths=widths)


@overload
def ndcg_at_k(Y: Labels, scores: Any, k: int, noise: None = None) -> Value: ...
@overload
def ndcg_at_k(Y: Labels, scores: Any, k: int, noise: Noise) -> Estimate: ...
def ndcg_at_k(Y: Labels, scores: Any, k: int, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the normalized discounted cumulative gain of the k highest-ranked labels; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \Big( \sum_{r=1}^{\min(k, |Y_i|)} \frac{1}{\log_2(r + 1)} \Big)^{-1}
              \sum_{r=1}^{k} \frac{y_{i, t_{ir}}}{\log_2(r + 1)}

    Here :math:`t_{ir}` is the label at rank r of row i and :math:`Y_i` are the true labels. Ties are broken by the
    label index. A row without true labels counts 0. The metric was introduced in [1]_.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Real-valued scores. Entries that a sparse matrix does not store have no score and are never selected.
    k : int
        Number of labels that are selected in each row, at most q.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y. If given, the estimate is consistent if noise rates and numbers of labels are small enough for the
        number of rows. Otherwise it is approximate; the user guide on metrics states the condition and the
        approximation. Rows with NaN are excluded.

    Returns
    -------
    float, tensor or Estimate
        nDCG; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] K. Järvelin and J. Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", ACM Transactions on
       Information Systems 20(4), 2002.

    Examples
    --------
    >>> from ccmn.metrics import ndcg_at_k
    >>> ndcg_at_k([[1, 0, 0, 0], [0, 1, 0, 1]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]], k=2)
    1.0
    """
    with torch.inference_mode(False):
        task = _read_task(Y, scores, k, noise)
        discounts, divisor = _discounts(task.top.k), partial(_ideal_gain, k=task.top.k)
        rows, status, widths = _select_quotient(task, discounts, divisor, smooth=False)
        return _mean_ratio(task, rows, status, metric="ndcg_at_k", widths=widths)


@overload
def psp_at_k(Y: Labels, scores: Any, k: int, noise: None = None, *, normalized: bool = True) -> Value: ...
@overload
def psp_at_k(Y: Labels, scores: Any, k: int, noise: Noise, *, normalized: bool = True) -> Estimate: ...
def psp_at_k(
    Y: Labels, scores: Any, k: int, noise: Noise | None = None, *, normalized: bool = True
) -> Value | Estimate:
    r"""Compute the propensity-scored precision of the k highest-ranked labels; higher is better.

    .. math:: PSP = \frac{\sum_i \sum_{j \in T_i} \tilde y_{ij} / \pi_j}
              {\sum_i \max_{|S| \le k} \sum_{j \in S} \tilde y_{ij} / \pi_j}

    Here :math:`T_i` are the k labels with the highest scores (ties are broken by the label index), and the propensity
    :math:`\pi_j = 1 - \rho_{pos,j}` is the probability that a true label j is observed [1]_. The denominator is the
    best value that a ranking can reach on the observed labels. Rows without labels add 0 to both sums.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Labels in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Real-valued scores. Entries that a sparse matrix does not store have no score and are never selected.
    k : int
        Number of labels that are selected in each row, at most q.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y, usually a ``MissingNoise``, for example from :func:`ccmn.noise.propensity_noise`. Debiased labels
        replace :math:`\tilde y_{ij} / \pi_j`; both are equal if no labels are added. All propensities are 1 without
        noise. Rows with NaN are excluded.
    normalized : bool, default=True
        Whether to divide by the best value, as usual in the literature. The result compares models. It does not
        estimate the normalized value on the true labels if rows have more than k labels, so its status is
        "approximate". If False, the numerator is divided by n k; it is the unbiased estimate of ``precision_at_k`` on
        the true labels.

    Returns
    -------
    float, tensor or Estimate
        Propensity-scored precision; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if
        ``noise`` is given.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu and M. Varma, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking
       and Other Missing Label Applications", KDD, 2016.

    Examples
    --------
    >>> from ccmn import MissingNoise
    >>> from ccmn.metrics import psp_at_k
    >>> Y, scores = [[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]]
    >>> round(psp_at_k(Y, scores, k=2), 3)
    0.667
    >>> round(psp_at_k(Y, scores, k=2, noise=MissingNoise([0.0, 0.5, 0.0, 0.0])).value, 3)
    0.75
    """
    with torch.inference_mode(False):
        task = _read_task(Y, scores, k, noise)
        if not normalized:
            return _mean_ratio(task, _precision_rows, "unbiased", metric="psp_at_k")
        _warn_of_added_labels(task, "psp_at_k")
        return _mean_ratio(task, _psp_rows, "approximate", metric="psp_at_k")


@overload
def psndcg_at_k(Y: Labels, scores: Any, k: int, noise: None = None, *, normalized: bool = True) -> Value: ...
@overload
def psndcg_at_k(Y: Labels, scores: Any, k: int, noise: Noise, *, normalized: bool = True) -> Estimate: ...
def psndcg_at_k(
    Y: Labels, scores: Any, k: int, noise: Noise | None = None, *, normalized: bool = True
) -> Value | Estimate:
    r"""Compute the propensity-scored nDCG of the k highest-ranked labels; higher is better.

    .. math:: PSnDCG = \frac{\sum_i \frac{1}{I_i} \sum_{r=1}^{k} \frac{\tilde y_{i, t_{ir}}}{\pi_{t_{ir}} \log_2(r+1)}}
              {\sum_i \frac{1}{I_i} \sum_{r=1}^{k} \frac{\tilde y_{i, b_{ir}}}{\pi_{b_{ir}} \log_2(r+1)}},
              \qquad I_i = \sum_{r=1}^{\min(k, |\tilde Y_i|)} \frac{1}{\log_2(r + 1)}

    Here :math:`t_{ir}` is the label at rank r, :math:`b_{ir}` the observed label with the r-th smallest propensity
    :math:`\pi` (the best ranking), and :math:`\tilde Y_i` are the observed labels. This is the formula of pyxclib.
    Rows without labels add 0 to both sums.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Labels in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Real-valued scores. Entries that a sparse matrix does not store have no score and are never selected.
    k : int
        Number of labels that are selected in each row, at most q.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y, usually a ``MissingNoise``, for example from :func:`ccmn.noise.propensity_noise`. Debiased labels
        replace :math:`\tilde y_{ij} / \pi_j`; both are equal if no labels are added. All propensities are 1 without
        noise. Rows with NaN are excluded.
    normalized : bool, default=True
        Whether to divide by the best value, as usual in the literature. The result compares models, but does not
        estimate the normalized value on the true labels, so its status is "approximate". If False, the numerator is
        computed with the constant :math:`I_i = \sum_{r=1}^{k} 1 / \log_2(r + 1)`, the definition of [1]_, and divided
        by n; it is then unbiased for its value on the true labels.

    Returns
    -------
    float, tensor or Estimate
        Propensity-scored nDCG; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is
        given.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu and M. Varma, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking
       and Other Missing Label Applications", KDD, 2016.

    Examples
    --------
    >>> from ccmn import MissingNoise
    >>> from ccmn.metrics import psndcg_at_k
    >>> Y, scores = [[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]]
    >>> round(psndcg_at_k(Y, scores, k=2, noise=MissingNoise([0.0, 0.5, 0.0, 0.0])).value, 3)
    0.871
    """
    with torch.inference_mode(False):
        task = _read_task(Y, scores, k, noise)
        if not normalized:
            return _mean_ratio(task, _discounted_rows, "unbiased", metric="psndcg_at_k")
        _warn_of_added_labels(task, "psndcg_at_k")
        return _mean_ratio(task, _psndcg_rows, "approximate", metric="psndcg_at_k")


@overload
def macro_precision_at_k(Y: Labels, scores: Any, k: int, noise: None = None) -> Value: ...
@overload
def macro_precision_at_k(Y: Labels, scores: Any, k: int, noise: Noise) -> Estimate: ...
def macro_precision_at_k(Y: Labels, scores: Any, k: int, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute for each label the fraction of its selections that are correct, averaged over labels.

    .. math:: \frac{1}{q} \sum_{j=1}^{q} \frac{\sum_{i:\, j \in T_i} y_{ij}}{|\{i:\, j \in T_i\}|}

    Here :math:`T_i` are the k labels with the highest scores; ties are broken by the label index. A label that is never
    selected counts 0. Rare labels have the same weight as frequent ones [1]_. Higher is better.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Real-valued scores. Entries that a sparse matrix does not store have no score and are never selected.
    k : int
        Number of labels that are selected in each row, at most q.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y. If given, debiased labels replace y. The estimate is unbiased, because the numbers of selections do
        not depend on the labels. Rows with NaN are excluded.

    Returns
    -------
    float, tensor or Estimate
        Macro precision; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] E. Schultheis, M. Wydmuch, W. Kotłowski, R. Babbar and K. Dembczyński, "Generalized Test Utilities for
       Long-Tail Performance in Extreme Multi-Label Classification", NeurIPS, 2023.

    Examples
    --------
    >>> from ccmn.metrics import macro_precision_at_k
    >>> macro_precision_at_k([[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]], k=2)
    0.375
    """
    with torch.inference_mode(False):
        return _macro_ratio(_read_task(Y, scores, k, noise), recall=False, metric="macro_precision_at_k")


@overload
def macro_recall_at_k(Y: Labels, scores: Any, k: int, noise: None = None) -> Value: ...
@overload
def macro_recall_at_k(Y: Labels, scores: Any, k: int, noise: Noise) -> Estimate: ...
def macro_recall_at_k(Y: Labels, scores: Any, k: int, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute for each label the fraction of its positive rows that select it, averaged over labels.

    .. math:: \frac{1}{|L|} \sum_{j \in L} \frac{\sum_{i:\, j \in T_i} y_{ij}}{\sum_i y_{ij}}

    Here :math:`T_i` are the k labels with the highest scores (ties are broken by the label index), and :math:`L` is the
    set of labels with a positive row. Other labels are excluded. The value is NaN if L is empty. Higher is better.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Real-valued scores. Entries that a sparse matrix does not store have no score and are never selected.
    k : int
        Number of labels that are selected in each row, at most q.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y. If given, debiased labels replace y in both sums, which are then unbiased; their ratio is
        consistent. Labels with ``rho_neg > 0`` whose corrected number of positive rows is within two standard errors
        of 0 are excluded; the status is then "approximate". The rates cancel if labels are only missing. Rows with NaN
        are excluded.

    Returns
    -------
    float, tensor or Estimate
        Macro recall; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    Examples
    --------
    >>> from ccmn.metrics import macro_recall_at_k
    >>> round(macro_recall_at_k([[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]], k=2), 3)
    0.667
    """
    with torch.inference_mode(False):
        return _macro_ratio(_read_task(Y, scores, k, noise), recall=True, metric="macro_recall_at_k")


class Task(NamedTuple):
    """Arguments of a metric after validation; ``model`` is the noise model of ``noise``."""

    top: TopLabels
    noise: Noise | None
    model: ClassConditionalNoise | None
    to_output: ToOutput

    @property
    def rates(self) -> tuple[Tensor, Tensor]:
        """Rates rho_pos and rho_neg as new tensors; zero without noise."""
        if self.model is None:
            return (zero := torch.zeros(self.top.n_labels, dtype=torch.float64)), zero.clone()
        return torch.tensor(self.model.rho_pos), torch.tensor(self.model.rho_neg)


RowSums = Callable[[TopLabels, LabelValues], tuple[Tensor, Tensor]]
"""Function that returns numerator and denominator of each row of a block, differentiable in the values."""


def _read_task(Y: Labels, scores: Any, k: int, noise: Noise | None) -> Task:
    """Validate the arguments and select the top k labels of each row, in blocks of rows."""
    k = check_count(k, "k")
    check_same_labels(("Y", label_names_of(Y)), ("scores", label_names_of(scores)))
    labels, real = as_matrix(Y, "Y"), as_matrix(scores, "scores")
    check_matrix_pair(labels, real, ("Y", "scores"))
    if k > labels.shape[1]:
        raise ValueError(f"k must be at most the number of labels ({labels.shape[1]}); got {k}")
    model = None if noise is None else _read_noise(noise)
    if model is not None:
        check_same_labels(("Y", label_names_of(Y)), ("noise", model.label_names))
        check_label_width(labels.shape, model.n_labels, "Y")
    top = read_top_labels(labels, real, k, noise is not None)
    devices = [given.device for given in (Y, scores) if isinstance(given, Tensor)]
    return Task(top, noise, model, (lambda value: value.to(devices[0])) if devices else float)


def _read_noise(noise: Noise) -> ClassConditionalNoise:
    """Return the given or estimated noise model, which must be class-conditional."""
    check_noise_or_rates(noise, (NoiseModel, EstimatedNoise))
    model = noise if isinstance(noise, NoiseModel) else noise.noise
    check_rates_known(model, ClassConditionalNoise)
    assert isinstance(model, ClassConditionalNoise)
    return model


def _discounts(k: int) -> Tensor:
    """Return the discounts 1 / log2(r + 1) of the ranks r = 1, ..., k."""
    return 1 / torch.arange(2, k + 2, dtype=torch.float64).log2()


def _ideal_gain(count: Tensor, k: int) -> Tensor:
    """Return the largest discounted gain of k ranks for a number of true labels; linear between integers."""
    discounts = _discounts(k)
    count = count.clamp(1.0, float(k))
    whole = count.detach().floor().long()
    return discounts.cumsum(0)[whole - 1] + (count - whole) * discounts[whole.clamp(max=k - 1)]


def _precision_rows(top: TopLabels, values: LabelValues) -> tuple[Tensor, Tensor]:
    """Return the precision of each row, and 1."""
    gain = values.at_top(top).sum(1) / top.k
    return gain, torch.ones_like(gain)


def _psp_rows(top: TopLabels, values: LabelValues) -> tuple[Tensor, Tensor]:
    """Return the precision of each row, and that of the best ranking."""
    best = _best_gain(top, values, torch.ones(top.k, dtype=torch.float64))
    return values.at_top(top).sum(1) / top.k, best / top.k


def _discounted_rows(top: TopLabels, values: LabelValues) -> tuple[Tensor, Tensor]:
    """Return the discounted gain of each row relative to k true labels, and 1."""
    discounts = _discounts(top.k)
    gain = values.at_top(top) @ discounts / discounts.sum()
    return gain, torch.ones_like(gain)


def _psndcg_rows(top: TopLabels, values: LabelValues) -> tuple[Tensor, Tensor]:
    """Return the discounted gain of each row and of the best ranking, both divided by the ideal gain."""
    discounts, ideal = _discounts(top.k), _ideal_gain(top.counts(), top.k)
    return values.at_top(top) @ discounts / ideal, _best_gain(top, values, discounts) / ideal


def _warn_of_added_labels(task: Task, metric: str) -> None:
    """Warn if the best ranking of a propensity-scored metric contains added labels."""
    if task.model is not None and task.model.rho_neg.any():
        warnings.warn(
            f"{metric} is divided by the best ranking of the observed labels, some of which were added (rho_neg > 0): "
            "use normalized=False for an unbiased estimate",
            stacklevel=3,
        )


def _best_gain(top: TopLabels, values: LabelValues, gains: Tensor) -> Tensor:
    """Return for each row the largest gain of at most k labels: its positive labels by descending value."""
    value = values.one[top.label]
    order = torch.from_numpy(np.lexsort((-value.detach().numpy(), top.row.numpy())))
    rank = torch.arange(len(order)) - torch.searchsorted(top.row, top.row)
    # Rows are ascending, so the sorted values belong to the same rows as before.
    return top.row_sum(value[order] * pad(gains, (0, 1))[rank.clamp(max=top.k)])


def _mean_ratio(
    task: Task, rows: RowSums, status: Status, *, metric: str, widths: NDArray[Any] | None = None
) -> Value | Estimate:
    """Return the ratio of two sums over rows; with noise, an estimate with this status."""
    top, noise, bounds = task.top, task.noise, (0.0, 1.0)
    status = status if noise is None else status_with_rates(status, noise)
    if not top.n:
        return undefined_estimate(metric, NO_COMPLETE_ROW, 0, status, bounds)
    sums = _sum_rows(task, rows, top.k + top.counts().numpy() if widths is None else widths)
    total = sums.denominator.sum()
    if noise is None:
        return task.to_output(sums.numerator.sum() / total if total > 0 else total)
    if not total > 0:
        return undefined_estimate(metric, "no label is 1", top.n, status, bounds)
    value = sums.numerator.sum() / total
    slopes = [(above - value * below) / total for above, below in zip(sums.numerator_slopes, sums.denominator_slopes)]
    influence = (sums.numerator - value * sums.denominator) / total
    return Estimate(float(value), variance_of_estimate((influence, *slopes), noise) ** 0.5, status, bounds)


class Sums(NamedTuple):
    """Numerators and denominators of all rows, and the derivatives of their sums by the two rates of each label."""

    numerator: Tensor
    denominator: Tensor
    numerator_slopes: tuple[Tensor, ...]
    denominator_slopes: tuple[Tensor, ...]


def _sum_rows(task: Task, rows: RowSums, widths: NDArray[Any]) -> Sums:
    """Evaluate ``rows`` block by block; derivatives are computed only if the rates have standard errors."""
    uncertain = task.noise is not None and not isinstance(task.noise, NoiseModel)
    with torch.set_grad_enabled(uncertain):
        rates = tuple(rate.clone().requires_grad_(uncertain) for rate in task.rates)
        parts, slopes = [], [[torch.zeros_like(rate) for rate in rates] for _ in range(2)]
        for block in task.top.blocks(widths):
            part = rows(block, LabelValues.debiased(*rates))
            parts.append([values.detach() for values in part])
            for total, values in zip(slopes, part):
                if uncertain and values.requires_grad:
                    found = torch.autograd.grad(values.sum(), rates, retain_graph=True, materialize_grads=True)
                    for slope, more in zip(total, found):
                        slope += more
    numerator, denominator = (torch.cat(values) for values in zip(*parts))
    return Sums(numerator, denominator, tuple(slopes[0]), tuple(slopes[1]))


def _select_quotient(
    task: Task, gains: Tensor, divisor: Divisor, *, smooth: bool
) -> tuple[RowSums, Status, NDArray[Any] | None]:
    """Return the estimator of the mean of gain / ``divisor(|Y_i|)`` over rows, its status and its memory per row.

    The choice must not depend on the scores, so that models are compared by the same estimator. The multilinear form of
    a divisor that is not ``smooth`` can have a large variance for rows with many labels. It is used only if the labels
    show that the variance is small; since the choice then depends on the labels, the estimate is only consistent.
    """
    top = task.top
    if task.model is None:
        return partial(_plain_quotient, gains=gains, divisor=divisor), "unbiased", None
    added = bool(task.model.rho_neg.any())
    max_inflation = max(1.0, top.n / MIN_ROWS_PER_INFLATION)
    if variance_inflation(task.model) <= max_inflation and not (added and top.n_labels > MAX_EXACT_LABELS):
        widths = ((np.full(top.n, top.n_labels) if added else top.counts().numpy()) + 1) ** 2
        rows = partial(_multilinear_quotient, gains=gains, divisor=divisor, all_labels=added)
        if smooth or not top.n:
            return rows, "unbiased", widths
        # With a gain of 1 for every label, the form estimates |Y| / D(|Y|), which does not depend on the scores.
        sums = _sum_rows(task, partial(rows, gains=None), widths)
        max_deviation = MAX_RELATIVE_SE * top.n**0.5 * abs(float(sums.numerator.mean()))
        if float(sums.numerator.std(correction=0)) <= max_deviation or not (added or task.model.rho_pos.any()):
            return rows, "consistent", widths
    # The approximation uses moments of all rows, so all rows form one block.
    return partial(_moment_quotient, gains=gains, divisor=divisor), "approximate", np.zeros(top.n)


def _plain_quotient(top: TopLabels, values: LabelValues, gains: Tensor, divisor: Divisor) -> tuple[Tensor, Tensor]:
    """Return the quotient of each row for true labels, and 1."""
    quotient = top.hits @ gains / divisor(top.counts())
    return quotient, torch.ones_like(quotient)


def _multilinear_quotient(
    top: TopLabels, values: LabelValues, gains: Tensor | None, divisor: Divisor, all_labels: bool
) -> tuple[Tensor, Tensor]:
    r"""Return the multilinear form of the quotient of each row, and 1.

    For independent labels with probabilities p, the recursion over labels computes :math:`w_c = P(|Y| = c)` and
    :math:`g_c = E[gain; |Y| = c]`. Both are multilinear in p, so debiased labels can replace the probabilities. The
    form is :math:`\sum_c g_c / D(c)`. Labels with the value 0 do not change it and are left out unless ``all_labels``.
    Without ``gains``, every label has the gain 1.
    """
    if all_labels:
        labels = torch.arange(top.n_labels).expand(top.n, -1)
        p = values.zero[labels].index_put((top.row, top.label), values.one[top.label])
    else:
        position = torch.arange(len(top.row)) - torch.searchsorted(top.row, top.row)
        labels = torch.full((top.n, int(top.counts().max()) if top.n else 0), top.n_labels)
        labels[top.row, position] = top.label
        p = values.one[labels]
    gain = torch.full(labels.shape, float(gains is None), dtype=torch.float64)
    for r, gain_at_rank in enumerate([] if gains is None else gains):
        gain += gain_at_rank * (top.index[:, r : r + 1] == labels)
    weight = torch.zeros(top.n, labels.shape[1] + 1, dtype=torch.float64)
    weight[:, 0] = 1
    total = torch.zeros_like(weight)
    for j in range(labels.shape[1]):
        p_j, shifted = p[:, j : j + 1], pad(weight[:, :-1], (1, 0))
        total = total * (1 - p_j) + (pad(total[:, :-1], (1, 0)) + shifted * gain[:, j : j + 1]) * p_j
        weight = weight * (1 - p_j) + shifted * p_j
    quotient = total @ (1 / divisor(torch.arange(weight.shape[1], dtype=torch.float64)))
    return quotient, torch.ones_like(quotient)


def _moment_quotient(top: TopLabels, values: LabelValues, gains: Tensor, divisor: Divisor) -> tuple[Tensor, Tensor]:
    r"""Return an approximation of the quotient of each row from two moments of the number of true labels, and 1.

    A true label at rank r contributes :math:`gain_r / D(1 + c)`, where c is the number of the other true labels of the
    row. Mean and variance of c over the true labels at rank r are ratios of unbiased sums. The mean of
    :math:`1 / D(1 + c)` is that of the distribution with these moments in ``_count_distribution``.
    """
    with torch.enable_grad():
        row_weights = torch.ones(top.n, 1, dtype=torch.float64, requires_grad=True)
        p = values.at_top(top)
        variances = values.noise_variance()
        others = values.total(top).unsqueeze(1) - p
        noise_variance = variances.total(top).unsqueeze(1) - variances.at_top(top)
        weights = p * row_weights
        n_hits = weights.sum(0).clamp_min(MIN_POSITIVE)
        mean = (weights * others).sum(0) / n_hits
        variance = (weights * ((others - mean).square() - noise_variance)).sum(0) / n_hits
        shares = _count_distribution(mean, variance, top.n_labels)
        counts = torch.arange(1, shares.shape[1] + 1, dtype=torch.float64)
        inverse = (shares / divisor(counts)).sum(1)
        theta = (weights * gains * inverse).sum() / row_weights.sum()
        (influence,) = torch.autograd.grad(theta, row_weights, retain_graph=True)
    # The moments depend on all rows. These values have the mean theta, and their deviations are the influences.
    quotient = theta + top.n * influence.squeeze(1)
    return quotient, torch.ones_like(quotient.detach())


def _count_distribution(mean: Tensor, variance: Tensor, n_labels: int) -> Tensor:
    """Return the probabilities (k, m) of 0, 1, ..., m - 1 for distributions with these means and variances (k,).

    The distribution is negative binomial if the variance exceeds the mean, otherwise a mixture of the two binomial
    distributions with the mean whose variances enclose the variance.
    """
    mean = mean.clamp(0.0, n_labels - 1.0).unsqueeze(1)
    variance = variance.clamp_min(0.0).unsqueeze(1)
    # The tail of the negative binomial distribution is geometric, with the mean length variance / mean.
    scale = (mean + variance).sqrt() + variance / mean.clamp_min(0.01)
    largest = float((mean + MAX_COUNT_DEVIATION * scale).max().detach()) + 2
    counts = torch.arange(1, min(n_labels, int(largest) + 1), dtype=torch.float64)
    trials = (mean.square() / (mean - variance).clamp_min(MIN_POSITIVE)).clamp(max=n_labels - 1.0).detach().floor()
    trials = torch.maximum(trials, mean.detach().ceil()).clamp_min(1.0)
    smaller, larger = (mean * (1 - mean / size) for size in (trials, trials + 1))
    share = ((larger - variance) / (larger - smaller).clamp_min(MIN_POSITIVE)).clamp(0.0, 1.0)
    binomial = [_panjer_distribution(*_binomial_coefficients(mean, size), counts) for size in (trials, trials + 1)]
    dispersed = torch.maximum(variance, mean).clamp_min(MIN_POSITIVE)
    a = 1 - mean / dispersed
    negative_binomial = _panjer_distribution(a, mean.square() / dispersed - a, counts)
    return torch.where(variance > mean, negative_binomial, share * binomial[0] + (1 - share) * binomial[1])


def _binomial_coefficients(mean: Tensor, trials: Tensor) -> tuple[Tensor, Tensor]:
    """Return a and b of the recursion for binomial distributions."""
    probability = (mean / trials).clamp(max=1 - MIN_POSITIVE)
    odds = probability / (1 - probability)
    return -odds, (trials + 1) * odds


def _panjer_distribution(a: Tensor, b: Tensor, counts: Tensor) -> Tensor:
    """Return probabilities that follow the recursion of Panjer, w_c = (a + b / c) w_{c-1}."""
    ratio = (a + b / counts).clamp_min(torch.finfo(torch.float64).tiny)
    return pad(ratio.log().cumsum(1), (1, 0)).softmax(1)


def _macro_ratio(task: Task, *, recall: bool, metric: str) -> Value | Estimate:
    """Return the mean over labels of correct selections divided by selections or, for ``recall``, by positive rows."""
    top, noise, bounds = task.top, task.noise, (0.0, 1.0)
    values, positives = LabelValues.debiased(*task.rates), top.label_counts()
    selected = top.index.flatten()
    correct = torch.zeros(top.n_labels + 1, dtype=torch.float64).index_add(0, selected, values.at_top(top).flatten())
    status: Status = "unbiased"
    if recall:
        total, noise_variance = (_label_sum(part, positives, top.n) for part in (values, values.noise_variance()))
        # If no labels are added, the ratio is stable for every label with a positive row.
        margin = 2 * noise_variance.clamp_min(0).sqrt()
        included = torch.where(values.zero[:-1] < 0, total > margin, positives > 0)
        n_included = int(included.sum())
        status = "approximate" if bool((~included & (positives > 0)).any()) else "consistent"
    else:
        total = torch.bincount(selected, minlength=top.n_labels + 1)[:-1].double()
        included, n_included = total > 0, top.n_labels
    # Empty positions have the index q; they get the factor 0.
    factor = pad(torch.where(included, 1 / torch.where(included, total, 1.0), 0.0), (0, 1))
    ratio = factor * correct
    if noise is None:
        if not n_included:
            warnings.warn(f"{metric} is NaN: no label has a positive row", stacklevel=3)
        return task.to_output(ratio.sum() / n_included if n_included else ratio.new_full((), math.nan))
    status = status_with_rates(status, noise)
    if not top.n or not n_included:
        reason = "no label has enough positive rows"
        return undefined_estimate(metric, reason if top.n else NO_COMPLETE_ROW, top.n, status, bounds)
    rows = partial(_macro_influence, factor=factor / n_included, ratio=ratio, recall=recall)
    sums = _sum_rows(task, rows, top.k + top.counts().numpy())
    slopes = sums.numerator, *sums.numerator_slopes
    return Estimate(float(ratio.sum()) / n_included, variance_of_estimate(slopes, noise) ** 0.5, status, bounds)


def _label_sum(values: LabelValues, positives: Tensor, n: int) -> Tensor:
    """Return for each label (q,) the sum of the values over n rows, of which ``positives`` have a 1."""
    return n * values.zero[:-1] + positives * (values.one - values.zero)[:-1]


def _macro_influence(
    top: TopLabels, values: LabelValues, factor: Tensor, ratio: Tensor, recall: bool
) -> tuple[Tensor, Tensor]:
    """Return the derivative of a macro ratio by the weight of each row, and 0.

    The derivative of numerator / total is (numerator_i - ratio * total_i) / total, summed over labels. Its sum over
    rows is 0, and the derivative of this sum by the rates is the derivative of the metric.
    """
    weights = factor[top.index]
    numerator = (weights * values.at_top(top)).sum(1)
    if recall:
        scaled = LabelValues(*(factor * ratio * value for value in values))
        total = scaled.total(top)
    else:
        total = (weights * ratio[top.index]).sum(1)
    influence = numerator - total
    return influence, torch.zeros_like(influence)
