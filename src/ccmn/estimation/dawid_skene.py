"""Several annotators (section 8.4): their error rates and the true labels explain each other, label by label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import NEVER, UNINFORMED, LabelRates, Rate, Side
from ccmn.estimation.trusted import count_interval

MOST_ROUNDS = 100
TOLERANCE = 1e-6
FEWEST_VOTES = 3.0
"""Votes on a row, on average, below which annotators and truth cannot be told apart."""


class Crowd(NamedTuple):
    """What votes say: posterior of the truth (n,), hit rates and false alarms of annotators (a,), prevalence."""

    truth: FloatArray
    hits: FloatArray
    alarms: FloatArray
    prior: float


def dawid_skene(evidence: Evidence) -> list[LabelRates]:
    r"""Rates of the labels handed to training, from votes whose annotators' own rates are estimated.

    With :math:`\mu_i` the posterior that row i is truly positive,

    .. math:: \rho_{pos} = \frac{\sum_i \mu_i (1 - \tilde y_i)}{\sum_i \mu_i}, \qquad
              \rho_{neg} = \frac{\sum_i (1 - \mu_i)\, \tilde y_i}{\sum_i (1 - \mu_i)} .

    :math:`\tilde y` may be one annotator's labels, a majority, or the mean vote, a soft label: whatever is worked out
    from the votes. (For the mean vote these are 1 minus the mean hit rate, and the mean rate of false alarms.)
    """
    if evidence.annotators is None:
        raise ValueError("method='dawid_skene' needs annotators=, the votes, an array (n, annotators, labels)")
    votes = evidence.annotators
    return [crowd_label(votes[:, :, j], evidence.Y[:, j], side) for j, side in enumerate(evidence.sides)]


def crowd_label(votes: FloatArray, noisy: FloatArray, side: Side) -> LabelRates:
    """One label: votes (n, a), and the labels handed to training (n,)."""
    judged = (~np.isnan(votes)).any(1) & ~np.isnan(noisy)
    if not judged.any():
        unknown = (("unidentified", "no row was judged by any annotator"),)
        return LabelRates(
            NEVER if side == "partial" else UNINFORMED,
            NEVER if side == "missing" else UNINFORMED,
            "point",
            "crowd",
            unknown,
        )
    truth = explain_votes(votes[judged]).truth
    given = noisy[judged]
    pos = _rate(truth, 1 - given) if side != "partial" else NEVER
    neg = _rate(1 - truth, given) if side != "missing" else NEVER
    notes = []
    mean_votes = float((~np.isnan(votes[judged])).sum(1).mean())
    if mean_votes < FEWEST_VOTES:
        note = f"{mean_votes:.1f} votes a row are few: with fewer than {FEWEST_VOTES:g} the truth is hardly told"
        notes.append(("few_votes", note))
    return LabelRates(pos, neg, "point", "crowd", tuple(notes))


def explain_votes(votes: FloatArray) -> Crowd:
    r"""Dawid and Skene's EM for one label.

    .. math:: \mu_i \propto \pi \prod_w \alpha_w^{z_{iw}} (1 - \alpha_w)^{1 - z_{iw}}
        \quad\text{against}\quad (1 - \pi) \prod_w \beta_w^{z_{iw}} (1 - \beta_w)^{1 - z_{iw}}

    from the share of ones among a row's votes on; hit rates :math:`\alpha_w` and false alarms :math:`\beta_w` are
    smoothed by one vote each way, over the rows that w judged. Classes are named so that hits outnumber alarms.

    Parameters
    ----------
    votes : (n, a)
        0, 1 or NaN; at least one vote a row.
    """
    given = ~np.isnan(votes)
    ones, zeros = np.where(given, votes, 0.0), np.where(given, 1 - votes, 0.0)
    truth = ones.sum(1) / given.sum(1)
    previous = -np.inf
    for _ in range(MOST_ROUNDS):
        prior = float(np.clip(truth.mean(), 1e-6, 1 - 1e-6))
        hits = (truth @ ones + 1) / (truth @ given + 2)
        alarms = ((1 - truth) @ ones + 1) / ((1 - truth) @ given + 2)
        positive = np.log(prior) + ones @ np.log(hits) + zeros @ np.log1p(-hits)
        negative = np.log1p(-prior) + ones @ np.log(alarms) + zeros @ np.log1p(-alarms)
        truth = scipy.special.expit(positive - negative)
        value = float(np.logaddexp(positive, negative).sum())
        if abs(value - previous) < TOLERANCE:
            break
        previous = value
    if hits.mean() < alarms.mean():
        return Crowd(1 - truth, alarms, hits, 1 - prior)
    return Crowd(truth, hits, alarms, prior)


def _rate(weight: FloatArray, wrong: FloatArray) -> Rate:
    """A share counted with weights: the interval is that of as many rows as the weights sum to."""
    many = float(weight.sum())
    counted = count_interval(float(weight @ wrong), round(many))
    return counted if counted == UNINFORMED else counted._replace(value=float(weight @ wrong) / many)
