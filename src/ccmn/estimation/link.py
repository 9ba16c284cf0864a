r"""Equation (*) of the default: the probability of a noisy label as a function of a score f.

.. math:: P(\tilde y = 1 \mid x) = \rho_{neg} + (1 - \rho_{pos} - \rho_{neg})\, \sigma(a f(x) + b)

It is a logistic curve with a floor and a ceiling. Its likelihood, maximized over a and b, is the evidence for the rates
of the default, and :math:`\sigma(a f + b)` is the probability of the true label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.training.default_settings import DEFAULTS, MIN_PROBABILITY, N_BINS, N_NEWTON_STEPS

MIN_INCREASE = 1e-2
"""Numerical resolution: Newton steps end when no log-likelihood increases by more than this."""


class Bins(NamedTuple):
    """Mean score, weight of the zeros and weight of the ones of bins of scores, each of shape (..., n_bins)."""

    f: FloatArray
    zeros: FloatArray
    ones: FloatArray


class Link(NamedTuple):
    """Slope a and offset b of M fits, with the log-likelihood (and log-prior of a) of each."""

    value: FloatArray
    slope: FloatArray
    offset: FloatArray


def bin_scores(f: FloatArray, y: FloatArray, weight: FloatArray) -> Bins:
    """Return bins of equal size of scores (n, M) with labels or probabilities y (n,): arrays (M, bins)."""
    order = np.argsort(f, axis=0, kind="stable")
    starts = np.unique(np.linspace(0, len(f), min(N_BINS, len(f)), endpoint=False).astype(np.intp))
    ones, zeros = weight * y, weight * (1 - y)
    total = np.maximum(np.add.reduceat(weight[order], starts), MIN_PROBABILITY)
    centers = np.add.reduceat(weight[order] * np.take_along_axis(f, order, 0), starts) / total
    return Bins(centers.T, *(np.add.reduceat(part[order], starts).T for part in (zeros, ones)))


def fit_link(
    bins: Bins, rho_pos: NDArray[Any], rho_neg: NDArray[Any], prior: tuple[float, float] = DEFAULTS.slope
) -> Link:
    r"""Maximize the likelihood of equation (*) over slope and offset at M pairs of rates, by damped Newton steps.

    .. math:: \ell(a, b) = \sum_t n_t^1 \log P_t + n_t^0 \log(1 - P_t) - (\log a - \mu)^2 / 2 s^2

    A step that decreases the likelihood is rejected and the damping is increased.

    ``bins`` are arrays of shape (M, T) or (1, T), the rates and the results have shape (M,), and ``prior`` is the mean
    and the standard deviation of log a.
    """
    f, zeros, ones = bins
    mean, sd = prior
    neg, signal = (rate.reshape(len(rate), -1) for rate in (rho_neg, 1 - rho_pos - rho_neg))
    size = zeros + ones

    def likelihood(u: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        s = scipy.special.expit(np.exp(u)[:, None] * f + b[:, None])
        P = np.clip(neg + signal * s, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        value = (ones * np.log(P) + zeros * np.log1p(-P)).sum(1) - 0.5 * ((u - mean) / sd) ** 2
        return value, signal * s * (1 - s), P

    # The offset starts at the log-odds of the prevalence that the rates imply.
    prevalence = (ones.sum(1) / size.sum(1) - neg.mean(1)) / signal.mean(1)
    u, b = np.full(len(rho_pos), mean), scipy.special.logit(np.clip(prevalence, 0.01, 0.99))
    damping = np.full(len(rho_pos), 1e-3)
    value, dP, P = likelihood(u, b)
    for _ in range(N_NEWTON_STEPS):
        du = np.exp(u)[:, None] * f
        residual, weight = (ones - size * P) / (P * (1 - P)) * dP, size * dP**2 / (P * (1 - P))
        gu, gb = (residual * du).sum(1) - (u - mean) / sd**2, residual.sum(1)
        huu, hbb = ((weight * du**2).sum(1) + sd**-2) * (1 + damping), (weight.sum(1) + 1e-3) * (1 + damping)
        hub = (weight * du).sum(1)
        determinant = huu * hbb - hub**2
        new_u = u + np.clip((hbb * gu - hub * gb) / determinant, -1, 1)
        new_b = b + np.clip((huu * gb - hub * gu) / determinant, -3, 3)
        trial, new_dP, new_P = likelihood(new_u, new_b)
        better, converged = trial >= value, np.abs(trial - value).max() < MIN_INCREASE
        u, b, value = np.where(better, new_u, u), np.where(better, new_b, b), np.where(better, trial, value)
        dP, P = np.where(better[:, None], new_dP, dP), np.where(better[:, None], new_P, P)
        damping = np.where(better, 0.3 * damping, 10 * damping)
        if converged:
            break
    return Link(value, np.exp(u), b)


@dataclass(frozen=True)
class CorrectedCurve:
    """Log-odds of the true labels as monotone piecewise linear functions of the log-odds f of the noisy labels."""

    knots: FloatArray
    """Log-odds of the noisy label, (K,)."""
    values: FloatArray
    """Log-odds of the true label, (q, K)."""

    def scores(self, f: FloatArray) -> FloatArray:
        """Return the log-odds (n, q) of the true labels; a label is predicted where they are at least 0."""
        return np.stack([np.interp(column, self.knots, v) for column, v in zip(f.T, self.values)], 1)

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return the probabilities (n, q) of log-odds."""
        return np.asarray(scipy.special.expit(scores))

    def __call__(self, f: FloatArray) -> FloatArray:
        """Return the probabilities (n, q) of the true labels."""
        return self.probabilities(self.scores(f))
