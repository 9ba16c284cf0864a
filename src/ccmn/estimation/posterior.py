r"""Posterior distribution of the noise rates of all labels, and the prediction that it implies.

The prior describes rho_pos, the share of the true labels that are missing, and phi, the share of the given labels that
are false,

.. math:: \rho_{pos,j} \sim \mathrm{Beta}(m_+ c_+, (1 - m_+) c_+), \qquad
          \phi_j \sim \mathrm{Beta}(m_- c_-, (1 - m_-) c_-),

with means and concentrations that are common to all labels and integrated out. A factor
:math:`o / \max(\pi, o)` is against prevalences above the observed share. Without evidence the posterior is the
prior, which changes predictions little. If added labels are declared, the mean of phi may be larger and the factor is
:math:`o / \pi`. Verified rows multiply the likelihood by those of their flips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, expit, log_expit, xlogy

from ccmn._validation import FloatArray
from ccmn.estimation.likelihood import Surfaces
from ccmn.estimation.link import Bins, CorrectedCurve, bin_scores, fit_link
from ccmn.training.default_settings import DEFAULTS, MIN_PROBABILITY, DefaultSettings

CONFIDENCE_LEVEL = 0.9
"""Level of the intervals."""
MIN_ROWS = 100
"""Below this number of observed rows of a label its rates are not estimated: intervals would span most of [0, 1]."""
MIN_GAIN = 2.0
"""The features do not predict a label if its gain in log-likelihood is below this number of standard errors."""
_TINY = 1e-300


class Rate(NamedTuple):
    """Estimate of one rate of one label, with standard error and interval."""

    value: float
    se: float
    low: float
    high: float


UNKNOWN_RATE = Rate(0.0, 12**-0.5, 0.0, 1.0)
"""Rate without any evidence: nothing is corrected, the interval is [0, 1], the error that of a uniform variable."""


def jeffreys_rate(k: float, m: int) -> Rate:
    """Return the rate behind k events in m trials: mean, standard deviation and interval of the Jeffreys posterior.

    The posterior is Beta(k + 1/2, m - k + 1/2). The interval is closed at 0 if k = 0 and at 1 if k = m (Brown, Cai and
    DasGupta, Statistical Science 16(2), 2001).
    """
    if not m:
        return UNKNOWN_RATE
    a, b = 0.5 + k, 0.5 + m - k
    mean, tail = a / (a + b), (1 - CONFIDENCE_LEVEL) / 2
    low, high = (float(betaincinv(a, b, part)) for part in (tail, 1 - tail))
    se = math.sqrt(mean * (1 - mean) / (m + 2))
    return Rate(mean, se, 0.0 if k == 0 else low, 1.0 if k == m else high)


class Flips(NamedTuple):
    """Counts on verified rows of every label, each (q,): true ones, those given as 0, true zeros, those given as 1."""

    positives: NDArray[Any]
    removed: NDArray[Any]
    negatives: NDArray[Any]
    added: NDArray[Any]


def count_flips(noisy: FloatArray, true: FloatArray) -> Flips:
    """Count the flips of noisy labels (m, q) with known true labels; entries that are NaN in either do not count."""
    positive, negative = (true == 1) & ~np.isnan(noisy), (true == 0) & ~np.isnan(noisy)
    return Flips(*(rows.sum(0) for rows in (positive, positive & (noisy == 0), negative, negative & (noisy == 1))))


@dataclass(frozen=True)
class RatePosterior:
    """Posterior of the rates of q labels: weights of A x B pairs of rates.

    ``rho_pos``, ``rho_neg``, ``se_pos``, ``se_neg`` and ``prior`` (the prevalence) are posterior means and standard
    deviations, ``ci_pos`` and ``ci_neg`` 90 % intervals (q, 2). ``predictable`` is False where the features do not
    predict a label; its intervals are [0, 1].
    """

    weights: FloatArray
    """Posterior probabilities of all pairs, (q, A, B)."""
    slope: FloatArray
    offset: FloatArray
    """Equation (*) at every pair, (q, A, B)."""
    rho_pos: FloatArray
    rho_neg: FloatArray
    se_pos: FloatArray
    se_neg: FloatArray
    ci_pos: FloatArray
    ci_neg: FloatArray
    prior: FloatArray
    predictable: NDArray[np.bool_]


def rate_posterior(
    surfaces: Surfaces,
    noise_type: str | Sequence[str] = "both",
    trusted: Flips | None = None,
    prevalence: FloatArray | None = None,
    settings: DefaultSettings = DEFAULTS,
) -> RatePosterior:
    """Return the posterior of the rates of all labels.

    ``trusted`` are counts of verified rows, and ``prevalence`` (q,) known prevalences of the true labels, NaN where
    unknown.
    """
    types = np.array([noise_type] * len(surfaces.n) if isinstance(noise_type, str) else noise_type)
    verified = np.zeros(len(types)) if trusted is None else trusted.positives + trusted.negatives
    known = verified if prevalence is None else verified + np.isfinite(prevalence)
    few = (surfaces.n < MIN_ROWS) & (known == 0)
    likelihood, given = surfaces.value / settings.temperature, log_evidence(surfaces, trusted, prevalence, settings)
    with np.errstate(divide="ignore"):
        excess = (1 - surfaces.phi) / (1 - surfaces.rho_pos[:, None])  # pi / o
        # If added labels are declared, the factor also favors prevalences below the observed share.
        limited = np.where((types == "partial")[:, None, None], excess, np.maximum(excess, 1))
        evidence = likelihood + given - settings.rarity * np.log(limited)
    weights = posterior_weights(evidence, np.where(few, "none", types), surfaces.rho_pos, surfaces.phi, settings)
    # Intervals also hold where the prior does not expect the rates and, with verified rows, where (*) does not hold.
    alone = np.where((verified > 0)[:, None, None], given, likelihood + given)
    alone = np.exp(alone - alone.max((1, 2), keepdims=True)) * (weights > 0)
    predictable = (surfaces.gain >= MIN_GAIN) & ~few | (known > 0)
    pos, neg = np.broadcast_to(surfaces.rho_pos[:, None], weights.shape), np.nan_to_num(surfaces.rho_neg)
    # Half widths of the cells of the grid; the mass at 0 is an atom.
    half_pos = np.broadcast_to(np.gradient(surfaces.rho_pos)[:, None] / 2 * (pos > 0), weights.shape)
    half_neg = neg * np.gradient(surfaces.phi) / np.maximum(2 * surfaces.phi, MIN_PROBABILITY)
    moments = []
    for rate, half, excluded in ((pos, half_pos, "partial"), (neg, half_neg, "missing")):
        mean = (weights * rate).sum((1, 2))
        se = np.sqrt((weights * (rate - mean[:, None, None]) ** 2).sum((1, 2)))
        ci = np.tile([0.0, 1.0], (len(types), 1))
        for j in np.flatnonzero(predictable):
            limits = [weighted_interval(rate[j].ravel(), half[j].ravel(), w[j].ravel()) for w in (weights, alone)]
            ci[j] = min(limits[0][0], limits[1][0]), max(limits[0][1], limits[1][1])
        ci[types == excluded] = 0
        moments.append((mean, se, ci))
    prevalences = (weights * surfaces.share[:, None, None] * excess).sum((1, 2))
    (rho_pos, rho_neg), (se_pos, se_neg), (ci_pos, ci_neg) = zip(*moments)
    return RatePosterior(
        weights,
        surfaces.slope,
        surfaces.offset,
        rho_pos,
        rho_neg,
        se_pos,
        se_neg,
        ci_pos,
        ci_neg,
        prevalences,
        predictable,
    )


def log_evidence(
    surfaces: Surfaces, trusted: Flips | None, prevalence: FloatArray | None, settings: DefaultSettings = DEFAULTS
) -> FloatArray:
    r"""Return the log-likelihood of verified rows and of a known prevalence, (q, A, B); -inf at impossible pairs.

    .. math:: k_+ \log \rho_{pos} + (m_+ - k_+) \log(1 - \rho_{pos})
              + k_- \log \rho_{neg} + (m_- - k_-) \log(1 - \rho_{neg})
    """
    pos, neg = surfaces.rho_pos[:, None], surfaces.rho_neg
    result = np.where(np.isnan(neg), -np.inf, 0.0)
    if trusted is not None:
        m_pos, k_pos, m_neg, k_neg = (counts[:, None, None] for counts in trusted)
        for rate, m, k in ((pos, m_pos, k_pos), (neg, m_neg, k_neg)):
            result = result + np.nan_to_num(xlogy(k, np.maximum(rate, MIN_PROBABILITY)) + xlogy(m - k, 1 - rate))
    if prevalence is not None:
        # The observed share has a sampling error, and the grid is coarse.
        known, o = np.asarray(prevalence, dtype=np.float64)[:, None, None], surfaces.share[:, None, None]
        sampling = np.sqrt(o * (1 - o) / np.maximum(surfaces.n[:, None, None], 1)) / (1 - pos - neg)
        error = np.maximum(np.hypot(sampling, settings.grid[1] / 2 * o), _TINY)
        result = result - np.nan_to_num(((o * (1 - surfaces.phi) / (1 - pos) - known) / error) ** 2 / 2)
    return np.asarray(result)


def rate_prior(values: FloatArray, max_mean: float, settings: DefaultSettings = DEFAULTS) -> FloatArray:
    """Return prior masses (H, A) of grid values: Beta with each mean and concentration."""
    means = np.linspace(0.01, max_mean, 12)
    concentrations = np.geomspace(*settings.concentrations, 4)
    m, c = (part.reshape(-1, 1) for part in np.meshgrid(means, concentrations, indexing="ij"))
    edges = np.concatenate([[0.0], (values[1:] + values[:-1]) / 2, [1.0]])
    return np.asarray(np.diff(betainc(m * c, (1 - m) * c, edges), axis=1))


def posterior_weights(
    evidence: FloatArray,
    noise_type: Sequence[str] | NDArray[Any],
    rho_pos: FloatArray,
    phi: FloatArray,
    settings: DefaultSettings = DEFAULTS,
) -> FloatArray:
    r"""Return the posterior probabilities (q, A, B) of all pairs of rates.

    Let :math:`F_h(\rho_{pos})` and :math:`G_g(\phi)` be prior masses at hyperparameters h and g. The prior of
    rho_pos given phi is limited to possible pairs, with mass :math:`Z_{hj}(\phi)`, so that the prior of phi does not
    depend on which pairs are possible. Then

    .. math:: p_j(\rho_{pos}, \phi) \propto \sum_{h, g} w_{hg}\,
              \frac{L_j F_h(\rho_{pos})\, G_g(\phi)}{Z_{hj}(\phi)\, E_{hgj}}, \qquad
              E_{hgj} = \sum_{\rho_{pos}, \phi} \frac{L_j F_h G_g}{Z_{hj}}, \qquad
              w_{hg} \propto \prod_j E_{hgj} .
    """
    F, G, declared = (rate_prior(v, m, settings) for v, m in zip((rho_pos, phi, phi), settings.max_means))
    possible = np.isfinite(evidence)
    likelihood = np.exp(evidence - evidence.max((1, 2), keepdims=True))
    types = np.array(noise_type)[:, None, None]
    Fs = np.where(np.isin(types, ("partial", "none")), np.eye(1, len(rho_pos)), F)
    Gs = np.where(np.isin(types, ("missing", "none")), np.eye(1, len(phi)), np.where(types == "partial", declared, G))
    Gs = Gs * possible.any(1, keepdims=True)
    Gs = Gs / np.maximum(Gs.sum(2, keepdims=True), _TINY)
    Z = np.maximum(Fs @ possible, _TINY)
    E = np.maximum((Fs @ likelihood / Z) @ Gs.transpose(0, 2, 1), _TINY)
    log_w = np.log(E).sum(0)
    w = np.exp(log_w - log_w.max())
    weights = likelihood * (Fs.transpose(0, 2, 1) @ ((w / w.sum() / E) @ Gs / Z))
    return np.asarray(weights / weights.sum((1, 2), keepdims=True))


def weighted_interval(values: FloatArray, half: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the limits between which 90 % of the weights lie; half of a weight is at each end of the cell of a value.

    >>> weighted_interval(np.linspace(0, 1, 101), np.full(101, 0.005), np.ones(101)).round(3)
    array([0.045, 0.954])
    """
    values, weights = np.concatenate([values - half, values + half]), np.tile(weights, 2)
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order]) / weights.sum()
    tail = (1 - CONFIDENCE_LEVEL) / 2
    return np.interp([tail, 1 - tail], cumulative, values[order])


