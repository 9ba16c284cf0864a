r"""Probabilities and thresholds: how scores become probabilities of the true labels, and what is fitted for that.

Probabilities lie strictly inside (0, 1), increase with the score and are 1/2 at the threshold.

| loss | link | probability | reason |
| --- | --- | --- | --- |
| hamming / square | linear | (1 + f) / 2, with tails that never reach 0 or 1 | the minimizer is f = 2 P - 1 |
| hamming / logistic, forward | logistic | sigma(f) | the minimizer is the log-odds |
| plugin | plugin | (P_noisy - rho_neg) / (1 - rho_pos - rho_neg), with shorter tails | the noise is inverted |
| all others | slope | sigma(a f), a > 0 fitted on debiased validation labels | Platt scaling [1]_ without offset |

The slope of the ranking loss and of classes is the same for all labels, so that probabilities order the labels of a
row as the scores do. Other losses have a slope for every label (:func:`label_slopes`) [2]_.

The average of a linear model and a forest predicts probabilities that are too close to the share of the label: both
models are regularized, and so is their average. Its log-odds have a slope and an offset for every label, fitted to the
noisy labels of rows that the models have not seen (:func:`platt_scaling`).

References
----------
.. [1] J. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods",
   Advances in Large Margin Classifiers, MIT Press, 1999.
.. [2] R. DerSimonian and N. Laird, "Meta-analysis in clinical trials", Controlled Clinical Trials 7(3), 1986.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax
from torch import Tensor

from ccmn.training.selection import MAX_BLOCK_SCORES

if TYPE_CHECKING:
    from ccmn.models.predictor import Scorer
    from ccmn.models.training_data import Sample

LINKS = ("linear", "logistic", "plugin", "slope")
"""Relations of scores and probabilities."""
LINK_OF_LOSS: dict[tuple[str, str | None], str] = {
    ("hamming", "square"): "linear",
    ("hamming", "logistic"): "logistic",
    ("forward", None): "logistic",
    ("plugin", None): "plugin",
}
"""Link of a loss and a surrogate; all others have the link "slope"."""
MAX_SLOPE_ENTRIES = 1 << 26
"""The slope of probabilities is fitted on at most this number of validation scores."""
MAX_LABEL_SLOPES = 1000
"""With more labels, all labels have the same slope: there are too few scores to fit a slope per label."""
MAX_LABEL_SLOPE_ENTRIES = 1 << 19
"""The slopes of labels are fitted on at most this number of validation scores, which takes about a second."""

PLATT_PENALTY = 3.0
"""Ridge penalty of slopes and offsets of an average. Of 1, 3 and 10, selected on yeast, enron, tmc, deu and cmc."""
MIN_PLATT_SLOPE = 0.1
"""Smallest slope of an average: it must increase, so that the order of the rows does not change."""
PLATT_STEPS = 15
"""Newton steps of slopes and offsets; they converge in fewer than ten."""

MAX_TAIL = 0.05
"""Largest probability in the tails of the linear and the plug-in link."""
TAIL_SHARE = 0.25
"""Tail of the plug-in link, relative to the distance by which corrected probabilities can leave [0, 1]. Of 0.02, 0.1,
0.25, 0.5 and 1, selected by the log loss on yeast, enron and tmc."""
_MAX_LOG_ODDS = 20.0
"""Scores of the logistic link beyond this value are in the tails, because the exponential would run out of digits."""
_LOG_SLOPES = (-4.0, 4.0)
"""Smallest and largest logarithm of the slope for scores of unit root mean square."""
_LOG_RATIOS = np.linspace(-1.5, 1.5, 101)
"""Logarithms of the ratio of a label's slope to the common slope, over which its posterior is averaged."""
_MAX_HALF = float(np.finfo(np.float16).max)


def linear_probability(f: NDArray[Any], tails: Any = (MAX_TAIL, MAX_TAIL)) -> NDArray[Any]:
    """Return p = (1 + f) / 2, with tails that approach 0 and 1 like 1 / abs(f), so that ranks are kept.

    The tails are p below ``tails[0]`` and above ``1 - tails[1]``, numbers or arrays of shape (q,).

    >>> linear_probability(np.array([-3.0, 0.0, 0.5, 1.0])).round(3)
    array([0.002, 0.5  , 0.75 , 0.975])
    >>> linear_probability(np.array([-0.99, 0.0, 0.5, 1.0]), (0.0, 0.01)).round(3)
    array([0.005, 0.5  , 0.75 , 0.995])
    """
    low, high = tails
    p = (1 + f) / 2
    tiny = np.finfo(np.float64).tiny
    bottom, top = low**2 / np.maximum(2 * low - p, tiny), 1 - high**2 / np.maximum(2 * high - 1 + p, tiny)
    return _open_interval(np.where(p < low, bottom, np.where(1 - p < high, top, p)))


