r"""Noise rates that depend on the predicted probability, estimated from trusted rows.

The scores s are out-of-fold probabilities of the noisy labels, calibrated to the noisy labels of all rows by a Platt
scaling [1]_ of every label. A trusted entry with true label y and noisy label z has the likelihood

.. math:: P(y, z \mid s) = P(z \mid y, s)\, P(y \mid s), \qquad P(y = 1 \mid s) = \eta(s) =
          \frac{s - \rho_{neg}(s)}{1 - \rho_{pos}(s) - \rho_{neg}(s)},

where :math:`P(z \mid y, s)` are the rates at s. The second factor follows from the rates because s is the probability
of the noisy label. The rates at the scores 0, 1/2 and 1 are logistic in a pooled value, an offset of the label and a
deviation of the label at this score. The last two have ridge penalties, which shrink the labels towards the pooled
rates: 200 rows contain only a few errors of most labels.

Whether the rates depend on the score is decided by cross-validation on the trusted rows: the log-likelihood
:math:`\log P(z \mid y, s)` of held-out rows must exceed that of class-conditional rates by two standard errors.

References
----------
.. [1] J. C. Platt, "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood
   Methods", in Advances in Large Margin Classifiers, MIT Press, 1999.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from ccmn._containers import Labels, is_sparse, label_names_of, to_dense_array, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_label_matrix,
    check_label_width,
    check_matrix_pair,
    check_probabilities,
    check_same_labels,
)
from ccmn.estimation.evidence import read_trusted
from ccmn.estimation.noise_rates import MIN_SIGNAL
from ccmn.noise import ClassConditionalNoise, RowNoise, ScoreDependentNoise
from ccmn.noise.class_conditional import limit_rate_sums
from ccmn.noise.row_noise import interpolate

SCORES = (0.0, 0.5, 1.0)
"""Scores at which rates are estimated: far from the decision boundary, at the boundary, and far on the other side."""
MIN_TRUSTED_ROWS = 20
"""With fewer trusted rows the rates are class-conditional: the standard error of the comparison is unknown."""
MIN_STANDARD_ERRORS = 2.0
"""Standard errors by which the held-out log-likelihood must increase for rates that depend on the score."""
N_FOLDS = 5
"""Folds of the trusted rows."""
N_NEWTON_STEPS = 8
"""Newton steps of the Platt scaling."""
N_BOOTSTRAP = 30
"""Bootstrap samples of the trusted rows, from which the uncertainty of the rates is computed."""
POOLED_MEAN, POOLED_PENALTY = -2.0, 0.1
"""Center and ridge penalty of the pooled log-odds: a rate of .12, with a weight of about one error."""
LABEL_PENALTY = 1.0
"""Ridge penalty of the offset of a label, on the scale of log-odds."""
DEVIATION_PENALTY = 4.0
"""Ridge penalty of the deviation of a label at one score. Values from 1 to 20 give the same results on deu and cmc."""
PLATT_PENALTY = 1.0
"""Ridge penalty of the slope minus 1 and of the offset of the Platt scaling."""
MIN_TRUE_PROBABILITY = 0.02
"""Below this probability of a true label, its negative logarithm continues as a straight line: scores are inexact."""

Rates = tuple[FloatArray, FloatArray]
"""rho_pos and rho_neg at the scores, (k, q) each."""


@dataclass(frozen=True, eq=False)
class RowRates:
    """Estimated rates of given rows with their uncertainty, for the parameter ``noise`` of metrics.

    Parameters
    ----------
    noise : RowNoise
        Estimated rates of every row.
    method : tuple of str
        Origin of the rates of every label.
    samples : array of shape (b, 2, k, q)
        Bootstrap samples of the rates at the scores.
    center : array of shape (2, k, q)
        Estimated rates at the scores.
    basis : array of shape (k, n, q)
        Weight of the rate at each score in the rate of each entry.
    """

    noise: RowNoise
    method: tuple[str, ...]
    samples: FloatArray
    center: FloatArray
    basis: FloatArray

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """Names of the labels, or None."""
        return self.noise.label_names

    def variance(self, slope_pos: FloatArray, slope_neg: FloatArray) -> float:
        """Return the variance that uncertain rates add to a quantity with these derivatives, by the delta method.

        Parameters
        ----------
        slope_pos, slope_neg : arrays of shape (n, q)
            Derivatives of the quantity with respect to the rates of every entry.

        Returns
        -------
        float
            Variance of the linearized quantity over the bootstrap samples.
        """
        slopes = np.stack([(self.basis * slope).sum(1) for slope in (slope_pos, slope_neg)])
        return float(np.square(((self.samples - self.center) * slopes).sum((1, 2, 3))).mean())


class PlattScaling(NamedTuple):
    """Calibration of probabilities: the log-odds are multiplied by a slope and shifted, label by label.

    Parameters
    ----------
    slope, offset : arrays of shape (q,)
        Coefficients of every label.
    """

    slope: FloatArray
    offset: FloatArray

    def __call__(self, probabilities: FloatArray) -> FloatArray:
        """Return calibrated probabilities (n, q)."""
        return np.asarray(scipy.special.expit(self.slope * _log_odds(probabilities) + self.offset))

    @classmethod
    def of(cls, labels: FloatArray, probabilities: FloatArray) -> PlattScaling:
        """Return the scaling that maximizes the likelihood of the labels (n, q), NaN where not observed.

        A weak ridge penalty draws it towards slope 1 and offset 0. The solution is computed by Newton steps.
        """
        x, observed, y = _log_odds(probabilities), ~np.isnan(labels), np.nan_to_num(labels)
        a, b = np.ones(x.shape[1]), np.zeros(x.shape[1])
        for _ in range(N_NEWTON_STEPS):
            p = scipy.special.expit(a * x + b)
            error, weight = np.where(observed, p - y, 0.0), np.where(observed, p * (1 - p), 0.0)
            by_a, by_b = (error * x).sum(0) + PLATT_PENALTY * (a - 1), error.sum(0) + PLATT_PENALTY * b
            aa, ab, bb = (weight * x * x).sum(0) + PLATT_PENALTY, (weight * x).sum(0), weight.sum(0) + PLATT_PENALTY
            determinant = aa * bb - ab**2
            a, b = a - (bb * by_a - ab * by_b) / determinant, b - (aa * by_b - ab * by_a) / determinant
        # A negative slope would reverse the order of the rows; the features then do not predict the label.
        return cls(np.maximum(a, 0.0), b)


@dataclass(frozen=True, eq=False)
class ScoreNoiseRates:
    """Result of :func:`ccmn.estimate_score_noise`.

    Parameters
    ----------
    noise : ScoreDependentNoise
        Estimated noise as a function of calibrated probabilities. It has one score, and is class-conditional, if the
        trusted rows do not show that the rates depend on the score.
    calibration : PlattScaling
        Calibration of the probabilities, fitted to the noisy labels.
    depends_on_score : bool
        Whether the rates depend on the score.
    gain : float
        Increase of the held-out log-likelihood of the trusted rows by rates that depend on the score; NaN if it was not
        computed.
    gain_se : float
        Standard error of the gain.
    n_trusted : int
        Number of trusted rows.
    samples : array of shape (30, 2, k, q)
        Bootstrap samples of rho_pos and rho_neg at the k scores of ``noise``.
    """

    noise: ScoreDependentNoise
    calibration: PlattScaling
    depends_on_score: bool
    gain: float
    gain_se: float
    n_trusted: int
    samples: FloatArray

    def calibrate(self, pred_proba: Any) -> FloatArray:
        """Return calibrated probabilities, on which the noise depends.

        Parameters
        ----------
        pred_proba : array, Tensor or DataFrame of shape (n, q)
            Probabilities of the noisy labels, from the model that was used for the estimation.

        Returns
        -------
        array of shape (n, q)
            Calibrated probabilities of the noisy labels.
        """
        check_same_labels(("pred_proba", label_names_of(pred_proba)), ("the noise model", self.noise.label_names))
        probabilities = check_probabilities(unwrap(pred_proba)[0], "pred_proba")
        check_label_width(probabilities.shape, self.noise.n_labels, "pred_proba")
        return self.calibration(probabilities)

    def at(self, pred_proba: Any) -> RowRates:
        """Return the rates of rows with these probabilities, with their uncertainty.

        Parameters
        ----------
        pred_proba : array, Tensor or DataFrame of shape (n, q)
            Probabilities of the noisy labels, from the model that was used for the estimation. It must not have been
            trained on the labels of these rows.

        Returns
        -------
        RowRates
            Rates for the parameter ``noise`` of metrics. Standard errors of the metrics include their uncertainty.
        """
        calibrated = self.calibrate(pred_proba)
        center = np.stack([self.noise.rho_pos, self.noise.rho_neg])
        basis = score_basis(calibrated, self.noise.scores)
        methods = ("trusted",) * self.noise.n_labels
        return RowRates(self.noise.at(calibrated), methods, self.samples, center, basis)


def estimate_score_noise(
    Y_noisy: Labels, pred_proba: Any, trusted: Any, *, random_state: RandomState = 0
) -> ScoreNoiseRates:
    """Estimate noise rates that depend on the predicted probability, from trusted rows.

    Annotation errors are frequent where a label is ambiguous. Class-conditional rates then give biased metrics and
    error probabilities. The rates at the scores 0, 1/2 and 1 are estimated by penalized maximum likelihood, shrunk
    towards rates that all labels share. They are compared with class-conditional rates by cross-validation; the
    class-conditional rates are returned unless the others are better by two standard errors. In this case prefer the
    result of :func:`ccmn.estimate_noise`, which also uses the features of all rows.

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Noisy labels in {0, 1}; NaN where not observed.
    pred_proba : array, tensor or DataFrame of shape (n, q)
        Out-of-fold probabilities P(noisy label = 1 | x), as for :func:`ccmn.find_label_issues`.
    trusted : (rows, Y_true) or array of shape (n, q)
        Verified rows, a random sample, as in :func:`ccmn.estimate_noise`. About 50 rows are enough to detect strong
        dependence; 200 give useful rates.
    random_state : int, Generator or None, default=0
        Seed of folds and bootstrap samples.

    Returns
    -------
    ScoreNoiseRates
        The noise, the result of the comparison and the uncertainty of the rates.

    Raises
    ------
    ValueError
        If shapes, values or label names do not match, or if no label is verified.

    See Also
    --------
    ccmn.estimate_noise : Estimate class-conditional rates, also without trusted rows.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn import ClassConditionalNoise, ScoreDependentNoise, estimate_score_noise
    >>> rng = np.random.default_rng(0)
    >>> P = rng.random((2000, 3))
    >>> clear, ambiguous = (ClassConditionalNoise(rate, rate, n_labels=3) for rate in (0.0, 0.3))
    >>> noise = ScoreDependentNoise({0: clear, 0.5: ambiguous, 1: clear})
    >>> rows = noise.at(P)
    >>> true = (rng.random(P.shape) < (P - rows.rho_neg) / (1 - rows.rho_pos - rows.rho_neg)).astype(int)
    >>> found = estimate_score_noise(noise.corrupt(true, P, random_state=1), P, trusted=(range(300), true[:300]))
    >>> found.depends_on_score, found.noise.scores
    (True, (0.0, 0.5, 1.0))
    """
    labels = check_label_matrix(Y_noisy.toarray() if is_sparse(Y_noisy) else to_dense_array(Y_noisy), "Y_noisy")
    probabilities = check_probabilities(unwrap(pred_proba)[0], "pred_proba")
    check_matrix_pair(labels, probabilities, ("Y_noisy", "pred_proba"))
    names = label_names_of(Y_noisy)
    check_same_labels(("Y_noisy", names), ("pred_proba", label_names_of(pred_proba)))
    known = read_trusted(trusted, *labels.shape)
    if known is None or not (~np.isnan(known.Y) & ~np.isnan(labels[known.rows])).any():
        raise ValueError("estimate_score_noise requires trusted rows with verified labels; got none")
    rng = as_generator(random_state)
    calibration = PlattScaling.of(labels, probabilities)
    data = TrustedEntries.of(labels[known.rows], known.Y, calibration(probabilities[known.rows]))
    gain, se = np.nan, np.nan
    n = data.n_rows
    if n >= MIN_TRUSTED_ROWS:
        differences = held_out_gain(data, rng)
        gain, se = float(differences.sum()), float(differences.std(ddof=1) * np.sqrt(n))
    depends = bool(gain > MIN_STANDARD_ERRORS * se)
    at = SCORES if depends else SCORES[1:2]
    rates = fit_rates(data, np.ones(n), at)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=N_BOOTSTRAP)
    bootstrap = np.stack([np.stack(fit_rates(data, weights.astype(np.float64), at, rates)) for weights in counts])
    names = names or label_names_of(pred_proba)
    models = {s: ClassConditionalNoise(pos, neg, label_names=names) for s, pos, neg in zip(at, *rates)}
    return ScoreNoiseRates(ScoreDependentNoise(models), calibration, depends, gain, se, n, bootstrap)


class TrustedEntries(NamedTuple):
    """Verified labels: one entry per row and label."""

    row: NDArray[np.intp]
    label: NDArray[np.intp]
    positive: NDArray[np.bool_]
    """Whether the true label is 1."""
    flipped: NDArray[np.bool_]
    """Whether the noisy label differs from the true one."""
    score: FloatArray
    """Calibrated probability of the noisy label."""
    n_rows: int
    n_labels: int

    @classmethod
    def of(cls, noisy: FloatArray, true: FloatArray, scores: FloatArray) -> TrustedEntries:
        """Return the entries of matrices (m, q) that are neither NaN in ``noisy`` nor in ``true``."""
        row, label = np.nonzero(~np.isnan(true) & ~np.isnan(noisy))
        y, z = true[row, label], noisy[row, label]
        return cls(row, label, y == 1, y != z, scores[row, label], *noisy.shape)


def held_out_gain(data: TrustedEntries, rng: np.random.Generator) -> FloatArray:
    """Return for every trusted row the held-out log-likelihood at rates that depend on the score minus that of others.

    The log-likelihood is that of the noisy labels given the true ones, so that errors of the scores do not count.
    """
    fold = rng.permutation(data.n_rows) % N_FOLDS
    result = np.zeros(data.n_rows)
    for k in range(N_FOLDS):
        for at, sign in ((SCORES, 1), (SCORES[1:2], -1)):
            rates = fit_rates(data, (fold != k).astype(np.float64), at)
            result += sign * np.where(fold == k, log_likelihood(data, at, rates), 0.0)
    return result


def log_likelihood(data: TrustedEntries, at: tuple[float, ...], rates: Rates) -> FloatArray:
    """Return log P(noisy labels | true labels, scores) of every row."""
    basis = score_basis(data.score, at)
    rho_pos, rho_neg = ((basis * rate[:, data.label]).sum(0) for rate in rates)
    flip = np.clip(np.where(data.positive, rho_pos, rho_neg), 1e-9, 1 - 1e-9)
    terms = np.log(np.where(data.flipped, flip, 1 - flip))
    return np.asarray(np.bincount(data.row, terms, minlength=data.n_rows), dtype=np.float64)


def score_basis(scores: FloatArray, at: tuple[float, ...]) -> FloatArray:
    """Return the weights (k, ...) of the values at k scores in the interpolated value of each entry."""
    return np.stack([interpolate(unit[:, None], at, scores[..., None])[..., 0] for unit in np.eye(len(at))])


def fit_rates(
    data: TrustedEntries, row_weights: FloatArray, at: tuple[float, ...], start: Rates | None = None
) -> Rates:
    """Return the rates at these scores that maximize the penalized likelihood of trusted entries.

    Parameters
    ----------
    data : TrustedEntries
        Verified labels.
    row_weights : array of shape (m,)
        Weights of the trusted rows.
    at : tuple of k floats
        Scores at which the rates are estimated; one score for class-conditional rates.
    start : Rates, default=None
        Rates near the solution, from which pooled values start.

    Returns
    -------
    rho_pos, rho_neg : arrays of shape (k, q)
        Rates. Two rates with a sum above .9 are scaled to this sum.
    """
    objective = PenalizedLikelihood(data, row_weights, at)
    first = np.zeros((2, objective.size))
    first[:, : len(at)] = POOLED_MEAN
    if start is not None:
        first[:, : len(at)] = [scipy.special.logit(np.clip(rate.mean(1), 1e-3, 1 - 1e-3)) for rate in start]
    best = scipy.optimize.minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    rho_pos, rho_neg = (objective.rates(part) for part in best.reshape(2, -1))
    return limit_rate_sums(rho_pos, rho_neg, 1 - MIN_SIGNAL)


class PenalizedLikelihood:
    """Penalized negative log-likelihood of trusted entries and its gradient.

    The parameters of either rate are k pooled log-odds, q offsets and k q deviations (none for k = 1).

    Parameters
    ----------
    data : TrustedEntries
        Verified labels.
    row_weights : array of shape (m,)
        Weights of the trusted rows.
    at : tuple of k floats
        Scores at which the rates are estimated.
    """

    def __init__(self, data: TrustedEntries, row_weights: FloatArray, at: tuple[float, ...]) -> None:
        self.data, self.weights = data, row_weights[data.row]
        self.basis = score_basis(data.score, at)
        self.k, q = len(at), data.n_labels
        deviations = q * self.k if self.k > 1 else 0
        self.size = self.k + q + deviations
        self.penalty = np.repeat([POOLED_PENALTY, LABEL_PENALTY, DEVIATION_PENALTY], [self.k, q, deviations])
        self.center = np.repeat([POOLED_MEAN, 0.0], [self.k, q + deviations])

    def rates(self, parameters: FloatArray) -> FloatArray:
        """Return the rates (k, q) for the parameters of one rate."""
        k, q = self.k, self.data.n_labels
        log_odds = parameters[:k, None] + parameters[k : k + q]
        if k > 1:
            log_odds = log_odds + parameters[k + q :].reshape(k, q)
        return np.asarray(scipy.special.expit(log_odds))

    def __call__(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return value and gradient at the parameters of rho_pos, followed by those of rho_neg."""
        data, parts = self.data, parameters.reshape(2, -1)
        rates = [self.rates(part) for part in parts]
        rho_pos, rho_neg = ((self.basis * rate[:, data.label]).sum(0) for rate in rates)
        own = np.clip(np.where(data.positive, rho_pos, rho_neg), 1e-9, 1 - 1e-9)
        by_own = np.where(data.flipped, -1 / own, 1 / (1 - own))
        inside = 1 - rho_pos - rho_neg > MIN_SIGNAL
        signal = np.where(inside, 1 - rho_pos - rho_neg, MIN_SIGNAL)
        eta = (data.score - rho_neg) / signal
        loss, by_true = _negative_log(np.where(data.positive, eta, 1 - eta))
        by_eta = np.where(data.positive, by_true, -by_true)
        slopes = (
            np.where(data.positive, by_own, 0) + by_eta * inside * eta / signal,
            np.where(data.positive, 0, by_own) - by_eta * (1 - inside * eta) / signal,
        )
        value = self.weights @ (loss - np.log(np.where(data.flipped, own, 1 - own)))
        gradients = []
        for part, rate, slope in zip(parts, rates, slopes):
            weighted = self.basis * (slope * self.weights)
            by_rate = np.stack([np.bincount(data.label, row, data.n_labels) for row in weighted])
            by_log_odds = by_rate * rate * (1 - rate)
            deviations = by_log_odds.ravel() if self.k > 1 else np.empty(0)
            distance = part - self.center
            value += 0.5 * (self.penalty * distance**2).sum()
            gradient = np.concatenate([by_log_odds.sum(1), by_log_odds.sum(0), deviations])
            gradients.append(gradient + self.penalty * distance)
        return float(value), np.concatenate(gradients)


def _negative_log(probability: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return -log p and its derivative; 0 above 1, a straight line below ``MIN_TRUE_PROBABILITY``."""
    clipped = np.clip(probability, MIN_TRUE_PROBABILITY, 1)
    below = np.maximum(MIN_TRUE_PROBABILITY - probability, 0) / MIN_TRUE_PROBABILITY
    return -np.log(clipped) + below, np.where(probability > 1, 0.0, -1 / clipped)


def _log_odds(probabilities: FloatArray) -> FloatArray:
    return np.asarray(scipy.special.logit(np.clip(probabilities, 1e-4, 1 - 1e-4)))
