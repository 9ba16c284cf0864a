r"""Model of Dawid and Skene with shrinkage: true labels and error rates of annotators from votes.

Every annotator w has two rates for each label j. Given the true label, votes are independent:

.. math:: P(z_{iwj} = 0 \mid y_{ij} = 1) = \rho^{pos}_{wj}, \qquad P(z_{iwj} = 1 \mid y_{ij} = 0) = \rho^{neg}_{wj}

The rates of a label have a beta prior, whose mean and concentration are estimated from all annotators (empirical
Bayes). The rates of an annotator with few votes are thereby shrunk towards the mean of the label, and the mean of a
label towards the mean of all labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import UNKNOWN_RATE, ZERO_RATE, LabelRates, NoiseType, Rate, unidentified
from ccmn.estimation.trusted import jeffreys_rate
from ccmn.vote_table import VoteTable

MAX_ITERATIONS = 100
"""Iterations of the EM algorithm."""
TOLERANCE = 1e-4
"""Largest change of a posterior probability at which the EM algorithm stops."""
MIN_MEAN_VOTES = 3.0
"""Mean votes per row below which annotator errors and true labels are poorly identified."""
LABEL_PRIOR_VOTES = 2.0
"""Weight of the mean of all labels in the mean of a label, in votes."""
MIN_CONCENTRATION, MAX_CONCENTRATION = 2.0, 200.0
"""Limits of the weight of the mean of a label in the rates of an annotator, in votes."""
MAX_LOG_ODDS = 8.0
"""Limit of the log-odds of a machine's probability: a machine can be certain and wrong."""

MAX_NEWTON_STEP = 0.3
"""Largest change of offset and slope of a calibration in one iteration: full steps overshoot if v is near 0 or 1."""


class Counts(NamedTuple):
    """Expected votes of every annotator on every label, each of shape (a, q)."""

    removed: FloatArray
    """Votes of 0 on true labels."""
    positives: FloatArray
    """Votes on true labels."""
    added: FloatArray
    """Votes of 1 on absent labels."""
    negatives: FloatArray
    """Votes on absent labels."""


