r"""Error probability of a given label: by Bayes' rule from known noise rates, or learned from verified rows.

Without either, errors of people cannot be told from errors of the model, and labels are only ranked by the suspicion:
one minus the probability of the given label (self-confidence [1]_), with a term for annotators who often deviate.

References
----------
.. [1] C. G. Northcutt, L. Jiang and I. L. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels",
   Journal of Artificial Intelligence Research 70, 2021.
.. [2] A. K. Menon, B. van Rooyen, C. S. Ong and R. C. Williamson, "Learning from Corrupted Binary Labels via
   Class-Probability Estimation", ICML, 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, logit

from ccmn._validation import FloatArray

N_SHRINKAGE_ROWS = 50
"""Rows of an average annotator (votes of an average row) that are added to those of each."""
PRIOR_SLOPE = 0.3
"""Coefficient of the log-odds of the suspicion or the posterior before any row is verified: the best of 0, 0.3, 0.5
and 1 on human labels."""
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
_MIN_PROBABILITY = 1e-4
"""Probabilities are clipped to [eps, 1 - eps] before the logit of the error model."""
_TIE_BREAK = 1e-12
"""Weight of the predicted probability in p_wrong. It orders labels whose error probability is clipped to 1."""
_MIN_SCALE = 0.1
"""Lower bound of the standard deviations by which features are divided."""


def p_wrong(noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""Return P(true label differs from the given label | x, given label), by Bayes' rule [2]_.

    .. math::
        P(y = 0 \mid \tilde y = 1, x) = \frac{\rho_{neg} (1 - \eta)}{\tilde\eta}, \qquad
        P(y = 1 \mid \tilde y = 0, x) = \frac{\rho_{pos}\, \eta}{1 - \tilde\eta}

    Here :math:`\tilde\eta = P(\tilde y = 1 \mid x)` are out-of-fold probabilities ``pred_proba``, and :math:`\eta =
    (\tilde\eta - \rho_{neg}) / r` with :math:`r = 1 - \rho_{pos} - \rho_{neg}` is the probability of the true label.
    With :math:`s = P(\tilde y = \text{given} \mid x)` and :math:`o = P(\tilde y = \text{given} \mid y = \text{other})`
    both cases are :math:`o / r \cdot ((o + r) / s - 1)`. Under noise with these rates, s is in [o, o + r]; predictions
    outside are clipped. Labels with error probability 1 are ordered by s in the twelfth digit. NaN (not observed) stays
    NaN.
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


Term = Callable[[Any, FloatArray], FloatArray]
"""Function of some rows and their given labels (m, q): a term (m, q) for the log-odds of their suspicion."""


def annotator_term(index: NDArray[np.intp], blocks: Iterable[tuple[slice, FloatArray, FloatArray]]) -> Term:
    r"""Return the term that measures how often annotators deviate, from one annotator per row.

    A row has the annotator a. With :math:`d_{ij} = |\tilde y_{ij} - p_{ij}|`, all sums over the rows of a and 50 rows
    of an average annotator, the term is

    .. math:: \log \frac{\sum_{ij} d_{ij}}{\sum_{ij} \bar d}
        \pm \log \frac{\sum_i \tilde y_{ij}}{\sum_i p_{ij}}

    with + for given and - for absent labels: the second part is large for labels that the annotator gives too often.
    Each of the blocks has the rows, their given labels (NaN: not observed) and probabilities.
    """
    size, sums = int(index.max()) + 1, np.zeros((0, 0, 0))
    for rows, given, proba in blocks:
        observed = ~np.isnan(given)
        parts = np.where(observed, [given, proba, np.abs(given - proba), np.ones_like(given)], 0.0)
        sums = sums if sums.size else np.zeros((4, size, given.shape[1]))
        for k, part in enumerate(parts):
            np.add.at(sums[k], index[rows], part)
    # An average annotator gives each label as often as expected, and deviates as all do.
    given_sum, expected = sums[:2] + N_SHRINKAGE_ROWS * (sums[1].sum(0) + 0.5) / (sums[3].sum(0) + 1)
    deviation, count = sums[2:].sum(2)
    mean = deviation.sum() / max(count.sum(), 1)
    shrinkage = N_SHRINKAGE_ROWS * given_sum.shape[1]
    relative = (deviation + shrinkage * mean) / ((count + shrinkage) * mean) if mean else np.ones(size)
    surplus, deviates = np.log(given_sum / expected), np.log(relative)[:, None]
    return lambda rows, given: np.where(given == 1, 1.0, -1.0) * surplus[index[rows]] + deviates[index[rows]]


def vote_term(mean: FloatArray, counts: NDArray[np.int64], given: FloatArray) -> Term:
    """Return log-odds of the share of votes that differ from the given label, minus those of the mean share.

    ``mean`` are the mean votes (n, q), NaN where nobody voted; there the term is 0.
    """
    differing = np.abs(given - mean)
    voted = ~np.isnan(differing)
    base = np.clip(differing[voted].mean() if voted.any() else 0.0, _MIN_PROBABILITY, 0.5)
    share = (np.where(voted, differing, 0.0) * counts + base) / (counts + 1)
    return lambda rows, _: logit(share[rows]) - logit(base)


def covariates(given: FloatArray, proba: FloatArray, prevalence: FloatArray, term: FloatArray) -> list[FloatArray]:
    """Return what the error model uses beside the score, each (m, q)."""
    parts = (_log_odds(proba), _log_odds(prevalence), np.log1p(np.nansum(given, 1))[:, None], term)
    return [np.broadcast_to(part, given.shape) for part in parts]


def fit_error_model(
    score: FloatArray,
    given: FloatArray,
    proba: FloatArray,
    wrong: FloatArray,
    prevalence: FloatArray,
    term: FloatArray,
) -> Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]:
    r"""Learn the error probability from verified labels.

    The log-odds of an error are 0.3 times those of the score plus a linear function of: the given label; the log-odds
    of the prediction and of the prevalence of the label, the logarithm of the number of given labels, and the term of
    the annotators or votes, each with separate coefficients for given labels 1 and 0; and an offset for every label and
    given value. All coefficients have a ridge penalty, so that few verified labels change the order little, and labels
    without verified rows follow the pooled model. The model is conditional on the predictions, so that the verified
    rows may have been selected by them.

    The penalty makes large error probabilities too small, and labels whose error probability does not exceed 1/2 make
    them too large. The log-odds are therefore calibrated on those of models without the row (five folds): a slope for
    negative values, one for positive values and a constant, with normal priors around 1, 1 and 0. The order does not
    change.

    All arrays have one row per verified row, (m, q). ``score`` is the suspicion, or the posterior under declared noise;
    ``wrong`` is 1 where the given label is wrong, 0 where it is correct and NaN where it is not verified;
    ``prevalence`` (q,) is the share of given ones among all rows, and ``term`` that of the annotators or votes. The
    result is a function of score, given labels, probabilities and term of any rows.
    """
    q = given.shape[1]
    row, label = np.nonzero(~np.isnan(wrong) & ~np.isnan(given))
    value = (given[row, label] == 1).astype(np.intp)
    prior = PRIOR_SLOPE * _log_odds(score[row, label])
    parts = [part[row, label] for part in covariates(given, proba, prevalence, term)]
    shared = np.stack([part * (value == v) for part in parts for v in (0, 1)], 1)
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
        coefficients = _logistic_regression(design[~inside], target[~inside], prior[~inside], penalty)
        held_out[inside] += design[inside] @ coefficients
    scaling = np.array([1.0, 1.0, 0.0])
    if len(given) >= MIN_CALIBRATION_ROWS:
        sides = np.column_stack([np.minimum(held_out, 0), np.maximum(held_out, 0), np.ones(held_out.size)])
        # With this offset, coefficients of 0 leave the log-odds unchanged.
        bounds = [(MIN_SCALING - 1, None)] * 2 + [(None, None)]
        scaling += _logistic_regression(sides, target, held_out, np.full(3, SCALING_PENALTY), bounds)
    offset = fitted[10:].reshape(2, q) + fitted[0] + np.array([[0.0], [fitted[1]]])
    slopes = (fitted[2:10] / scale).reshape(4, 2)

    def predict(score: FloatArray, given: FloatArray, proba: FloatArray, term: FloatArray) -> FloatArray:
        value = (given == 1).astype(np.intp)
        result = PRIOR_SLOPE * _log_odds(score) + np.take_along_axis(offset, value, 0)
        for slope, covariate in zip(slopes, covariates(given, proba, prevalence, term)):
            result += slope[value] * covariate
        return np.asarray(expit(np.where(result < 0, scaling[0], scaling[1]) * result + scaling[2]))

    return predict


def _logistic_regression(
    X: Any, y: FloatArray, offset: FloatArray, penalty: FloatArray, bounds: Any = None
) -> FloatArray:
    """Return the coefficients that minimize the log-loss at fixed offsets plus half of penalty * coefficient^2."""

    def objective(coefficients: FloatArray) -> tuple[float, FloatArray]:
        scores = offset + X @ coefficients
        loss = np.logaddexp(0, scores).sum() - y @ scores + 0.5 * penalty @ coefficients**2
        return float(loss), X.T @ (expit(scores) - y) + penalty * coefficients

    start = np.zeros(X.shape[1])
    return np.asarray(scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x)


def _log_odds(probabilities: FloatArray) -> FloatArray:
    return np.asarray(logit(np.clip(probabilities, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)))
