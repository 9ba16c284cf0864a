r"""Error probability of a given label from its out-of-fold probability: without verified rows, and learned from them.

With known noise rates, Bayes' rule gives the error probability (:func:`ccmn.audit.p_wrong`). Rates that are estimated
from noisy labels give a good ranking only if the noise is class-conditional. Human annotation errors are frequent where
a label is hard to decide and rare where it is obvious. The estimated rate of added labels is then several times too
small, and the posterior never suspects an added label. The unsupervised score is therefore a mixture,

.. math:: w \cdot \text{posterior} + (1 - w)\, (0.2\, \bar s + 0.16\, s), \qquad s = 1 - P(\text{given label} \mid x),

whose second part ranks labels by the self-confidence score [1]_; :math:`\bar s` is the mean of s over the data. The
weight w is the evidence for class-conditional noise: the smallest share of given labels among the rows in which the
label is predicted to be absent, averaged over the labels (:func:`rates_from_probabilities`). If labels are added
independently of the features, this share is at least rho_neg; if errors occur in difficult rows, it is close to 0.
Above 0.165 the posterior is used, below 0.15 self-confidence.

In the second case, the features cannot distinguish annotation errors from model errors: with the same probabilities,
between 0 % (correct labels, weak features) and 70 % (crowd workers) of the labels that contradict the prediction are
wrong. The score then stays below 0.5. Verified rows resolve this (:func:`fit_error_model`).

Rows without any label, although the features indicate several, are the exception: their number shows whether whole rows
lost their labels (:class:`EmptiedRows`).

References
----------
.. [1] C. G. Northcutt, L. Jiang and I. L. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels",
   Journal of Artificial Intelligence Research 70, 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.special
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.link import fit_scaling

TOP_SHARE = 0.25
"""Share of the rows with the largest expected number of labels, among which emptied rows are counted."""
MIN_EMPTIED, MIN_Z_EMPTIED = 0.02, 3.0
"""Smallest excess of empty rows, and the same in standard errors."""
MAX_SAMPLE_ROWS = 3000
"""Rows from which the evidence is computed. More rows do not change it noticeably."""
MAX_SAMPLE_ENTRIES = 2**22
"""Labels from which the evidence is computed; with many labels fewer rows are used, but at least 200."""
MAX_SCALING_ROWS = 1500
"""Rows to which slope and offset of :func:`calibrate_to_noise` are fitted for a table of error probabilities."""
MIN_RANGE_ROWS = 15
"""Smallest number of rows at either end of the predictions whose share of given labels counts."""
MIN_RANGE_SHARE = 0.02
"""Smallest share of rows at the lower end whose share of given labels counts."""
EVIDENCE_RANGE = (0.15, 0.165)
"""Mean share of added labels at which the weight of the posterior is 0 and 1.

On enron, tmc, yeast, deu and cmc, the share is at most .15 for correct labels, human annotation errors and
feature-dependent noise, and at least .2 for class-conditional noise with rates of .1 to .5. The upper limit was lowered
for draws on scene and mirflickr whose share is .16 and .17.
"""
MAX_WEIGHT = 0.995
"""Largest weight of the posterior: the other part orders labels whose posterior is equal and keeps them above 0."""
LEVEL_FACTOR, CONFIDENCE_FACTOR = 0.2, 0.16
"""Coefficients of the mean and of the own contradiction of a label if there is no evidence for the posterior.

