"""Label audit in one call: noise rates, calibrated out-of-fold probabilities, label issues and error counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
import scipy.stats
from numpy.typing import NDArray
from sklearn.utils import check_array

from ccmn._containers import Labels, is_sparse, to_dense_array, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_choice,
    check_label_matrix,
    check_label_values,
    check_real,
    check_same_rows,
)
from ccmn.audit.label_issues import RatesWithUncertainty, check_labels, find_label_issues, rates_with_uncertainty
from ccmn.estimation import NOISE_TYPES, NoiseRates, estimate_noise, out_of_fold_scores
from ccmn.estimation.likelihood import bin_scores, calibrate
from ccmn.noise import NoiseModel

MIN_ROWS_PER_CLASS = 20
"""Minimum number of observed rows of each class to calibrate the probabilities of a label."""

EPS = 0.01
"""Calibrated probabilities of true labels are limited to [eps, 1 - eps]."""

_LOGIT_EPS = 1e-6
"""Probabilities are clipped to [eps, 1 - eps] before the logit."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Audit:
    """Result of :func:`ccmn.audit.audit_labels`.

    Parameters
    ----------
    issues : DataFrame
        Label issues, as returned by :func:`ccmn.find_label_issues`.
    summary : DataFrame
        Estimated numbers of false and missing labels, as returned by :func:`ccmn.audit.label_summary`.
    noise : NoiseRates or NoiseModel
        Estimated or given noise rates.
    pred_proba : ndarray of float64, shape (n, q)
        Out-of-fold probabilities of the noisy labels after :func:`ccmn.audit.calibrate_to_noise`.
    """

    issues: pd.DataFrame
    summary: pd.DataFrame
    noise: NoiseRates | NoiseModel
    pred_proba: FloatArray


def audit_labels(
    X: Any,
    Y_noisy: Labels,
    noise: str | NoiseModel | NoiseRates = "estimate",
    min_p_wrong: float = 0.5,
    random_state: RandomState = 0,
) -> Audit:
    """Find and count wrong labels, given features and noisy labels.

    The audit estimates the noise rates unless they are given, computes out-of-fold probabilities with a linear model,
    calibrates them to the noise, and returns the label issues and the estimated number of errors of each label.

    Parameters
    ----------
    X : array, DataFrame or sparse matrix of shape (n, d)
        Features.
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed.
    noise : {"estimate", "partial", "missing"}, NoiseModel or NoiseRates, default="estimate"
        Noise of the labels. With "estimate", both rates of every label are estimated. "partial" assumes that labels
        were only added, "missing" that labels were only removed; either assumption makes the estimated rates much
        more precise.
    min_p_wrong : float, default=0.5
        Minimum error probability of listed labels, as in :func:`ccmn.find_label_issues`.
    random_state : int, Generator or None, default=0
        Random state of folds and rate estimation.

    Returns
    -------
    Audit
        Issues, summary, noise rates and probabilities.

    Examples
    --------
    >>> from ccmn.audit import audit_labels
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.2, 0.4]), random_state=0)
    >>> issues = audit_labels(task.X, task.Y_noisy, "partial").issues
    >>> wrong = (task.Y != task.Y_noisy)[issues.row, issues.label]
    >>> bool(wrong.mean() > 0.9)
    True
    """
    features = check_array(X if is_sparse(X) else unwrap(X)[0], accept_sparse="csr", dtype=[np.float64, np.float32])
    labels = check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
    check_same_rows(features, labels, ("X", "Y_noisy"))
    seed = int(as_generator(random_state).integers(2**31))
    if isinstance(noise, str):
        check_choice(noise, "noise", tuple(NOISE_TYPES))
        noise = estimate_noise(features, Y_noisy, noise_type=NOISE_TYPES[noise], random_state=seed)
    rates = rates_with_uncertainty(noise)
    pred_proba = calibrate_to_noise(labels, out_of_fold_scores(features, labels, seed), rates.rho_pos, rates.rho_neg)
    issues = find_label_issues(Y_noisy, pred_proba, noise, min_p_wrong=min_p_wrong)
    return Audit(issues, label_summary(Y_noisy, noise), noise, pred_proba)


