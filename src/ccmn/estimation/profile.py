"""Posterior of both rates of a label, from its profile likelihood, trusted rows, known prevalence and other labels.

This is the default method. For each pair of rates the nuisance parameters (the model of the true label) are maximized
out on held-out rows; the resulting profile likelihood is tempered and combined with the other evidence.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.special

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.likelihood import GRIDS, MIN_CLASS_SIZE, Grid, Surfaces, observed_prevalence
from ccmn.estimation.noise_rates import (
    CONFIDENCE_LEVEL,
    ZERO_RATE,
    LabelRates,
    NoiseType,
    Rate,
    unidentified,
)

DEFAULT_TEMPERATURE = 2.5
"""Divisor of the held-out log-likelihood. The likelihood is too concentrated, because models share rows and posteriors
are not exactly logistic. With this value the intervals reach their nominal coverage on real data
(``benchmarks/noise_rates.py``)."""
MIN_TJUR_R2 = 0.02
"""Lower bound of Tjur's R^2 in the temperature."""
MIN_PREVALENCE = 0.01
"""The prior density of the prevalence is constant below this value (and above 1 minus it)."""
MAX_RARE_PREVALENCE, MIN_FREQUENT_PREVALENCE = 0.5, 0.6
"""Observed prevalences up to which the prior for rare labels counts in full, and from which it does not count. Selected
on yeast, enron, tmc, digit scenes and simulated labels."""
PREVALENCE_SD = 0.01
"""Standard deviation of a prevalence that the user declares as known."""
UNIFORM_SHARE = 0.05
"""Weight of the uniform distribution in the pooled prior, so that a label may differ from all others."""
MAX_LABELS_COUNTED = 8
"""The mean log evidence of the labels counts as that of at most this many independent labels: the labels share the
misfit of the model, so that their evidence does not add up."""
LOG_PRIOR_WEIGHTS = {"clean": 0.0, "missing": -0.5, "partial": 0.2, "both": 0.9}
"""Logarithm of the prior weight of each hypothesis on the noise of all labels, per counted label. "missing" has the
smallest weight because posteriors of real labels saturate below 1 even without noise, which looks like missing labels.
Selected on yeast, enron, tmc, deu and cmc with injected noise."""
MIN_INFORMATION = 1.5
"""The prior weights count in full if the likelihoods of the labels have this information about the rates, in nats."""
LOG_CLEAN_WEIGHT = 1.0
"""Logarithm of the additional prior weight of "clean" if the likelihoods contain no information: features that predict
little must not look like noise. Both values were selected on simulated clean labels with weak features, which larger
values harm less, and on ptbr, deu and cmc with two-sided noise, which smaller values correct better."""
_MIN_PROBABILITY = 1e-3


class Counts(NamedTuple):
    """Trusted rows of one label: numbers of true labels 1 and of those removed, of true labels 0 and of those added."""

    positives: int
    removed: int
    negatives: int
    added: int


def profile(evidence: Evidence) -> list[LabelRates]:
    """Estimate the rates at which a forward-corrected logistic model best predicts the noisy labels of held-out rows.

    The method assumes that the posterior of the true label is logistic along some direction of the features. It does
    not assume that the label of any row is certain. Labels with fewer than 20 observed rows of their rarer class are
    shrunk towards the pooled estimate of the other labels (flag "shrunk"). ``evidence.surfaces``, the
    held-out log-likelihoods over the grid of rates, must be fitted.
    """
    if evidence.pred_proba is not None:
        raise ValueError("method='profile' requires the features X; got pred_proba")
    return profile_labels(evidence, [None] * evidence.Y.shape[1])