A compromise, not an estimate: 0 to 70 % of the labels that contradict the prediction are wrong, depending on the data.
With these values, the Brier score on yeast, enron, tmc, deu and cmc is below that of the share of wrong labels for
all noise scenarios except correct labels. Larger values are better for human labels and worse for removed labels.
"""
MAX_ADDED_RATE = 0.5
"""Largest rate of added labels. The share among the rows in which a label is predicted to be absent is only a bound:
labels that are given in most rows are rarely obviously absent."""
MIN_COMPLETE_ROWS = 200
"""Smallest number of rows without unobserved labels from which emptied rows are estimated."""
IMPOSSIBLE_FACTOR = 1e-3
"""Factor of the second part for errors that the declared noise type excludes."""
N_NODES = 257
"""Nodes of the table of error probabilities, at equal distances in the predicted probability."""
PRIOR_SLOPE = 0.3
"""Coefficient of the log-odds of the unsupervised score before any row is verified: between 0 and 0.5, the best of
0, 0.5 and 1 on deu and cmc."""
PENALTY = 5.0
"""Ridge penalty of the coefficients that all labels share; the features have unit variance."""
LABEL_PENALTY = 2.0
"""Ridge penalty of the offsets of every label and given value. It shrinks them towards the pooled model."""
N_FOLDS = 5
"""Folds of the verified rows, on which the learned error probabilities are calibrated."""
MIN_CALIBRATION_ROWS = 10
"""Smallest number of verified rows from which they are calibrated."""
SCALING_PENALTY, MIN_SCALING = 3.0, 0.1
"""Ridge penalty of that calibration, and smallest slope, which keeps the order."""
EPS = 0.01
"""Calibrated probabilities of true labels are limited to [eps, 1 - eps]."""
_LOGIT_EPS = 1e-6
"""Probabilities are clipped to [eps, 1 - eps] before the logit of the calibration."""
_MIN_PROBABILITY = 1e-4
"""Probabilities are clipped to [eps, 1 - eps] before the logit of the error model."""
_TIE_BREAK = 1e-12
"""Weight of the predicted probability in p_wrong. It orders labels whose error probability is clipped to 1."""
_MIN_SCALE = 0.1
"""Lower bound of the standard deviations by which features are divided."""


MIN_ANNOTATOR_COUNT = 5.0
"""Labels that are added to the given and the predicted number of labels of an annotator before their ratio is taken."""

ErrorScore = Callable[..., FloatArray]
"""Function that returns error probabilities (m, q) of given labels (m, q) with probabilities (m, q) and, if annotators
or votes are known, the surplus or the dissent (m, q)."""


class RateRange(NamedTuple):
    """Noise rates (q,). The posterior is averaged over the two values rho_pos - spread and rho_pos + spread."""

    rho_pos: FloatArray
    rho_neg: FloatArray
    spread: FloatArray


def p_wrong(noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""Return P(true label differs from the given label | x, given label), by Bayes' rule.

    .. math::
        P(y = 0 \mid \tilde y = 1, x) = \frac{\rho_{neg} (1 - \eta)}{\tilde\eta}, \qquad
        P(y = 1 \mid \tilde y = 0, x) = \frac{\rho_{pos}\, \eta}{1 - \tilde\eta}

    Here :math:`\tilde\eta = P(\tilde y = 1 \mid x)` is the probability of the *noisy* label. The probability of the
    true label is :math:`\eta = (\tilde\eta - \rho_{neg}) / r` with :math:`r = 1 - \rho_{pos} - \rho_{neg}` [1]_. With
    :math:`s = P(\tilde y = \text{given} \mid x)` and :math:`o = P(\tilde y = \text{given} \mid y = \text{other})`
    both cases are one formula:

    .. math:: \frac{o}{r} \left( \frac{o + r}{s} - 1 \right), \qquad o \le s \le o + r

    Under noise with these rates, s cannot leave this range. Predictions outside of it are clipped; the error
    probability is then 1 or 0. Labels with error probability 1 are ordered by s in the twelfth digit.

    Parameters
    ----------
    noisy : array of shape (..., q)
        Given labels in {0, 1}; NaN where not observed.
    pred_proba : array of shape (..., q)
        Out-of-fold probabilities of the noisy labels.
    rho_pos : array of shape (q,)
        False-negative rates P(noisy 0 | true 1).
    rho_neg : array of shape (q,)
        False-positive rates P(noisy 1 | true 0).

    Returns
    -------
    ndarray of float64, shape (..., q)
        Error probabilities; NaN where not observed.

    References
    ----------
    .. [1] A. K. Menon, B. van Rooyen, C. S. Ong and R. C. Williamson, "Learning from Corrupted Binary Labels via
       Class-Probability Estimation", ICML, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.audit import p_wrong
    >>> p_wrong(np.array([1, 0]), np.array([0.5, 0.5]), np.array([0.1, 0.2]), np.array([0.3, 0.0]))
    array([0.4 , 0.25])
    """
    given = noisy == 1
    signal = 1 - rho_pos - rho_neg
    p_flipped = np.where(given, rho_neg, rho_pos)
    p_given = np.where(given, pred_proba, 1 - pred_proba)
    # The lower limit avoids 0 / 0 for a value that has probability 0. Such a label counts as correct.
    clipped = np.clip(p_given, np.maximum(p_flipped, np.finfo(np.float64).tiny), p_flipped + signal)
    error = np.minimum(p_flipped / signal * ((p_flipped + signal) / clipped - 1), 1)
    result: FloatArray = error * (1 - _TIE_BREAK * p_given)
    if np.issubdtype(noisy.dtype, np.floating):
        result[np.isnan(noisy)] = np.nan
    return result


