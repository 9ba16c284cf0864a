r"""Error probability of a given label: by Bayes' rule from known noise rates, or learned from verified rows.

Without either, errors of people cannot be told from errors of the model, and labels are only ranked by the suspicion:
one minus the probability of the given label (self-confidence [1]_), with a term for annotators who often deviate.

References
----------
.. [1] C. G. Northcutt, L. Jiang and I. L. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels",
   Journal of Artificial Intelligence Research 70, 2021.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

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
    >>> from ccmn.audit.error_model import p_wrong
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


class Annotators(NamedTuple):
    r"""How often annotators deviate: a term (n, q) that is added to the log-odds of the suspicion of their labels.

    A row has the annotator a. With :math:`d_{ij} = |\tilde y_{ij} - p_{ij}|`, all sums over the rows of a and 50 rows
    of an average annotator, the term is

    .. math:: \log \frac{\sum_{ij} d_{ij}}{\sum_{ij} \bar d}
        \pm \log \frac{\sum_i \tilde y_{ij}}{\sum_i p_{ij}}

    with + for given and - for absent labels: the second part is large for labels that the annotator gives too often.
    """

    numbers: NDArray[np.intp]
    """Number of the annotator of every row."""
    deviation: FloatArray
    """Logarithm of the deviation relative to the average, (annotators,)."""
    surplus: FloatArray
    """Logarithm of the ratio of given to expected labels, (annotators, q)."""

    @classmethod
    def of(cls, index: NDArray[np.intp], blocks: Iterable[tuple[slice, FloatArray, FloatArray]]) -> Annotators:
        """Return the term from blocks of rows: the rows, their given labels (NaN: not observed), probabilities."""
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
        return cls(index, np.log(relative), np.log(given_sum / expected))

    def term(self, rows: slice | NDArray[np.intp], given: FloatArray) -> FloatArray:
        """Return the term (m, q) of some rows."""
        number = self.numbers[rows]
        return np.where(given == 1, 1.0, -1.0) * self.surplus[number] + self.deviation[number, None]


class Votes(NamedTuple):
    """Log-odds of the share of votes that differ from the given label, minus those of the mean share."""

    mean: FloatArray
    """Mean votes (n, q), NaN where nobody voted."""
    counts: NDArray[np.int64]
    """Number of votes (n, q)."""
    dissent: float
    """Mean share of votes that differ from the given label."""

    def term(self, rows: slice | NDArray[np.intp], given: FloatArray) -> FloatArray:
        """Return the term (m, q) of some rows; 0 where nobody voted."""
        count, base = self.counts[rows], np.clip(self.dissent, _MIN_PROBABILITY, 0.5)
        differing = np.nan_to_num(np.abs(given - self.mean[rows])) * count
        return np.asarray(logit((differing + base) / (count + 1)) - logit(base))


class ErrorModel(NamedTuple):
    """Error probabilities learned from verified labels: a logistic regression pooled over labels."""

    prevalence: FloatArray
    """Share of given ones of every label (q,)."""
    offset: FloatArray
    """Constant term of given labels 0 and 1, (2, q)."""
    slopes: FloatArray
    """Coefficients (4, 2) of the covariates for given labels 0 and 1."""
    scaling: FloatArray
    """Slopes of negative and of positive log-odds and constant term of the calibration, (3,)."""

    def __call__(self, score: FloatArray, given: FloatArray, proba: FloatArray, term: FloatArray) -> FloatArray:
        """Return the error probabilities of labels (m, q); NaN where not observed."""
        value = (given == 1).astype(np.intp)
        result = PRIOR_SLOPE * _log_odds(score) + np.take_along_axis(self.offset, value, 0)
        for slope, covariate in zip(self.slopes, covariates(given, proba, self.prevalence, term)):
            result += slope[value] * covariate
        negative, positive, constant = self.scaling
        return np.asarray(expit(np.where(result < 0, negative, positive) * result + constant))


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
) -> ErrorModel:
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

    Parameters
    ----------
    score : array of shape (m, q)
        Suspicion, or posterior under declared noise, of the verified rows.
    given : array of shape (m, q)
        Given labels of the verified rows in {0, 1}; NaN where not observed.
    proba : array of shape (m, q)
        Out-of-fold probabilities of the verified rows.
    wrong : array of shape (m, q)
        1 where the given label is wrong, 0 where it is correct, NaN where it is not verified.
    prevalence : array of shape (q,)
        Share of given ones of every label among all rows.
    term : array of shape (m, q)
        Term of the annotators or votes; 0 if they are not known.

    Returns
    -------
    ErrorModel
        The model.
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
    return ErrorModel(prevalence, offset, (fitted[2:10] / scale).reshape(4, 2), scaling)


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