def calibrate_to_noise(
    noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray
) -> FloatArray:
    r"""Calibrate probabilities of noisy labels so that they are possible under the noise rates.

    .. math:: \tfrac12 \bigl(\min(\max(\tilde\eta, \rho_{neg}), 1 - \rho_{pos}) + g\bigr), \qquad
        g = \rho_{neg} + r\, (\epsilon + (1 - 2 \epsilon)\, \sigma(a \operatorname{logit} \tilde\eta + b))

    P(noisy label = 1 | x) lies between rho_neg and 1 - rho_pos. Predictions outside of this range would give an error
    probability of 1. The result is the mean of the clipped prediction and of g, a Platt scaling [1]_ of the true label
    with :math:`\epsilon = 0.01`, whose slope a and offset b maximize the likelihood of the noisy labels. On benchmark
    data the mean ranks wrong labels as well as the better of the two, and its error probabilities are better
    calibrated.

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
    clipped = np.clip(pred_proba, rho_neg, 1 - rho_pos)
    scaled = clipped.copy()
    for j in range(noisy.shape[1]):
        observed = ~np.isnan(noisy[:, j])
        ones = noisy[observed, j] == 1
        if min(int(ones.sum()), int((~ones).sum())) < MIN_ROWS_PER_CLASS:
            continue
        scores = scipy.special.logit(np.clip(pred_proba[:, j], _LOGIT_EPS, 1 - _LOGIT_EPS))
        centers, n_zeros, n_ones = (part[None] for part in bin_scores(scores[observed], ones))
        platt = calibrate(centers, n_zeros, n_ones, rho_pos[j : j + 1], rho_neg[j : j + 1])
        true = scipy.special.expit(np.exp(platt.slope) * scores + platt.offset)
        scaled[:, j] = rho_neg[j] + (1 - rho_pos[j] - rho_neg[j]) * (EPS + (1 - 2 * EPS) * true)
    return np.asarray((clipped + scaled) / 2)


def label_summary(Y_noisy: Labels, noise: NoiseModel | NoiseRates, level: float = 0.9) -> pd.DataFrame:
    r"""Estimate for each label how many given labels are false and how many true labels are missing.

    No model is needed. A label with n observed rows, k of them 1, has :math:`n_1 = (k - \rho_{neg} n) / r` true
    positives. The estimates are

    .. math:: \text{false} = \rho_{neg} (n - n_1), \qquad \text{missing} = \rho_{pos}\, n_1

    Both are unbiased for the numbers of flips F and M as long as :math:`0 \le n_1 \le n`. The variance of ``false``
    follows from ``false - F = -(1 + rho_neg / r) (F - E F) + (rho_neg / r) (M - E M)``, and the variance
    of ``missing`` follows in the same manner. The uncertainty of estimated rates is added by the delta method. Rates of
    a noise model are treated as known.

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or sparse matrix of shape (n, q)
        Given labels in {0, 1}; NaN where not observed.
    noise : ClassConditionalNoise, PartialNoise, MissingNoise or NoiseRates
        Known or estimated noise rates.
    level : float, default=0.9
        Nominal coverage of the confidence intervals.

    Returns
    -------
    DataFrame
        One line per label: ``label``, ``observed`` (number of observed rows), ``given`` (number of ones), ``false`` and
        ``missing``, each with the limits of its interval in ``_low`` and ``_high``.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.audit import label_summary
    >>> from ccmn.noise import PartialNoise
    >>> Y = np.repeat([[1], [0]], [40, 60], axis=0)
    >>> label_summary(Y, PartialNoise([0.25])).round(1).to_dict("records")
    [{'label': 0, 'observed': 100, 'given': 40, 'false': 20.0, 'false_low': 11.5, 'false_high': 28.5,
      'missing': 0.0, 'missing_low': 0.0, 'missing_high': 0.0}]
    """
    z = float(scipy.stats.norm.ppf((1 + check_real(level, "level", 0, 1)) / 2))
    rates = rates_with_uncertainty(noise)
    observed, given, names = _count_labels(Y_noisy, rates)
    (false, false_se), (missing, missing_se) = estimate_flips(observed, given, rates)
    table = {"label": range(observed.size) if names is None else list(names), "observed": observed, "given": given}
    for name, value, se, most in (
        ("false", false, false_se, given),
        ("missing", missing, missing_se, observed - given),
    ):
        table[name] = np.minimum(value, most)
        table[f"{name}_low"] = np.clip(value - z * se, 0, most)
        table[f"{name}_high"] = np.clip(value + z * se, 0, most)
    return pd.DataFrame(table)


def estimate_flips(
    observed: IntArray, given: IntArray, rates: RatesWithUncertainty
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Return the numbers of false and of missing labels, each with its standard error."""
    rho_pos, rho_neg = rates.rho_pos, rates.rho_neg
    signal = 1 - rho_pos - rho_neg
    ones = np.clip((given - rho_neg * observed) / signal, 0, observed)
    zeros = observed - ones
    # Variances of the numbers of added and of removed labels, including the uncertainty of the rates.
    added = rho_neg * (1 - rho_neg) * zeros + (zeros * rates.se_neg) ** 2
    removed = rho_pos * (1 - rho_pos) * ones + (ones * rates.se_pos) ** 2
    false_factor, missing_factor = rho_neg / signal, rho_pos / signal
    false_se = np.sqrt((1 + false_factor) ** 2 * added + false_factor**2 * removed)
    missing_se = np.sqrt((1 + missing_factor) ** 2 * removed + missing_factor**2 * added)
    return (rho_neg * zeros, false_se), (rho_pos * ones, missing_se)


def _count_labels(Y_noisy: Labels, rates: RatesWithUncertainty) -> tuple[IntArray, IntArray, tuple[str, ...] | None]:
    """Return the numbers of observed rows and of ones of every label, and the label names."""
    labels, names = check_labels(Y_noisy, rates)
    if is_sparse(labels):
        check_label_values(labels.data, "Y_noisy")
        unobserved = np.bincount(labels.indices[np.isnan(labels.data)], minlength=labels.shape[1])
        ones = np.bincount(labels.indices[labels.data == 1], minlength=labels.shape[1])
        return labels.shape[0] - unobserved, ones, names
    checked = check_label_matrix(labels, "Y_noisy")
    return (~np.isnan(checked)).sum(0), (checked == 1).sum(0), names