def calibrate_to_noise(
    noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray
) -> FloatArray:
    r"""Calibrate probabilities of noisy labels so that they are possible under the noise rates.

    .. math:: \tfrac12 \bigl(\min(\max(\tilde\eta, \rho_{neg}), 1 - \rho_{pos}) + g\bigr), \qquad
        g = \rho_{neg} + r\, (\epsilon + (1 - 2 \epsilon)\, \sigma(a \operatorname{logit} \tilde\eta + b))

    P(noisy label = 1 | x) lies between rho_neg and 1 - rho_pos. Predictions outside of this range would give an error
    probability of exactly 0 or 1. The result is the mean of the clipped prediction and of g, a Platt scaling [1]_ of
    the true label with :math:`\epsilon = 0.01`, whose slope a and offset b maximize the likelihood of the noisy
    labels. On benchmark data the mean ranks wrong labels as well as the better of the two, and its error
    probabilities are better calibrated.

    Labels with fewer than 20 observed rows of either class are only clipped.

    Parameters
    ----------
    noisy : array of shape (n, q)
        Noisy labels in {0, 1}; NaN where not observed.
    pred_proba : array of shape (n, q)
        Out-of-fold probabilities of the noisy labels.
    rho_pos : array of shape (q,)
        False-negative rates P(noisy 0 | true 1).
    rho_neg : array of shape (q,)
        False-positive rates P(noisy 1 | true 0).

    Returns
    -------
    ndarray of float64, shape (n, q)
        Calibrated probabilities of the noisy labels.

    References
    ----------
    .. [1] J. C. Platt, "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood
       Methods", in Advances in Large Margin Classifiers, MIT Press, 1999.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.audit import calibrate_to_noise
    >>> calibrate_to_noise(np.array([[1.0], [0.0]]), np.array([[0.99], [0.4]]), np.array([0.2]), np.array([0.1]))
    array([[0.8], [0.4]])
    """
    return _apply_scaling(
        pred_proba, fit_scaling(noisy, _clipped_logit(pred_proba), rho_pos, rho_neg), rho_pos, rho_neg
    )


def _apply_scaling(
    pred_proba: FloatArray, scaling: tuple[FloatArray, FloatArray], rho_pos: FloatArray, rho_neg: FloatArray
) -> FloatArray:
    """Return the probabilities of :func:`calibrate_to_noise` for a fitted scaling."""
    slope, offset = scaling
    clipped = np.clip(pred_proba, rho_neg, 1 - rho_pos)
    true = scipy.special.expit(slope * _clipped_logit(pred_proba) + offset)
    scaled = rho_neg + (1 - rho_pos - rho_neg) * (EPS + (1 - 2 * EPS) * true)
    return np.asarray(np.where(np.isnan(slope), clipped, (clipped + scaled) / 2))