def profile_labels(
    evidence: Evidence, counts: Sequence[Counts | None], counts_only: Collection[int] = ()
) -> list[LabelRates]:
    """Return the posterior rates of every label; the likelihood of the labels in ``counts_only`` is ignored."""
    surfaces = evidence.surfaces
    if surfaces is None:
        raise ValueError("Expected fitted likelihoods; use replace(evidence, surfaces=fit_surfaces(evidence))")
    observed = observed_prevalence(evidence.Y).tolist()
    log_values = [
        _label_log_posterior(evidence, surfaces, j, observed[j], counts[j], j in counts_only)
        for j in range(len(observed))
    ]
    rarer = np.minimum((evidence.Y == 1).sum(0), (evidence.Y == 0).sum(0))
    informed = rarer >= MIN_CLASS_SIZE
    uncertain = [
        evidence.X is not None and noise_type == "both" and counts[j] is None and _unknown_prevalence(evidence, j)
        for j, noise_type in enumerate(evidence.noise_type)
    ]
    weights = hypothesis_weights([log_values[j] for j in np.flatnonzero(informed & uncertain)])
    result = []
    for j, noise_type in enumerate(evidence.noise_type):
        grid = GRIDS[noise_type]
        sources = ("trusted", counts[j] is not None), ("profile", evidence.X is not None)
        method = " + ".join(name for name, used in sources if used) or "known prevalence"
        alike = [k for k in np.flatnonzero(informed).tolist() if evidence.noise_type[k] == noise_type]
        if informed[j] or (len(alike) < 2 and (rarer[j] or counts[j] is not None)):
            rates = posterior_rates(log_values[j], grid, observed[j], weights if uncertain[j] else None)
            result.append(LabelRates(*rates, "point", method))
        elif len(alike) < 2:
            note = (
                "All observed values are equal and there are not enough other labels to pool with, so the rates are "
                "unknown. Exclude the label or collect more rows."
            )
            result.append(unidentified(noise_type, "point", "profile", note))
        else:
            pooled = np.mean([normalize(log_values[k] + log_rare_prior(grid, observed[k])) for k in alike], 0)
            log_shrunk = shrink_to_pooled(pooled, log_values[j])
            rates = posterior_rates(log_shrunk, grid, observed[j], weights if uncertain[j] else None)
            note = (
                f"Only {int(rarer[j])} rows of the rarer class were observed: the rates are shrunk towards the pooled "
                "estimate of the other labels. If the noise of this label differs from theirs, pass trusted rows."
            )
            result.append(LabelRates(*rates, "point", method, (("shrunk", note),)))
    return result


def _unknown_prevalence(evidence: Evidence, j: int) -> bool:
    """Return whether the prevalence of label j is not known."""
    return evidence.prevalence is None or math.isnan(float(evidence.prevalence[j]))


def hypothesis_weights(log_values: Sequence[FloatArray]) -> dict[str, float] | None:
    r"""Return the posterior weights of four hypotheses on the noise of all labels; None without labels.

    The hypotheses are: no noise ("clean"), no added labels ("missing"), no missing labels ("partial"), and any pair of
    rates ("both"). The evidence of a hypothesis for a label is the mean of its likelihood over the pairs of rates that
    the hypothesis allows (Bayesian model averaging [1]_). The weight of hypothesis h is

    .. math:: w_h \propto \exp\bigl(\min(q, 8)\, (\bar e_h + s\, b_h) + (1 - s)\, [h = \text{clean}]\bigr)

    where :math:`\bar e_h` is the mean log evidence over the q labels and :math:`b_h` is in ``LOG_PRIOR_WEIGHTS``. The
    share s, at most 1, is the root mean square of :func:`information` divided by ``MIN_INFORMATION``: if the features
    are too weak to tell noise from uncertainty, the hypotheses have similar weights, and "clean" the largest.

    References
    ----------
    .. [1] J. A. Hoeting, D. Madigan, A. E. Raftery and C. T. Volinsky, "Bayesian Model Averaging: A Tutorial",
       Statistical Science 14(4), 1999.
    """
    if not log_values:
        return None
    evidence = {
        name: np.mean([_log_mean(_restrict(values, name)) for values in log_values]) for name in LOG_PRIOR_WEIGHTS
    }
    counted = min(len(log_values), MAX_LABELS_COUNTED)
    informed = math.sqrt(np.mean([information(values) ** 2 for values in log_values]))
    share = min(1.0, informed / MIN_INFORMATION)
    scores = {name: counted * (evidence[name] + share * bias) for name, bias in LOG_PRIOR_WEIGHTS.items()}
    scores["clean"] += LOG_CLEAN_WEIGHT * (1 - share)
    return dict(zip(scores, scipy.special.softmax(list(scores.values())).tolist()))


def information(log_values: FloatArray) -> float:
    """Return how far the largest log-likelihood of a label exceeds its log-mean over all pairs of rates; 0 if flat.

    >>> information(np.zeros((3, 3))), round(information(np.log([[8.0, 1.0], [2.0, 1.0]])), 3)
    (0.0, 0.981)
    """
    finite = log_values[np.isfinite(log_values)]
    return float(finite.max()) - _log_mean(log_values) if finite.size else 0.0


def _restrict(values: FloatArray, hypothesis: str) -> FloatArray:
    """Return the part of a grid (A, B) that a hypothesis allows; its first row and column are rates of zero."""
    rows, columns = (1 if hypothesis in allowed else None for allowed in (("clean", "partial"), ("clean", "missing")))
    return values[:rows, :columns]