def linear_probability_tensor(f: Tensor, tails: Tensor) -> Tensor:
    """Return :func:`linear_probability` of a tensor.

    >>> linear_probability_tensor(torch.tensor([-3.0, 0.0, 0.5, 1.0]), torch.tensor([0.05, 0.05]))
    tensor([0.0023, 0.5000, 0.7500, 0.9750])
    """
    low, high = tails
    p = (1 + f) / 2
    tiny = torch.finfo(f.dtype).tiny
    bottom, top = low**2 / (2 * low - p).clamp_min(tiny), 1 - high**2 / (2 * high - 1 + p).clamp_min(tiny)
    return torch.where(p < low, bottom, torch.where(1 - p < high, top, p))


def corrected_tails(
    rho_pos: NDArray[np.float64], rho_neg: NDArray[np.float64], thresholds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the tails (2, q) of corrected probabilities minus half of the thresholds.

    Corrected probabilities are between -rho_neg / r and 1 + rho_pos / r, r = 1 - rho_pos - rho_neg. Without noise they
    never leave (0, 1) and need no tail, so that rare labels keep their small probabilities.
    """
    signal = 1 - rho_pos - rho_neg
    outside = np.stack((rho_neg / signal + thresholds / 2, rho_pos / signal - thresholds / 2))
    return np.clip(TAIL_SHARE * outside, 0, MAX_TAIL)


def logistic_probability(f: NDArray[Any]) -> NDArray[Any]:
    """Return sigma(f) for abs(f) < 20; the tails approach 0 and 1 like 1 / abs(f), so that ranks are kept.

    >>> bool(logistic_probability(np.array([1e4])) > logistic_probability(np.array([1e3])))
    True
    """
    end = expit(-_MAX_LOG_ODDS)
    tail = end / (1 + np.maximum(np.abs(f) - _MAX_LOG_ODDS, 0))
    inside = expit(np.clip(f, -_MAX_LOG_ODDS, _MAX_LOG_ODDS))
    return _open_interval(np.where(f > _MAX_LOG_ODDS, 1 - tail, np.where(f < -_MAX_LOG_ODDS, tail, inside)))


def _open_interval(p: NDArray[Any]) -> NDArray[Any]:
    """Return probabilities that are at least the smallest floating-point step away from 0 and 1."""
    return np.asarray(np.clip(p, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0)))


def calibrate(
    scorer: Scorer,
    valid: Sample,
    threshold: str,
    outputs: NDArray[np.float64] | None = None,
    *,
    per_label: bool = False,
) -> Scorer:
    """Return the scorer with the slopes of its probabilities and, for ``threshold="f1"``, its thresholds.

    Blocks of rows are added to the fit of the slope one by one, tiles of labels get their thresholds one by one.
    ``outputs`` are those of a model that has not seen the validation rows, if the scorer has. With ``per_label``,
    each label has its own slope if there are at most ``MAX_LABEL_SLOPES`` labels.
    """
    slope, thresholds = scorer.slope, scorer.thresholds
    n, q = valid.p.shape
    if scorer.link == "slope":
        fit, size = SlopeFit(), max(1, MAX_BLOCK_SCORES // q)
        rows = np.unique(np.linspace(0, n - 1, max(1, min(n, MAX_SLOPE_ENTRIES // q))).astype(np.int64))
        for start in range(0, rows.size, size):
            part = valid.take(rows[start : start + size])
            fit.add(scorer.scores(part.X), part.dense_labels(), part.weights)
        slope = fit.slope()
        if per_label and q <= MAX_LABEL_SLOPES:
            part = valid.at_most(MAX_LABEL_SLOPE_ENTRIES // q)
            slope = label_slopes(scorer.scores(part.X), part.dense_labels(), slope, part.weights)
    if threshold == "f1":
        thresholds = np.concatenate(
            [
                f1_thresholds(
                    scorer.scores(valid.X, labels) if outputs is None else scorer.scores_of(outputs[:, labels], labels),
                    valid.columns(labels),
                    valid.weights,
                )
                for labels in scorer.tiles(max(1, valid.X.shape[0]))
            ]
        )
    return replace(scorer, slope=slope, thresholds=thresholds)


@dataclass
class SlopeFit:
    """Fit of the slope a > 0 that minimizes the mean of softplus(a f) - p a f over debiased labels p.

    One slope for all labels changes neither the threshold at 0 nor any ranking. The risk depends on the scores through
    their distribution and on the labels through one sum. With more than one block, scores are counted in float16,
    which changes the slope by a factor of about 1 +- 1e-4.
    """

    _first: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None
    """Scores, labels and weights of the first block."""
    _counts: NDArray[np.float64] | None = None
    """Sum of weights for every float16 score, if there are several blocks."""
    _linear: float = 0.0
    """Sum of weight * p * f, if there are several blocks."""

    def add(self, scores: NDArray[Any], p: NDArray[Any], row_weights: NDArray[Any] | None = None) -> None:
        """Add scores and debiased labels (n, q) of some rows; NaN labels are ignored."""
        observed = ~np.isnan(p)
        f, target = scores[observed], p[observed]
        weight = np.ones(f.size) if row_weights is None else np.broadcast_to(row_weights[:, None], p.shape)[observed]
        if self._first is None and self._counts is None:
            self._first = f, target, weight
            return
        if self._first is not None:
            self._count(*self._first)
            self._first = None
        self._count(f, target, weight)

    def _count(self, f: NDArray[Any], target: NDArray[Any], weight: NDArray[Any]) -> None:
        """Add a block to the histogram of float16 scores and to the linear term."""
        self._linear += float((weight * target * f).sum())
        half = np.clip(f, -_MAX_HALF, _MAX_HALF).astype(np.float16).view(np.uint16)
        counts = np.asarray(np.bincount(half, weights=weight, minlength=1 << 16), dtype=np.float64)
        self._counts = counts if self._counts is None else self._counts + counts

    def slope(self) -> float:
        """Return the slope; 1 if there are no scores that determine it."""
        if self._first is not None:
            f, target, weight = self._first
            linear = float((weight * target * f).sum())
        elif self._counts is not None:
            kept = np.flatnonzero(self._counts)
            f, weight = kept.astype(np.uint16).view(np.float16).astype(np.float64), self._counts[kept]
            linear = self._linear
        else:
            return 1.0
        total = float(weight.sum())
        scale = float(np.sqrt((weight * f**2).sum() / total)) if total > 0 else 0.0
        if scale == 0 or not np.isfinite(scale):
            return 1.0
        f = f / scale

        def derivative(log_a: float) -> float:
            # The zero of the derivative is found to full precision; the minimum of the risk only to half of it.
            return float((weight * f * expit(np.exp(log_a) * f)).sum() - linear / scale) / total

        # The risk is convex in a. If the derivative has no zero in the interval, one of its ends is the minimum.
        low, high = _LOG_SLOPES
        if derivative(low) >= 0 or derivative(high) <= 0:
            return float(np.exp(low if derivative(low) >= 0 else high) / scale)
        return float(np.exp(brentq(derivative, low, high, xtol=1e-14)) / scale)


def label_slopes(
    scores: NDArray[Any], p: NDArray[Any], slope: float, row_weights: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    r"""Return the slope of every label, shrunk towards the common slope.

    The slope :math:`a_j = a e^{b_j}` of label j solves :math:`g_j(b_j) = 0` on average, with

    .. math:: g_j(b) = \sum_i w_i\, a f_{ij} \left(\sigma(a e^b f_{ij}) - p_{ij}\right).

    Its variance :math:`v_j` is the sum of the squared terms at b = 0, which is large for strong noise. The prior is
    normal, with mean 0 and the variance :math:`\tau^2` of DerSimonian and Laird [2]_: of the linear approximation
    :math:`E[g_j(0)^2] = v_j + I_j^2 \tau^2`, where :math:`I_j = g_j'(0)`. The result is :math:`a e^b` for the posterior
    mean b, given :math:`g_j(b) \sim N(0, v_j)`. A label whose scores contain little information keeps the common slope,
    and so do all labels if their slopes differ no more than by chance. The squared moment is bounded, unlike the
    empirical risk, which decreases without limit in a if p exceeds 1.
    """
    observed = ~np.isnan(p)
    weight = observed * (np.ones(len(p)) if row_weights is None else row_weights)[:, None]
    x, target = slope * scores, np.where(observed, p, 0.0)
    at_common = expit(x)
    terms = weight * x * (at_common - target)
    moment, variance = terms.sum(0), (terms**2).sum(0)
    information = (weight * x**2 * at_common * (1 - at_common)).sum(0)
    known = (variance > 0) & (information > 0)
    excess = (moment[known] ** 2 / variance[known]).sum() - (known.sum() - 1)
    if known.sum() < 2 or not excess > 0:  # also if scores are not finite
        return np.full(p.shape[1], slope)
    prior_variance = excess / (information[known] ** 2 / variance[known]).sum()
    linear = (weight * x * target).sum(0)[known]
    x, weight = x[:, known], weight[:, known]
    moments = np.stack([(weight * x * expit(np.exp(b) * x)).sum(0) for b in _LOG_RATIOS]) - linear
    log_posterior = -(moments**2) / (2 * variance[known]) - _LOG_RATIOS[:, None] ** 2 / (2 * prior_variance)
    log_ratio = np.zeros(p.shape[1])
    log_ratio[known] = _LOG_RATIOS @ softmax(log_posterior, axis=0)
    return np.asarray(slope * np.exp(log_ratio))


def platt_scaling(
    outputs: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return slope and offset of the log-odds of every label (2, q), by Platt scaling [1]_ with normal priors.

    They minimize the logistic loss of :math:`a_j f_{ij} + b_j` plus :math:`\tfrac{3}{2} ((a_j - 1)^2 + b_j^2)`, which
    keeps the log-odds of labels with few positives. The objective is convex; Newton steps are limited in size.

    Parameters
    ----------
    outputs : array of shape (n, q)
        Log-odds of models that were not fitted to the row.
    targets : array of shape (n, q)
        Labels or probabilities.
    weights : array of shape (n, q)
        Weights; 0 where a label was not observed.
    """
    slope, offset = np.ones(outputs.shape[1]), np.zeros(outputs.shape[1])
    for _ in range(PLATT_STEPS):
        p = expit(slope * outputs + offset)
        residual, curvature = weights * (p - targets), weights * p * (1 - p)
        of_slope = (residual * outputs).sum(0) + PLATT_PENALTY * (slope - 1)
        of_offset = residual.sum(0) + PLATT_PENALTY * offset
        weighted = curvature * outputs
        second = (weighted * outputs).sum(0) + PLATT_PENALTY
        mixed, last = weighted.sum(0), curvature.sum(0) + PLATT_PENALTY
        determinant = second * last - mixed**2
        slope = slope - np.clip((last * of_slope - mixed * of_offset) / determinant, -0.5, 0.5)
        offset = offset - np.clip((second * of_offset - mixed * of_slope) / determinant, -1, 1)
        slope = np.maximum(slope, MIN_PLATT_SLOPE)
    return np.stack((slope, offset))


def f1_thresholds(
    scores: NDArray[Any], p: NDArray[Any], row_weights: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    r"""Return the threshold t of every label with the largest :math:`2 TP / (PP + P)`.

    :math:`TP = \sum_i 1[f_i \ge t]\, p_i`, :math:`PP = \sum_i 1[f_i \ge t]`, :math:`P = \sum_i p_i` with debiased
    labels p, so that the estimate is consistent for the F1 score on true labels. Thresholds lie halfway between two
    scores. A label whose debiased labels have no positive sum keeps its threshold at 0.
    """
    thresholds = np.zeros(scores.shape[1])
    weights = np.ones(len(scores)) if row_weights is None else row_weights
    for j in range(scores.shape[1]):
        observed = ~np.isnan(p[:, j])
        order = np.argsort(-scores[observed, j], kind="stable")
        f, weight = scores[observed, j][order], weights[observed][order]
        target = weight * p[observed, j][order]
        positives = target.sum()
        if positives <= 0:
            continue
        f1 = 2 * target.cumsum() / (weight.cumsum() + positives)
        f1[:-1][f[:-1] == f[1:]] = -np.inf  # a threshold cannot separate equal scores
        best = int(f1.argmax())
        thresholds[j] = (f[best] + f[best + 1]) / 2 if best + 1 < f.size else f[best]
    return thresholds