def _clipped_logit(probabilities: FloatArray) -> FloatArray:
    return np.asarray(scipy.special.logit(np.clip(probabilities, _LOGIT_EPS, 1 - _LOGIT_EPS)))


def sample_rows(n: int, q: int) -> NDArray[np.intp]:
    """Return the rows from which evidence is computed, at equal distances.

    >>> sample_rows(10, 3).tolist(), sample_rows(10**6, 10).size
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 3000)
    """
    size = min(n, MAX_SAMPLE_ROWS, max(200, MAX_SAMPLE_ENTRIES // q))
    return np.linspace(0, n - 1, size).round().astype(np.intp)


def rates_from_probabilities(given: FloatArray, pred_proba: FloatArray) -> RateRange:
    r"""Estimate noise rates from the ends of the predictions.

    The rows of a label are sorted by their probability. rho_neg is the share of given ones among the first rows plus
    its standard error, at the number of rows that minimizes this sum. rho_pos is at most the share of zeros among the
    last rows, computed in the same manner; it is averaged over two values with the mean and the variance of the
    uniform distribution from 0 to this bound.
    The probabilities alone do not identify the rates: both values are upper bounds if the features do not determine
    the label of any row. rho_neg is nevertheless close to the rate, because nearly every label has rows in which it is
    obviously absent.

    Parameters
    ----------
    given : array of shape (m, q)
        Given labels in {0, 1}; NaN where not observed.
    pred_proba : array of shape (m, q)
        Out-of-fold probabilities of the noisy labels.

    Returns
    -------
    RateRange
        Rates with their spread; 0 for labels without an observed row.
    """
    probabilities = np.ascontiguousarray(pred_proba.T)
    observed = ~np.isnan(given.T)
    order = np.argsort(np.where(observed, probabilities, np.inf), axis=1)
    ones = np.take_along_axis(np.nan_to_num(given.T), order, 1)
    count = observed.sum(1)
    rho_neg = _smallest_share(ones, count, max(MIN_RANGE_ROWS, int(MIN_RANGE_SHARE * len(given))))
    # Unobserved rows are sorted to the end: the last observed rows come first after a rotation.
    position = (count[:, None] - 1 - np.arange(len(given))) % len(given)
    bound = _smallest_share(1 - np.take_along_axis(ones, position, 1), count, MIN_RANGE_ROWS)
    rho_pos = np.minimum(bound, 0.9 - np.minimum(rho_neg, 0.8))
    return RateRange(rho_pos / 2, np.minimum(rho_neg, 0.8), rho_pos / np.sqrt(12))


def _smallest_share(ones: FloatArray, count: NDArray[np.int64], least: int) -> FloatArray:
    """Return the smallest share of ones plus its standard error (q,) of the first k rows, least <= k <= count."""
    k = np.arange(1, ones.shape[1] + 1)
    share = (ones.cumsum(1) + 0.5) / (k + 1)
    upper = share + np.sqrt(share * (1 - share) / k)
    allowed = (k >= np.minimum(least, count)[:, None]) & (k <= count[:, None])
    return np.where(count > 0, np.where(allowed, upper, np.inf).min(1), 0.0)


def evidence_weight(rho_neg: FloatArray) -> float:
    """Return the weight of the posterior for the mean share of added labels.

    >>> evidence_weight(np.array([0.05, 0.1])), evidence_weight(np.array([0.1, 0.4]))
    (0.0, 0.995)
    """
    low, high = EVIDENCE_RANGE
    return float(np.clip((rho_neg.mean() - low) / (high - low), 0, MAX_WEIGHT))


class ScoreTable:
    """Unsupervised score: a mixture of posterior and self-confidence, tabulated over the predicted probability.

    Parameters
    ----------
    posterior : array of shape (2, N_NODES, q)
        Posterior error probability of given labels 0 and 1 at equally spaced probabilities from 0 to 1.
    weight : array of shape (q,)
        Weight of the posterior.
    possible : array of shape (2, q)
        Factor of the second part for given labels 0 and 1.
    level : float
        Mean of 1 - P(given label | x).
    """

    def __init__(self, posterior: FloatArray, weight: FloatArray, possible: FloatArray, level: float) -> None:
        nodes = np.linspace(0, 1, N_NODES)[:, None]
        contradiction = np.stack([nodes, 1 - nodes])
        second = possible[:, None] * (LEVEL_FACTOR * level + CONFIDENCE_FACTOR * contradiction)
        table = weight * posterior + (1 - weight) * second
        # One block per given value and label: [value, label, node].
        self._values = np.ascontiguousarray(table.transpose(0, 2, 1)).ravel()
        self._steps = np.append(np.diff(self._values), 0.0)
        self._n_labels = posterior.shape[2]

    def __call__(self, given: NDArray[Any], pred_proba: FloatArray) -> FloatArray:
        """Return the error probabilities of labels (m, q) by linear interpolation; NaN where not observed."""
        scaled = pred_proba * (N_NODES - 1)
        node = np.minimum(scaled.astype(np.int64), N_NODES - 2)
        scaled -= node
        node += np.arange(self._n_labels) * N_NODES
        node += (given == 1) * (self._n_labels * N_NODES)
        result: FloatArray = self._values[node] + scaled * self._steps[node]
        if np.issubdtype(given.dtype, np.floating):
            result[np.isnan(given)] = np.nan
        return result


def unsupervised_score(
    given: FloatArray,
    pred_proba: FloatArray,
    rates: RateRange | None = None,
    only_added: NDArray[np.bool_] | bool = False,
    only_removed: NDArray[np.bool_] | bool = False,
) -> ErrorScore:
    """Return the score of labels without verified rows.

    Parameters
    ----------
    given : array of shape (m, q)
        Given labels of some rows in {0, 1}; NaN where not observed.
    pred_proba : array of shape (m, q)
        Their out-of-fold probabilities.
    rates : RateRange or None, default=None
        Estimated rates. Without them, the rates follow from the probabilities. Predictions are calibrated to the rates.
    only_added, only_removed : bool or array of shape (q,), default=False
        Labels of a declared noise type. The posterior is used for them, because a declared type identifies the rate.

    Returns
    -------
    ErrorScore
        The score.
    """
    q = given.shape[1]
    ends = rates_from_probabilities(given, pred_proba)
    declared = np.broadcast_to(np.logical_or(only_added, only_removed), q)
    weight = np.where(declared, MAX_WEIGHT, evidence_weight(ends.rho_neg))
    nodes = np.repeat(np.linspace(0, 1, N_NODES)[:, None], q, axis=1)
    used = ends._replace(rho_neg=np.minimum(ends.rho_neg, MAX_ADDED_RATE)) if rates is None else rates
    if weight.any():
        rows = slice(None, None, -(-len(given) // MAX_SCALING_ROWS))
        scaling = fit_scaling(given[rows], _clipped_logit(pred_proba[rows]), used.rho_pos, used.rho_neg)
        nodes = _apply_scaling(nodes, scaling, used.rho_pos, used.rho_neg)
    levels = [np.maximum(used.rho_pos + sign * used.spread, 0) for sign in (-1, 1)]
    posterior = np.stack(
        [np.mean([p_wrong(np.full(1, v), nodes, rho_pos, used.rho_neg) for rho_pos in levels], 0) for v in (0, 1)]
    )
    excluded = np.stack([np.broadcast_to(only_added, q), np.broadcast_to(only_removed, q)])
    level = float(np.abs(np.nan_to_num(given - pred_proba)).sum() / max(1, np.count_nonzero(~np.isnan(given))))
    score = ScoreTable(posterior, weight, np.where(excluded, IMPOSSIBLE_FACTOR, 1.0), level)
    share = 0.0 if np.any(only_added) else emptied_share(given, pred_proba)
    return EmptiedRows(score, share) if share else score


def excess_of_empty_rows(Y: FloatArray, proba: FloatArray) -> tuple[float, float]:
    r"""Return the excess of empty rows where many labels are expected, and its standard error.

    The number of labels of a row is a sum of independent indicators, given the features, if labels are independent.
    Its distribution then satisfies Newton's inequality :math:`P_1^2 \ge 2 P_0 P_2` [1]_, which bounds the share of
    empty rows by :math:`P_1^2 / (2 P_2)`. The larger of this bound and of the mean of :math:`\prod_j (1 - p_j)` is
    expected.

    References
    ----------
    .. [1] R. P. Stanley, "Log-Concave and Unimodal Sequences in Algebra, Combinatorics, and Geometry", Annals of the
       New York Academy of Sciences 576, 1989, Theorem 2.
    """
    expected = proba.sum(1)
    rows = expected >= np.quantile(expected, 1 - TOP_SHARE)
    m = int(rows.sum())
    empty, one, two = ((Y[rows].sum(1) == k).mean() for k in range(3))
    one, two = one + 1 / m, max(two, 1 / m)
    bound = one**2 / (2 * two)
    independent = float(np.exp(np.log1p(-proba[rows]).sum(1)).mean())
    variance = empty * (1 - empty) / m + bound**2 * (4 / one + 1 / two) / m
    return float(empty - max(bound, independent)), float(np.sqrt(variance))


def emptied_share(given: FloatArray, pred_proba: FloatArray) -> float:
    """Return the share of rows that lost all labels; 0 if it is not significant.

    The test is that of :func:`excess_of_empty_rows`.
    """
    complete = ~np.isnan(given).any(1)
    if complete.sum() < MIN_COMPLETE_ROWS:
        return 0.0
    probabilities = np.clip(pred_proba[complete], _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    excess, error = excess_of_empty_rows(given[complete], probabilities)
    return excess if excess >= max(MIN_EMPTIED, MIN_Z_EMPTIED * error) else 0.0


class EmptiedRows:
    r"""Score for data in which a share e of the rows lost all labels.

    A row with probabilities :math:`p_j` that has no label lost them with the probability

    .. math:: u = \frac{e}{e + (1 - e) \prod_j (1 - p_j)}

    if labels are independent given the features. The error probability of its labels is
    :math:`u\, p_j / (1 - e) + (1 - u)` times the other score. Other rows keep their score.

    Parameters
    ----------
    score : ErrorScore
        Score of labels that were not removed together.
    share : float
        Share e of emptied rows.
    """

    def __init__(self, score: ErrorScore, share: float) -> None:
        self.score, self.share = score, share

    def __call__(self, given: NDArray[Any], pred_proba: FloatArray) -> FloatArray:
        """Return the error probabilities of labels (m, q); NaN where not observed."""
        result = self.score(given, pred_proba)
        empty = (given == 0).all(1)
        p = np.minimum(pred_proba[empty], 1 - _MIN_PROBABILITY)
        none = (1 - self.share) * np.exp(np.log1p(-p).sum(1, keepdims=True))
        removed = self.share / (self.share + none)
        result[empty] = removed * np.minimum(p / (1 - self.share), 1) + (1 - removed) * result[empty]
        return result


class ErrorModel:
    """Error probabilities learned from verified labels: a logistic regression pooled over labels.

    Parameters
    ----------
    score : ErrorScore
        Unsupervised score.
    offset : array of shape (2, q)
        Constant term of given labels 0 and 1.
    slope, count_slope, surplus_slope : array of shape (2,)
        Coefficients of the log-odds of the prediction, of log(1 + number of given labels of the row) and of the surplus
        of the annotator (or the dissent of the votes), for given labels 0 and 1.
    scaling : array of shape (3,)
        Slopes of negative and of positive log-odds and constant term of the calibration.
    """

    def __init__(
        self,
        score: ErrorScore,
        offset: FloatArray,
        slope: FloatArray,
        count_slope: FloatArray,
        surplus_slope: FloatArray,
        scaling: FloatArray,
    ) -> None:
        self.score, self.offset, self.slope = score, offset, slope
        self.count_slope, self.surplus_slope, self.scaling = count_slope, surplus_slope, scaling

    def __call__(self, given: NDArray[Any], pred_proba: FloatArray, surplus: FloatArray | float = 0.0) -> FloatArray:
        """Return the error probabilities of labels (m, q) with surpluses (m, q); NaN where not observed."""
        value = (given == 1).astype(np.intp)
        result: FloatArray = PRIOR_SLOPE * _log_odds(self.score(given, pred_proba))
        result += np.take_along_axis(self.offset, value, 0)
        result += self.slope[value] * _log_odds(pred_proba)
        result += self.count_slope[value] * np.log1p(np.nansum(given, 1))[:, None]
        result += self.surplus_slope[value] * surplus
        negative, positive, constant = self.scaling
        return np.asarray(scipy.special.expit(np.where(result < 0, negative, positive) * result + constant))


def fit_error_model(
    score: ErrorScore,
    given: FloatArray,
    pred_proba: FloatArray,
    wrong: FloatArray,
    prevalence: FloatArray,
    surplus: FloatArray | None = None,
) -> ErrorModel:
    r"""Learn the error probability from verified labels.

    The log-odds of an error are 0.3 times those of the unsupervised score plus a linear function of: the given label;
    the log-odds of the prediction, of the prevalence of the label, the logarithm of the number of given labels, and the
    surplus of the annotator or the dissent of the votes, each with separate coefficients for given labels 1 and 0; and
    an offset for every label and given value. All coefficients have a ridge penalty, so that few verified labels change
    the order little, and labels without verified rows follow the pooled model. The model is conditional on the
    predictions, so that the verified rows may have been selected by them.

    The penalty makes large error probabilities too small, and labels whose error probability does not exceed 1/2 make
    them too large. The log-odds are therefore calibrated on those of models without the row (five folds): a slope for
    negative values, one for positive values and a constant, with normal priors around 1, 1 and 0. The order does not
    change.

    Parameters
    ----------
    score : ErrorScore
        Unsupervised score.
    given : array of shape (m, q)
        Given labels of the verified rows in {0, 1}; NaN where not observed.
    pred_proba : array of shape (m, q)
        Out-of-fold probabilities of the verified rows.
    wrong : array of shape (m, q)
        1 where the given label is wrong, 0 where it is correct, NaN where it is not verified.
    prevalence : array of shape (q,)
        Share of given ones of every label among all rows.
    surplus : array of shape (m, q), default=None
        Logarithm of the ratio of given to predicted labels of the annotator of every row (``AnnotatorSurplus``), or the
        share of votes that differ from the given label.

    Returns
    -------
    ErrorModel
        The model.
    """
    q = given.shape[1]
    row, label = np.nonzero(~np.isnan(wrong) & ~np.isnan(given))
    value = (given[row, label] == 1).astype(np.intp)
    prior = PRIOR_SLOPE * _log_odds(score(given, pred_proba)[row, label])
    surplus = np.zeros_like(given) if surplus is None else surplus
    values = (
        _log_odds(pred_proba[row, label]),
        _log_odds(prevalence)[label],
        np.log1p(np.nansum(given, 1))[row],
        surplus[row, label],
    )
    shared = np.stack([part * (value == v) for part in values for v in (0, 1)], 1)
    scale = np.maximum(shared.std(0), _MIN_SCALE)
    offsets = scipy.sparse.csr_array((np.ones(row.size), (np.arange(row.size), value * q + label)), (row.size, 2 * q))
    columns = [np.ones((row.size, 1)), value[:, None], shared / scale]
    design = scipy.sparse.hstack([scipy.sparse.csr_array(np.hstack(columns)), offsets], format="csr")
    penalty = np.concatenate([[1e-2, 1.0], np.full(8, PENALTY), np.full(2 * q, LABEL_PENALTY)])
    target = wrong[row, label]
    fitted = _logistic_regression(design, target, prior, penalty)
    held_out = prior.copy()
    for fold in range(N_FOLDS):
        inside = row % N_FOLDS == fold
        held_out[inside] += design[inside] @ _logistic_regression(
            design[~inside], target[~inside], prior[~inside], penalty
        )
    scaling = _fit_log_odds(held_out, target) if len(given) >= MIN_CALIBRATION_ROWS else np.array([1.0, 1.0, 0.0])
    slope, by_prevalence, by_count, by_surplus = (fitted[2:10] / scale).reshape(4, 2)
    offset = fitted[10:].reshape(2, q) + fitted[0] + np.array([[0.0], [fitted[1]]])
    offset += by_prevalence[:, None] * _log_odds(prevalence)
    return ErrorModel(score, offset, slope, by_count, by_surplus, scaling)


class AnnotatorSurplus(NamedTuple):
    """How much more often an annotator gives each label than the features predict.

    The surplus is log((given + 5) / (predicted + 5)) for the sums of given labels and of probabilities over all rows of
    the annotator. A given label of an annotator with a large surplus is more often wrong, and a label that this
    annotator does not give is less often wrong.
    """

    annotator: NDArray[np.intp]
    """Number of the annotator of every row."""
    table: FloatArray
    """Surplus (annotators, q)."""

    @classmethod
    def of(
        cls, annotator: NDArray[np.intp], blocks: Iterable[tuple[slice, FloatArray, FloatArray]]
    ) -> AnnotatorSurplus:
        """Return the surplus from blocks of rows: the rows, their given labels (NaN: not observed), probabilities."""
        size = int(annotator.max()) + 1
        given_sum, predicted_sum = None, None
        for rows, given, pred_proba in blocks:
            if given_sum is None or predicted_sum is None:
                given_sum, predicted_sum = (np.zeros((size, given.shape[1])) for _ in range(2))
            np.add.at(given_sum, annotator[rows], np.nan_to_num(given))
            np.add.at(predicted_sum, annotator[rows], np.where(np.isnan(given), 0.0, pred_proba))
        assert given_sum is not None
        assert predicted_sum is not None
        return cls(annotator, np.log((given_sum + MIN_ANNOTATOR_COUNT) / (predicted_sum + MIN_ANNOTATOR_COUNT)))

    def rows(self, rows: slice | NDArray[np.intp]) -> FloatArray:
        """Return the surplus (m, q) of the annotators of some rows."""
        return self.table[self.annotator[rows]]


def _fit_log_odds(held_out: FloatArray, wrong: FloatArray) -> FloatArray:
    """Return the slopes of negative and positive log-odds and the constant that maximize the penalized likelihood."""
    design = np.column_stack([np.minimum(held_out, 0), np.maximum(held_out, 0), np.ones(held_out.size)])
    # With this offset, coefficients of 0 leave the log-odds unchanged.
    bounds = [(MIN_SCALING - 1, None)] * 2 + [(None, None)]
    fitted = _logistic_regression(design, wrong, held_out, np.full(3, SCALING_PENALTY), bounds)
    return np.asarray(fitted + np.array([1.0, 1.0, 0.0]))


def _logistic_regression(
    X: Any, y: FloatArray, offset: FloatArray, penalty: FloatArray, bounds: Any = None
) -> FloatArray:
    """Return the coefficients that minimize the log-loss at fixed offsets plus half of penalty * coefficient^2."""

    def objective(coefficients: FloatArray) -> tuple[float, FloatArray]:
        scores = offset + X @ coefficients
        loss = np.logaddexp(0, scores).sum() - y @ scores + 0.5 * penalty @ coefficients**2
        return float(loss), X.T @ (scipy.special.expit(scores) - y) + penalty * coefficients

    start = np.zeros(X.shape[1])
    return np.asarray(scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x)


def _log_odds(probabilities: FloatArray) -> FloatArray:
    return np.asarray(scipy.special.logit(np.clip(probabilities, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)))
