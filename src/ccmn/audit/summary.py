"""label_summary: how many labels are false and how many are missing, label by label, with intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import NDArray

from ccmn._containers import Labels, is_sparse
from ccmn._validation import FloatArray, check_label_matrix, check_label_values, check_real
from ccmn.audit.believed import BelievedRates, believed_rates
from ccmn.audit.entries import checked_labels
from ccmn.estimation import NoiseRates
from ccmn.noise import NoiseModel

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