class BetaPrior(NamedTuple):
    """Beta prior of a rate of every label: means and concentrations, each of shape (q,)."""

    mean: FloatArray
    concentration: FloatArray

    def parameters(self, events: FloatArray, trials: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return both parameters (a, q) of the beta posterior of the rates."""
        return events + self.concentration * self.mean, trials - events + self.concentration * (1 - self.mean)

    def posterior_mean(self, events: FloatArray, trials: FloatArray) -> FloatArray:
        """Return the mean of the rates (a, q) given the votes."""
        return (events + self.concentration * self.mean) / (trials + self.concentration)


class Calibration(NamedTuple):
    """Log-odds of a true label given a machine's probability v: ``offset + slope * logit(v)``, each (a, q)."""

    offset: FloatArray
    slope: FloatArray


class VoteModel(NamedTuple):
    """Fitted model of votes."""

    posterior: FloatArray
    """Probability that each label is true, (n, q)."""
    rho_pos: FloatArray
    """P(vote 0 | true 1) of every annotator, (a, q)."""
    rho_neg: FloatArray
    """P(vote 1 | true 0) of every annotator, (a, q)."""
    prior: FloatArray
    """Log-odds of the true labels without votes: (q,), or (n, q) if a classifier gave them."""
    calibration: Calibration | None
    """Calibration of annotators that vote by probabilities; None if there are none."""


def dawid_skene(evidence: Evidence) -> list[LabelRates]:
    r"""Estimate the rates of the training labels from votes, with the model of Dawid and Skene [1]_.

    If :math:`\mu_i` is the posterior probability that row i is truly positive,

    .. math:: \rho_{pos} = \frac{\sum_i \mu_i (1 - \tilde y_i)}{\sum_i \mu_i}, \qquad
              \rho_{neg} = \frac{\sum_i (1 - \mu_i)\, \tilde y_i}{\sum_i (1 - \mu_i)} .

    The training labels :math:`\tilde y` may be the votes of one annotator, a majority vote, or the mean votes (soft
    labels), for which these are the mean error rates of the annotators.

    References
    ----------
    .. [1] A. P. Dawid and A. M. Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm",
       Applied Statistics 28(1), 1979.
    """
    votes = evidence.votes
    if votes is None:
        raise ValueError("method='dawid_skene' requires votes of shape (n, annotators, labels)")
    posterior, counts = fit_votes(votes).posterior, votes.count()
    return [
        aggregated_rates(posterior[:, j], counts[:, j], evidence.Y[:, j], label_type)
        for j, label_type in enumerate(evidence.noise_type)
    ]


def aggregated_rates(
    posterior: FloatArray, counts: NDArray[np.int64], noisy: FloatArray, noise_type: NoiseType
) -> LabelRates:
    """Return the rates of one label with training labels (n,) from its posterior and its numbers of votes (n,)."""
    rated = (counts > 0) & ~np.isnan(noisy)
    if not rated.any():
        note = "No row has a vote, so the rates are unknown. Exclude the label or collect votes."
        return unidentified(noise_type, "point", "crowd", note)
    mu, given = posterior[rated], noisy[rated]
    pos = ZERO_RATE if noise_type == "partial" else _weighted_rate(mu, 1 - given)
    neg = ZERO_RATE if noise_type == "missing" else _weighted_rate(1 - mu, given)
    notes = []
    mean_votes = float(counts[rated].mean())
    if mean_votes < MIN_MEAN_VOTES:
        note = (
            f"{mean_votes:.1f} votes per row are fewer than {MIN_MEAN_VOTES:g}: annotator errors and true labels are "
            "poorly identified. Collect more votes for some rows."
        )
        notes.append(("few_votes", note))
    return LabelRates(pos, neg, "point", "crowd", tuple(notes))


def fit_votes(
    table: VoteTable,
    prior: FloatArray | None = None,
    start: FloatArray | None = None,
    max_iterations: int = MAX_ITERATIONS,
) -> VoteModel:
    """Fit the model to votes with the EM algorithm, all labels at the same time.

    Without a classifier, the classes of a label are named so that votes of 1 are more likely for true labels.

    Parameters
    ----------
    table : VoteTable
        The votes.
    prior : array of shape (n, q) or None, default=None
        Log-odds of the true labels given the features. Without them, every label has one prevalence, which is
        estimated.
    start : array of shape (n, q) or None, default=None
        Posterior to start from. By default, the mean votes, shrunk towards the mean of the label by one vote.
    max_iterations : int, default=100
        Largest number of iterations.

    Returns
    -------
    VoteModel
        The fitted model.
    """
    posterior = initial_posterior(table) if start is None else start
    machine = machine_annotators(table)
    calibration = initial_calibration(table) if machine.any() else None
    for _ in range(max_iterations):
        counts = expected_counts(table, posterior)
        rho_pos, rho_neg = shrunk_rates(counts)
        prevalence = scipy.special.logit(np.clip(posterior.mean(0), 1e-6, 1 - 1e-6))
        log_odds = prevalence if prior is None else prior
        if calibration is not None:
            calibration = update_calibration(table, posterior, calibration)
        previous = posterior
        evidence = vote_evidence(table, rho_pos, rho_neg, calibration, prevalence)
        posterior = scipy.special.expit(log_odds + evidence)
        if np.abs(posterior - previous).max() < TOLERANCE:
            break
    if prior is None:
        inverted = ((counts.positives - counts.removed) / np.maximum(counts.positives, 1e-9)).mean(0) < (
            counts.added / np.maximum(counts.negatives, 1e-9)
        ).mean(0)
        posterior = np.where(inverted, 1 - posterior, posterior)
        rho_pos, rho_neg = np.where(inverted, 1 - rho_neg, rho_pos), np.where(inverted, 1 - rho_pos, rho_neg)
        log_odds = np.where(inverted, -log_odds, log_odds)
        if calibration is not None:
            sign = np.where(inverted, -1.0, 1.0)
            calibration = Calibration(sign * calibration.offset, sign * calibration.slope)
    return VoteModel(posterior, rho_pos, rho_neg, log_odds, calibration)


def initial_posterior(table: VoteTable) -> FloatArray:
    """Return the mean votes, shrunk towards the mean of the label by one vote; the mean of the label without votes."""
    counts, mean = table.count(), table.mean()
    total = np.maximum(counts.sum(0), 1)
    label_mean = np.nansum(np.where(counts > 0, mean * counts, 0), 0) / total
    return np.asarray((np.where(counts > 0, mean * counts, 0) + label_mean) / (counts + 1))


def expected_counts(table: VoteTable, posterior: FloatArray) -> Counts:
    """Return the expected votes of every annotator given the posterior of the true labels (n, q)."""
    _, a, q = table.shape
    pair, value, mu = table.pair, table.value, posterior.ravel()[table.cell]
    weights = (mu * (1 - value), mu, (1 - mu) * value, 1 - mu)
    return Counts(*(_totals(pair, weight, (a, q)) for weight in weights))


def shrunk_rates(counts: Counts) -> tuple[FloatArray, FloatArray]:
    """Return both rates (a, q) of all annotators, shrunk towards the mean of the label."""
    pos, neg = rate_prior(counts.removed, counts.positives), rate_prior(counts.added, counts.negatives)
    return pos.posterior_mean(counts.removed, counts.positives), neg.posterior_mean(counts.added, counts.negatives)


def rate_prior(events: FloatArray, trials: FloatArray) -> BetaPrior:
    r"""Return the beta prior of a rate of every label from the votes of all annotators, by the method of moments.

    For :math:`k_w` events in :math:`m_w` trials, beta-binomial counts with mean g and concentration s satisfy

    .. math:: E \sum_w \frac{(k_w - m_w g)^2}{m_w} = g (1 - g) \sum_w \left(1 + \frac{m_w - 1}{s + 1}\right)

    which is solved for s. Annotators with less than one expected trial are left out.
    """
    overall = (events.sum() + 1) / (trials.sum() + 2)
    mean = (events.sum(0) + LABEL_PRIOR_VOTES * overall) / (trials.sum(0) + LABEL_PRIOR_VOTES)
    used = trials >= 1
    squares = np.where(used, (events - trials * mean) ** 2 / np.maximum(trials, 1), 0).sum(0)
    excess = squares / (mean * (1 - mean)) - used.sum(0)
    room = np.where(used, trials - 1, 0).sum(0)
    correlation = np.where(room > 0, excess / np.maximum(room, 1e-9), 0)
    limits = 1 / (MAX_CONCENTRATION + 1), 1 / (MIN_CONCENTRATION + 1)
    return BetaPrior(mean, 1 / np.clip(correlation, *limits) - 1)


def vote_evidence(
    table: VoteTable,
    rho_pos: FloatArray,
    rho_neg: FloatArray,
    calibration: Calibration | None = None,
    prevalence: FloatArray | None = None,
) -> FloatArray:
    """Return the log-likelihood ratios (n, q) of the votes on every label: true against absent.

    The evidence of a machine's probability is its calibrated log-odds minus those of the prevalence (q,).
    """
    n, _, q = table.shape
    evidence = votes_log_ratio(table, rho_pos, rho_neg)
    if calibration is not None and prevalence is not None:
        pair = table.pair
        graded = machine_annotators(table)[table.annotator]
        log_odds = calibration.offset.ravel()[pair] + calibration.slope.ravel()[pair] * vote_log_odds(table)
        evidence = np.where(graded, log_odds - prevalence[table.label], evidence)
    return _totals(table.cell, evidence, (n, q))


def votes_log_ratio(table: VoteTable, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    """Return the log-likelihood ratio of every single vote, interpolated between those of 0 and 1."""
    pair = table.pair
    for_one, for_zero = np.log((1 - rho_pos) / rho_neg).ravel()[pair], np.log(rho_pos / (1 - rho_neg)).ravel()[pair]
    return np.asarray(for_zero + table.value * (for_one - for_zero))


def machine_annotators(table: VoteTable) -> NDArray[np.bool_]:
    """Return whether each annotator votes by probabilities, (a,)."""
    graded = (table.value > 0) & (table.value < 1)
    return np.bincount(table.annotator[graded], minlength=table.shape[1]) > 0


def vote_log_odds(table: VoteTable) -> FloatArray:
    """Return the log-odds of every vote, limited to ``MAX_LOG_ODDS``."""
    low = scipy.special.expit(-MAX_LOG_ODDS)
    return np.asarray(scipy.special.logit(np.clip(table.value, low, 1 - low)))


def initial_calibration(table: VoteTable) -> Calibration:
    """Return the calibration of probabilities that are used as given."""
    return Calibration(np.zeros(table.shape[1:]), np.ones(table.shape[1:]))


def update_calibration(table: VoteTable, posterior: FloatArray, calibration: Calibration) -> Calibration:
    """Return the calibration after a Newton step of the penalized logistic regression of true labels on log-odds.

    Offset and slope have normal priors with means 0 and 1 and variance 1 (Platt scaling with shrinkage).
    """
    _, a, q = table.shape
    pair, x, mu = table.pair, vote_log_odds(table), posterior.ravel()[table.cell]
    fitted = scipy.special.expit(calibration.offset.ravel()[pair] + calibration.slope.ravel()[pair] * x)
    residual, weight = mu - fitted, fitted * (1 - fitted)

    def total(values: FloatArray) -> FloatArray:
        return _totals(pair, values, (a, q))

    gradient = total(residual) - calibration.offset, total(residual * x) - (calibration.slope - 1)
    curvature = total(weight) + 1, total(weight * x), total(weight * x * x) + 1
    determinant = curvature[0] * curvature[2] - curvature[1] ** 2
    steps = (
        (curvature[2] * gradient[0] - curvature[1] * gradient[1]) / determinant,
        (curvature[0] * gradient[1] - curvature[1] * gradient[0]) / determinant,
    )
    offset, slope = (np.clip(step, -MAX_NEWTON_STEP, MAX_NEWTON_STEP) for step in steps)
    return Calibration(calibration.offset + offset, calibration.slope + slope)


def _totals(index: NDArray[np.intp], values: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Return the sums of values by their index in a flattened array of this shape."""
    return np.asarray(np.bincount(index, values, shape[0] * shape[1]).reshape(shape), dtype=np.float64)


def _weighted_rate(weight: FloatArray, wrong: FloatArray) -> Rate:
    """Return the weighted share of wrong labels, with the interval of as many rows as the weights sum to."""
    total = float(weight.sum())
    rate = jeffreys_rate(float(weight @ wrong), round(total))
    return rate if rate == UNKNOWN_RATE else rate._replace(value=float(weight @ wrong) / total)
