"""Held-out probabilities of noisy labels put right by what is known of the noise.

What is believed of the noise: rates and how sure they are, from a noise model or from an estimation.

label_summary: how many labels are false and how many are missing, label by label, with intervals.

audit_labels: from features and noisy labels to the labels that are probably wrong, in one call.
"""

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
from ccmn.audit.label_issues import BelievedRates, believed_rates, checked_labels, find_label_issues
from ccmn.estimation import NoiseRates, estimate_noise, out_of_fold_scores
from ccmn.estimation.likelihood import calibrate, cells_of
from ccmn.noise import NoiseModel

FEWEST = 20
"""Observed rows of either class that a label needs to be calibrated by its own."""
SUREST = 0.01
"""No true label is foreseen more surely than to this."""
_EDGE = 1e-6


def within_noise(noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""Probabilities that noise of these rates allows, calibrated on the noisy labels.

    .. math:: \tfrac12 \bigl(\min(\max(\tilde\eta, \rho_{neg}), 1 - \rho_{pos}) + g\bigr), \qquad
        g = \rho_{neg} + r\, (\epsilon + (1 - 2 \epsilon)\, \sigma(a \operatorname{logit} \tilde\eta + b))

    with a and b the likeliest for the label's noisy values and :math:`\epsilon = 0.01`. No P(noisy 1 | x) is below
    rho_neg or above 1 - rho_pos; that of a model is, and taken at its word makes a label sure to be wrong. g cannot
    leave the range, but trusts the rates and the shape; the mean of both lists flipped labels in an order as good as
    the better of the two, and is nearer to the share that is wrong (docs/audit.md).

    Parameters
    ----------
    noisy : (n, q)
        Noisy labels, NaN where not observed.
    pred_proba : (n, q)
        Held-out probabilities of them.
    rho_pos, rho_neg : (q,)
    """
    bounded = np.clip(pred_proba, rho_neg, 1 - rho_pos)
    columns = [
        _calibrated(noisy[:, j], pred_proba[:, j], rho_pos[j], rho_neg[j]) if _enough(noisy[:, j]) else bounded[:, j]
        for j in range(noisy.shape[1])
    ]
    return np.asarray((bounded + np.stack(columns, 1)) / 2)


def _enough(noisy: FloatArray) -> bool:
    return min(int((noisy == 1).sum()), int((noisy == 0).sum())) >= FEWEST


def _calibrated(noisy: FloatArray, proba: FloatArray, rho_pos: float, rho_neg: float) -> FloatArray:
    """g of one label, for every row."""
    scores, seen = scipy.special.logit(np.clip(proba, _EDGE, 1 - _EDGE)), ~np.isnan(noisy)
    centres, zeros, ones = (part[None] for part in cells_of(scores[seen], noisy[seen] == 1))
    found = calibrate(centres, zeros, ones, np.array([rho_pos]), np.array([rho_neg]))
    true = scipy.special.expit(np.exp(found.slope) * scores + found.offset)
    return np.asarray(rho_neg + (1 - rho_pos - rho_neg) * (SUREST + (1 - 2 * SUREST) * true))


IntArray = NDArray[np.int64]


def label_summary(Y_noisy: Labels, noise: NoiseModel | NoiseRates, level: float = 0.9) -> pd.DataFrame:
    r"""How many of the labels given are false, and how many true ones are missing; no model needed.

    With n observed entries of a label, k of them 1, the true positives are :math:`n_1 = (k - \rho_{neg} n) / r`, and

    .. math:: \text{false} = \rho_{neg} (n - n_1), \qquad \text{missing} = \rho_{pos}\, n_1

    Both are unbiased for the numbers of flips F and M while :math:`0 \le n_1 \le n`:
    ``false - F = -(1 + rho_neg / r) (F - E F) + (rho_neg / r) (M - E M)``, and likewise for ``missing``; hence their
    variances, to which the uncertainty of the rates is added (delta method). ``noise`` without standard errors is taken
    to be known exactly.

    Parameters
    ----------
    Y_noisy : array, tensor, DataFrame or CSR (n, q) in {0, 1}, NaN where not observed
    noise : ClassConditionalNoise, PartialNoise, MissingNoise, or NoiseRates
    level : float
        Coverage that the intervals aim at.

    Returns
    -------
    DataFrame
        A line per label: ``label``, ``observed`` (entries), ``given`` (entries that are 1), ``false`` and ``missing``,
        each with ``_low`` and ``_high``.

    Examples
    --------
    >>> from ccmn.noise import PartialNoise
    >>> Y = np.repeat([[1], [0]], [40, 60], axis=0)
    >>> label_summary(Y, PartialNoise([0.25])).round(1).to_dict("records")
    [{'label': 0, 'observed': 100, 'given': 40, 'false': 20.0, 'false_low': 11.5, 'false_high': 28.5,
      'missing': 0.0, 'missing_low': 0.0, 'missing_high': 0.0}]
    """
    z = float(scipy.stats.norm.ppf((1 + check_real(level, "level", 0, 1)) / 2))
    rates = believed_rates(noise)
    observed, given, names = _counts(Y_noisy, rates)
    (false, false_se), (missing, missing_se) = flips(observed, given, rates)
    table = {"label": range(observed.size) if names is None else list(names), "observed": observed, "given": given}
    for name, value, se, most in (
        ("false", false, false_se, given),
        ("missing", missing, missing_se, observed - given),
    ):
        table[name] = np.minimum(value, most)
        table[f"{name}_low"] = np.clip(value - z * se, 0, most)
        table[f"{name}_high"] = np.clip(value + z * se, 0, most)
    return pd.DataFrame(table)


def flips(
    observed: IntArray, given: IntArray, rates: BelievedRates
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Numbers of false and of missing labels, each with its standard error; the true positives kept in [0, n]."""
    rho_pos, rho_neg = rates.rho_pos, rates.rho_neg
    signal = 1 - rho_pos - rho_neg
    ones = np.clip((given - rho_neg * observed) / signal, 0, observed)
    zeros = observed - ones
    added, lost = rho_neg * (1 - rho_neg) * zeros, rho_pos * (1 - rho_pos) * ones
    to_false, to_missing = rho_neg / signal, rho_pos / signal
    false_variance = (
        (1 + to_false) ** 2 * (added + (zeros * rates.se_neg) ** 2) + to_false**2 * (lost + (ones * rates.se_pos) ** 2)
    )  # fmt: skip
    missing_variance = (
        (1 + to_missing) ** 2 * (lost + (ones * rates.se_pos) ** 2)
        + to_missing**2 * (added + (zeros * rates.se_neg) ** 2)
    )  # fmt: skip
    return (rho_neg * zeros, np.sqrt(false_variance)), (rho_pos * ones, np.sqrt(missing_variance))


def _counts(Y_noisy: Labels, rates: BelievedRates) -> tuple[IntArray, IntArray, tuple[str, ...] | None]:
    """Observed entries and ones of every label, and the labels' names; CSR is counted as it is stored."""
    labels, names = checked_labels(Y_noisy, rates)
    if is_sparse(labels):
        check_label_values(labels.data, "Y_noisy")
        unknown = np.bincount(labels.indices[np.isnan(labels.data)], minlength=labels.shape[1])
        ones = np.bincount(labels.indices[labels.data == 1], minlength=labels.shape[1])
        return labels.shape[0] - unknown, ones, names
    checked = check_label_matrix(labels, "Y_noisy")
    return (~np.isnan(checked)).sum(0), (checked == 1).sum(0), names


SIDES = {"estimate": "both", "partial": "partial", "missing": "missing"}
"""The words for noise that is to be estimated, as ``CCMNClassifier`` takes them, and the sides they declare."""


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes
    ----------
    issues : DataFrame
        As of :func:`ccmn.find_label_issues`.
    summary : DataFrame
        As of :func:`ccmn.audit.label_summary`.
    noise : NoiseRates or NoiseModel
        The rates that it rests on, estimated or given.
    pred_proba : float64 (n, q)
        The held-out probabilities of the noisy labels that it rests on, in keeping with the rates
        (:func:`ccmn.audit.within_noise`).
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
    """Audit noisy labels: held-out scores, rates where they are not known, then issues and their numbers.

    Parameters
    ----------
    X : array, DataFrame or CSR (n, d)
    Y_noisy : labels (n, q) in {0, 1}, NaN where not observed
    noise : "estimate", "partial", "missing", a noise model or NoiseRates
        "partial" and "missing" declare that labels were only added, or only lost, which makes the rates far surer.
    min_p_wrong : float
        As of :func:`ccmn.find_label_issues`.
    random_state : int, Generator or None

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(2000, 5, 2, strength=8, noise=PartialNoise([0.2, 0.4]), random_state=0)
    >>> found = audit_labels(task.X, task.Y_noisy, "partial").issues
    >>> wrong = (task.Y != task.Y_noisy)[found.row, found.label]
    >>> bool(wrong.mean() > 0.9)
    True
    """
    features = check_array(X if is_sparse(X) else unwrap(X)[0], accept_sparse="csr", dtype=[np.float64, np.float32])
    labels = check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
    check_same_rows(features, labels, ("X", "Y_noisy"))
    seed = int(as_generator(random_state).integers(2**31))
    if isinstance(noise, str):
        check_choice(noise, "noise", tuple(SIDES))
        noise = estimate_noise(features, Y_noisy, sides=SIDES[noise], random_state=seed)
    rates = believed_rates(noise)
    pred_proba = within_noise(labels, out_of_fold_scores(features, labels, seed), rates.rho_pos, rates.rho_neg)
    issues = find_label_issues(Y_noisy, pred_proba, noise, min_p_wrong)
    return Audit(issues, label_summary(Y_noisy, noise), noise, pred_proba)