def _log_mean(values: FloatArray) -> float:
    """Return the logarithm of the mean of exp(values) over the finite values."""
    finite = values[np.isfinite(values)]
    return float(scipy.special.logsumexp(finite)) - math.log(finite.size) if finite.size else -math.inf


def average_hypotheses(log_values: FloatArray, weights: Mapping[str, float]) -> FloatArray:
    """Return the posterior (A, B) of a label, averaged over the hypotheses; impossible ones are left out."""
    result = np.zeros_like(log_values)
    for name, weight in weights.items():
        part = _restrict(log_values, name)
        if np.isfinite(part).any():
            result[: part.shape[0], : part.shape[1]] += weight * normalize(part)
    averaged: FloatArray = result / result.sum()
    return averaged


def _label_log_posterior(
    evidence: Evidence, surfaces: Surfaces, j: int, observed: float, counts: Counts | None, counts_only: bool
) -> FloatArray:
    """Return the log-posterior of label j over the grid of its noise type."""
    noise_type, values = evidence.noise_type[j], surfaces.values[j]
    if counts_only:
        values = np.where(np.isfinite(values), 0.0, values)
    known = math.nan if evidence.prevalence is None else float(evidence.prevalence[j])
    n = int((~np.isnan(evidence.Y[:, j])).sum())
    temperature = temperature_for(noise_type, surfaces.scores[:, j], evidence.Y[surfaces.rows, j])
    prevalence = None if math.isnan(known) else known
    return log_posterior(values, GRIDS[noise_type], observed, counts, prevalence, n, temperature)


