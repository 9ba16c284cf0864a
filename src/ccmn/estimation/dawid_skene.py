"""Rates from the votes of several annotators with the model of Dawid and Skene."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import UNKNOWN_RATE, ZERO_RATE, LabelRates, NoiseType, Rate, unidentified
from ccmn.estimation.trusted import jeffreys_rate

MAX_ITERATIONS = 100
"""Iterations of the EM algorithm."""
TOLERANCE = 1e-6
"""Change of the log-likelihood at which the EM algorithm stops."""
MIN_MEAN_VOTES = 3.0
"""Mean votes per row below which annotator errors and true labels are poorly identified."""


class DawidSkene(NamedTuple):
    """Fitted model of the votes on one label."""

    posterior: FloatArray
    """Probability that each row is truly positive, (n,)."""
    true_positive_rate: FloatArray
    """P(vote 1 | true 1) of every annotator, (a,)."""
    false_positive_rate: FloatArray
    """P(vote 1 | true 0) of every annotator, (a,)."""
    prior: float
    """Prevalence of the true label."""


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
    votes = evidence.annotators
    if votes is None:
        raise ValueError("method='dawid_skene' requires annotators, the votes of shape (n, annotators, labels)")
    return [
        votes_label(votes[:, :, j], evidence.Y[:, j], label_type) for j, label_type in enumerate(evidence.noise_type)
    ]


def votes_label(votes: FloatArray, noisy: FloatArray, noise_type: NoiseType) -> LabelRates:
    """Return the rates of one label from its votes (n, a) and training labels (n,)."""
    rated = (~np.isnan(votes)).any(1) & ~np.isnan(noisy)
    if not rated.any():
        note = "No row has a vote, so the rates are unknown. Exclude the label or collect votes."
        return unidentified(noise_type, "point", "crowd", note)
    posterior = fit_dawid_skene(votes[rated]).posterior
    given = noisy[rated]
    pos = ZERO_RATE if noise_type == "partial" else _weighted_rate(posterior, 1 - given)
    neg = ZERO_RATE if noise_type == "missing" else _weighted_rate(1 - posterior, given)
    notes = []
    mean_votes = float((~np.isnan(votes[rated])).sum(1).mean())
    if mean_votes < MIN_MEAN_VOTES:
        note = (
            f"{mean_votes:.1f} votes per row are fewer than {MIN_MEAN_VOTES:g}: annotator errors and true labels are "
            "poorly identified. Collect more votes for some rows."
        )
        notes.append(("few_votes", note))
    return LabelRates(pos, neg, "point", "crowd", tuple(notes))


def fit_dawid_skene(votes: FloatArray) -> DawidSkene:
    r"""Fit the model of Dawid and Skene to the votes on one label with the EM algorithm.

    .. math:: \mu_i \propto \pi \prod_w \alpha_w^{z_{iw}} (1 - \alpha_w)^{1 - z_{iw}}
        \quad\text{against}\quad (1 - \pi) \prod_w \beta_w^{z_{iw}} (1 - \beta_w)^{1 - z_{iw}}

    The posterior starts at the share of positive votes of each row. True-positive rates :math:`\alpha_w` and
    false-positive rates :math:`\beta_w` are smoothed by one vote for either value. The classes are named so that the
    mean :math:`\alpha_w` is not smaller than the mean :math:`\beta_w`.

    Parameters
    ----------
    votes : array of shape (n, a)
        0, 1 or NaN; at least one vote per row.

    Returns
    -------
    DawidSkene
        The fitted model.
    """
    given = ~np.isnan(votes)
    ones, zeros = np.where(given, votes, 0.0), np.where(given, 1 - votes, 0.0)
    posterior = ones.sum(1) / given.sum(1)
    previous = -np.inf
    for _ in range(MAX_ITERATIONS):
        prior = float(np.clip(posterior.mean(), 1e-6, 1 - 1e-6))
        tpr = (posterior @ ones + 1) / (posterior @ given + 2)
        fpr = ((1 - posterior) @ ones + 1) / ((1 - posterior) @ given + 2)
        positive = np.log(prior) + ones @ np.log(tpr) + zeros @ np.log1p(-tpr)
        negative = np.log1p(-prior) + ones @ np.log(fpr) + zeros @ np.log1p(-fpr)
        posterior = scipy.special.expit(positive - negative)
        value = float(np.logaddexp(positive, negative).sum())
        if abs(value - previous) < TOLERANCE:
            break
        previous = value
    if tpr.mean() < fpr.mean():
        return DawidSkene(1 - posterior, fpr, tpr, 1 - prior)
    return DawidSkene(posterior, tpr, fpr, prior)


def _weighted_rate(weight: FloatArray, wrong: FloatArray) -> Rate:
    """Return the weighted share of wrong labels, with the interval of as many rows as the weights sum to."""
    total = float(weight.sum())
    rate = jeffreys_rate(float(weight @ wrong), round(total))
    return rate if rate == UNKNOWN_RATE else rate._replace(value=float(weight @ wrong) / total)