def fixed_rates(
    f: FloatArray,
    Y: FloatArray,
    rho_pos: FloatArray,
    rho_neg: FloatArray,
    sample_weight: FloatArray | None = None,
    settings: DefaultSettings = DEFAULTS,
    true: FloatArray | None = None,
) -> RatePosterior:
    """Return the posterior of known rates (q,): equation (*) is fitted at one pair of rates per label.

    Where true labels (n, q) are known and not NaN, they replace the noisy ones: their likelihood is that of
    sigma(a f + b), without rates and temperature.
    """
    q, true = Y.shape[1], np.full(Y.shape, np.nan) if true is None else true
    slope, offset = np.ones((q, 1, 1)), np.zeros((q, 1, 1))
    weight = np.ones(len(f)) if sample_weight is None else sample_weight / sample_weight.mean()
    total = weight @ ~np.isnan(Y)
    share = np.where(total > 0, weight @ np.nan_to_num(Y) / np.maximum(total, MIN_PROBABILITY), 0.5)
    for j in np.flatnonzero(total > 0):
        known = ~np.isnan(true[:, j])
        rest = ~known & ~np.isnan(Y[:, j])
        noisy = bin_scores(f[rest, j, None], Y[rest, j], weight[rest])
        verified = bin_scores(f[known, j, None], true[known, j], settings.temperature * weight[known])
        bins = Bins(*(np.concatenate(pair, 1) for pair in zip(noisy, verified)))
        is_noisy = np.repeat([1.0, 0.0], [noisy.f.size, verified.f.size])
        fit = fit_link(bins, rho_pos[[j], None] * is_noisy, rho_neg[[j], None] * is_noisy, settings.slope)
        slope[j], offset[j] = fit.slope, fit.offset
    prior = np.clip((share - rho_neg) / (1 - rho_pos - rho_neg), 0, 1)
    ci_pos, ci_neg = (np.stack([rate, rate], 1) for rate in (rho_pos, rho_neg))
    weights, zero, known = np.ones((q, 1, 1)), np.zeros(q), np.ones(q, dtype=bool)
    return RatePosterior(weights, slope, offset, rho_pos, rho_neg, zero, zero, ci_pos, ci_neg, prior, known)


# -- Prediction


def corrected_curve(posterior: RatePosterior) -> CorrectedCurve:
    r"""Return the posterior mean of the curve of equation (*), :math:`\sum_k w_k\, \sigma(a_k f + b_k)`, as a table."""
    knots = np.arange(-14, 14.01, 0.1)
    values = np.empty((len(posterior.weights), len(knots)))
    for j, w in enumerate(posterior.weights):
        z = posterior.slope[j][w > 1e-9, None] * knots + posterior.offset[j][w > 1e-9, None]
        w = w[w > 1e-9, None]
        values[j] = np.log((w * expit(z)).sum(0) + _TINY) - np.log((w * np.exp(log_expit(-z))).sum(0) + _TINY)
    return CorrectedCurve(knots, np.maximum.accumulate(values, axis=1))