def log_posterior(
    surface: FloatArray,
    grid: Grid,
    observed: float,
    counts: Counts | None = None,
    prevalence: float | None = None,
    n: float = math.inf,
    temperature: float = DEFAULT_TEMPERATURE,
) -> FloatArray:
    r"""Return the log-posterior (A, B) over the grid up to a constant, with a uniform prior on the prevalence.

    .. math:: \frac{\ell(\rho)}{T} + k_{pos} \log \rho_{pos} + (n_{pos} - k_{pos}) \log (1 - \rho_{pos}) + \dots
        + w\, (n_{pos} \log \pi + n_{neg} \log (1 - \pi))

    where :math:`\pi = (\tilde p - \rho_{neg}) / r` is the prevalence that the rates imply. The first term is the
    held-out likelihood with temperature T (a power posterior [1]_, see :func:`temperature_for`). The other terms are
    the likelihood of the trusted rows: of their flips, and of their number of true labels. This number is informative
    because the observed prevalence is known; its weight w accounts for the error of the observed prevalence in a sample
    of n rows (:func:`prevalence_weight`). A known prevalence adds a normal term with standard deviation 0.01.

    References
    ----------
    .. [1] N. Friel and A. N. Pettitt, "Marginal likelihood estimation via power posteriors", JRSS B 70(3), 2008.
    """
    prior = grid.prior(observed)
    result = surface / temperature
    if counts is not None:
        pos, neg = (np.clip(rates, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY) for rates in grid.pairs)
        removed = counts.removed * np.log(pos) + (counts.positives - counts.removed) * np.log1p(-pos)
        added = counts.added * np.log(neg) + (counts.negatives - counts.added) * np.log1p(-neg)
        share = np.clip(prior, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        positives = counts.positives * np.log(share) + counts.negatives * np.log1p(-share)
        result = result + removed + added + prevalence_weight(counts, observed, n) * positives
    if prevalence is not None:
        result = result - 0.5 * ((prior - prevalence) / PREVALENCE_SD) ** 2
    return np.asarray(np.where(np.isfinite(surface), result, -np.inf))


def temperature_for(noise_type: NoiseType, scores: FloatArray, noisy: FloatArray) -> float:
    r"""Return the temperature of a label: 2.5, or more for noise type "missing" if the features explain little.

    .. math:: T = \max(2.5,\, 1 / D), \qquad D = E[\hat g \mid \tilde y = 1] - E[\hat g \mid \tilde y = 0]

    D is Tjur's R^2 [1]_ of the out-of-fold probabilities :math:`\hat g`. With "missing", the rate is identified by the
    maximum of :math:`P(\tilde y = 1 \mid x) \le 1 - \rho_{pos}`. A weak model does not reach this maximum, and the
    level at which it saturates depends on the shape of the model more than on the rate.

    References
    ----------
    .. [1] T. Tjur, "Coefficients of Determination in Logistic Regression Models: A New Proposal", The American
       Statistician 63(4), 2009.
    """
    positive, negative = scores[noisy == 1], scores[noisy == 0]
    if noise_type != "missing" or not positive.size or not negative.size:
        return DEFAULT_TEMPERATURE
    tjur_r2 = float(positive.mean() - negative.mean())
    return max(DEFAULT_TEMPERATURE, 1 / max(tjur_r2, MIN_TJUR_R2))


def prevalence_weight(counts: Counts, observed: float, n: float) -> float:
    r"""Return the share of the trusted rows in the variance between their prevalence and the one implied by n rows.

    .. math:: w = \frac{v}{v + \tilde p (1 - \tilde p) / (n r^2)}, \qquad v = \frac{\pi (1 - \pi)}{m}

    for m trusted rows, with :math:`\pi` and r as counted on them.
    """
    m = counts.positives + counts.negatives
    share = (counts.positives + 0.5) / (m + 1)
    rho_pos, rho_neg = (counts.removed + 0.5) / (counts.positives + 1), (counts.added + 0.5) / (counts.negatives + 1)
    v = share * (1 - share) / max(m, 1)
    return v / (v + observed * (1 - observed) / (n * max(1 - rho_pos - rho_neg, 0.2) ** 2))


def log_rare_prior(grid: Grid, observed: float) -> FloatArray:
    r"""Return the log-prior (A, B) with density :math:`((1 - \pi) / \pi)^a`: most labels of a dataset are rare.

    The exponent a is 1 for labels that are observed in at most 50 % of the rows, and 0 above 60 %: added labels must
    not explain a label that most rows have, unless the noise type declares that labels were only added.
    """
    prevalence = np.clip(grid.prior(observed), MIN_PREVALENCE, 1 - MIN_PREVALENCE)
    width = MIN_FREQUENT_PREVALENCE - MAX_RARE_PREVALENCE
    declared = min(grid.pos.size, grid.neg.size) == 1
    exponent = 1.0 if declared else np.clip((MIN_FREQUENT_PREVALENCE - observed) / width, 0, 1)
    return np.asarray(exponent * (np.log1p(-prevalence) - np.log(prevalence)))


def normalize(log_values: FloatArray) -> FloatArray:
    """Return the posterior (A, B) with sum 1."""
    return np.asarray(np.exp(log_values - scipy.special.logsumexp(log_values)))


def posterior_rates(
    log_values: FloatArray, grid: Grid, observed: float, weights: Mapping[str, float] | None = None
) -> tuple[Rate, Rate]:
    """Return rho_pos and rho_neg with standard errors and intervals.

    The value is the posterior mean under the prior for rare labels, averaged over the hypotheses on the noise if their
    weights are given. Standard error and interval use the average of the posteriors with and without these priors, so
    that they are wide if the priors have a strong influence.
    """
    with_prior, without_prior = normalize(log_values + log_rare_prior(grid, observed)), normalize(log_values)
    average = (with_prior + without_prior) / 2
    if weights is not None:
        with_prior = average_hypotheses(log_values + log_rare_prior(grid, observed), weights)
        average = (with_prior + average_hypotheses(log_values, weights) + without_prior) / 3
    pos = _marginal_rate(with_prior.sum(1), average.sum(1), grid.pos)
    neg = _marginal_rate(with_prior.sum(0), average.sum(0), grid.neg)
    return pos, neg


def _marginal_rate(with_prior: FloatArray, average: FloatArray, values: FloatArray) -> Rate:
    """Return mean, standard error and shortest 90 % interval of one rate from its marginal posteriors."""
    if values.size == 1:
        return ZERO_RATE
    step = float(values[1] - values[0])
    mean = float(with_prior @ values)
    # step^2 / 12 is the variance within a cell of the grid.
    se = float(np.sqrt(average @ (values - mean) ** 2 + step**2 / 12))
    order = np.argsort(-average, kind="stable")
    inside = order[: int(np.searchsorted(np.cumsum(average[order]), CONFIDENCE_LEVEL)) + 1]
    low, high = values[inside.min()] - step / 2, values[inside.max()] + step / 2
    return Rate(mean, se, max(0.0, float(low)), min(1.0, float(high)))


def shrink_to_pooled(pooled: FloatArray, log_values: FloatArray) -> FloatArray:
    """Return the log-posterior of a rare label, with the mean posterior of the other labels as its prior."""
    prior = (1 - UNIFORM_SHARE) * pooled / pooled.sum() + UNIFORM_SHARE / pooled.size
    return np.asarray(log_values + np.log(prior))
