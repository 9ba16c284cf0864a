r"""Model of votes: true labels, difficulty of rows, and error rates of annotators.

The model of Dawid and Skene has one class of true and one class of absent labels, and votes are independent in each of
them. Votes of people are not: they disagree on the same difficult rows, which the model takes for a class of its own.
It then calls every label true that some annotators gave. Here each label of a row has a level g, and an annotator w

.. math:: P(z_{iwj} = 1 \mid g) = \sigma(b_{wj} + s_{wj}\, g), \qquad \sum_w n_{wj} b_{wj} = 0,

so that a typical annotator gives the label with probability :math:`\sigma(g)`. The label is true if g > 0: most
annotators would give it. The shares of the levels are estimated for every label (two levels are the model of Dawid and
Skene). The slopes and shifts of an annotator have normal priors around the means of the annotator over all labels, and
these means have normal priors around 1 and 0. Annotators without evidence are thereby equal, and the majority decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
import scipy.special
from sklearn.linear_model import LogisticRegression

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import MIN_SIGNAL, NoiseRates, flag_labels, implied_prevalence
from ccmn.estimation.posterior import UNKNOWN_RATE, Rate, jeffreys_rate
from ccmn.noise.class_conditional import limit_rate_sums
from ccmn.vote_table import VoteTable

LEVELS = np.linspace(-5, 5, 10)
"""Levels g: log-odds that a typical annotator gives the label."""
LEVEL_COUNT = 0.3
"""Rows that the prior adds to every level."""
PRIOR_MEAN, PRIOR_VARIANCE = np.array([0.0, 1.0]), np.array([1.0, 0.1])
"""Mean and variance of the normal priors of shift and slope."""
MAX_STEP = 0.5
"""Largest change of shift and slope in one iteration, because full Newton steps can overshoot."""
MAX_ITERATIONS, TOLERANCE = 100, 2e-4
"""Iterations of the EM algorithm, and mean change of the posterior probabilities at which it stops."""
MAX_LOG_ODDS = 8.0
"""Limit of the log-odds of a machine's probability: a machine can be certain and wrong."""
MIN_MEAN_VOTES = 3.0
"""Mean votes per row below which annotator errors and true labels are poorly identified."""

IS_TRUE = LEVELS > 0
_BASIS = np.stack((np.ones_like(LEVELS), LEVELS))


class VoteModel(NamedTuple):
    """Fitted model of votes.

    ``posterior`` (n, q) are the probabilities of the true labels, ``shares`` (q, levels) those of the levels,
    ``skills`` (a, q, 2) shift and slope of every annotator, and ``prior`` (n, q) log-odds given the features.
    """

    posterior: FloatArray
    shares: FloatArray
    skills: FloatArray
    prior: FloatArray | None


def error_rates(shares: FloatArray, skills: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the rates P(vote 0 | true) and P(vote 1 | absent) of annotators, averaged over the levels, each (a, q)."""
    vote = scipy.special.expit(skills @ _BASIS)
    pos, neg = shares * IS_TRUE, shares * ~IS_TRUE
    return 1 - (vote * pos).sum(-1) / pos.sum(-1), (vote * neg).sum(-1) / neg.sum(-1)


def dawid_skene(evidence: Evidence) -> NoiseRates:
    r"""Estimate the rates of the training labels from votes, with the model of Dawid and Skene.

    If :math:`\mu_i` is the posterior probability that row i is truly positive,

    .. math:: \rho_{pos} = \frac{\sum_i \mu_i (1 - \tilde y_i)}{\sum_i \mu_i}, \qquad
              \rho_{neg} = \frac{\sum_i (1 - \mu_i)\, \tilde y_i}{\sum_i (1 - \mu_i)} .

    The training labels :math:`\tilde y` may be the votes of one annotator, a majority vote, or the mean votes (soft
    labels), for which these are the mean error rates of the annotators.
    """
    votes, Y = evidence.votes, evidence.Y
    assert votes is not None
    posterior, counts = fit_votes(calibrate_machines(votes)).posterior, votes.count()
    rated, types = (counts > 0) & ~np.isnan(Y), np.array(evidence.noise_type)
    pos, neg = np.zeros((2, Y.shape[1], 4))
    for j, rows in enumerate(rated.T):
        mu, given = posterior[rows, j], Y[rows, j]
        pos[j], neg[j] = _weighted_rate(mu, 1 - given), _weighted_rate(1 - mu, given)
    pos[types == "partial"] = neg[types == "missing"] = 0
    mean_votes = np.where(rated, counts, 0).sum(0) / np.maximum(rated.sum(0), 1)
    note = "No row has a vote, so the rates are unknown. Exclude the label or collect votes."
    flags = flag_labels("unidentified", mean_votes == 0, note)
    note = (
        f"Fewer than {MIN_MEAN_VOTES:g} votes per row: annotator errors and true labels are poorly identified. "
        "Collect more votes for some rows."
    )
    flags += flag_labels("few_votes", (mean_votes > 0) & (mean_votes < MIN_MEAN_VOTES), note)
    rho_pos, rho_neg = limit_rate_sums(pos[:, 0], neg[:, 0], 1 - MIN_SIGNAL)
    return NoiseRates(
        rho_pos=rho_pos,
        rho_neg=rho_neg,
        se_pos=pos[:, 1],
        se_neg=neg[:, 1],
        ci_pos=pos[:, 2:],
        ci_neg=neg[:, 2:],
        prior=implied_prevalence(Y, rho_pos, rho_neg),
        noise_type=tuple(evidence.noise_type),
        n_pos=(Y > 0.5).sum(0),  # soft labels (mean votes) count as positive above 1/2
        n_neg=(Y <= 0.5).sum(0),
        flags=tuple(flags),
        label_names=None if evidence.names is None else tuple(evidence.names),
    )


class VoteDesign:
    """Votes as a sparse matrix: one row per label with votes, two columns (votes 0 and 1) per annotator and label."""

    def __init__(self, table: VoteTable) -> None:
        self.n, self.a, self.q = table.shape
        self.cells, row = np.unique(table.cell, return_inverse=True)
        self.pairs, pair = np.unique(table.pair, return_inverse=True)
        entries = np.concatenate((1 - table.value, table.value)).astype(np.float32)  # half the time of float64
        used = entries > 0
        index = np.tile(row, 2)[used], np.concatenate((2 * pair, 2 * pair + 1))[used]
        self.votes = scipy.sparse.csr_array((entries[used], index), shape=(self.cells.size, 2 * self.pairs.size))
        self.cell_label, self.pair_label = self.cells % self.q, self.pairs % self.q
        self.pair_votes = np.bincount(pair, minlength=self.pairs.size)

    def count_levels(self, levels: FloatArray) -> FloatArray:
        """Return the expected rows of every level of every label, (q, levels), with those of the prior."""
        columns = np.ascontiguousarray(levels.T)
        counts = [np.bincount(self.cell_label, column, self.q) for column in columns]
        return np.asarray(np.stack(counts, 1) + LEVEL_COUNT)

    def levels(self, shares: FloatArray, skills: FloatArray, prior: FloatArray | None) -> FloatArray:
        """Return the posterior of the levels of every label with votes (E step)."""
        scores = skills @ _BASIS
        log_vote = -np.logaddexp(0, np.stack((scores, -scores), 1)).reshape(-1, LEVELS.size)
        log_odds = self.votes @ log_vote.astype(np.float32) + np.log(shares).astype(np.float32)[self.cell_label]
        if prior is not None:
            share = (shares * IS_TRUE).sum(1)
            shift = prior.ravel()[self.cells] - scipy.special.logit(share)[self.cell_label]
            log_odds[:, IS_TRUE] += shift.astype(np.float32)[:, None]
        largest = log_odds[:, 0].copy()
        for column in log_odds.T[1:]:  # faster than the maximum over short rows
            np.maximum(largest, column, out=largest)
        odds = np.exp(log_odds - largest[:, None])
        odds /= (odds @ np.ones(LEVELS.size, dtype=np.float32))[:, None]
        return np.asarray(odds)

    def update_skills(self, levels: FloatArray, skills: FloatArray, means: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return shifts and slopes after a Newton step, and their posterior covariances."""
        counts = np.asarray(self.votes.T @ levels, dtype=np.float64)
        zeros, ones = counts[::2], counts[1::2]
        vote = scipy.special.expit(skills @ _BASIS)
        residual, weight = ones - (zeros + ones) * vote, (zeros + ones) * vote * (1 - vote)
        gradient = residual @ _BASIS.T - (skills - means[self.pairs // self.q]) / PRIOR_VARIANCE
        curvature = np.tensordot(weight, _BASIS[:, None] * _BASIS, (1, 2)) + np.diag(1 / PRIOR_VARIANCE)
        covariance = np.asarray(np.linalg.inv(curvature))
        step = (covariance @ gradient[..., None])[..., 0]
        return skills + np.clip(step, -MAX_STEP, MAX_STEP), covariance

    def center(self, skills: FloatArray) -> FloatArray:
        """Return the skills with a mean shift of zero over the votes on every label."""
        total, votes = (
            np.bincount(self.pair_label, weights, self.q)
            for weights in (self.pair_votes * skills[:, 0], self.pair_votes)
        )
        shift = total / np.maximum(votes, 1)
        return skills - shift[self.pair_label, None] * [1, 0]

    def annotator_means(self, skills: FloatArray) -> FloatArray:
        """Return the mean skills of every annotator over all labels, shrunk by one label with the prior mean."""
        annotator = self.pairs // self.q
        total = np.stack([np.bincount(annotator, column, self.a) for column in skills.T], 1)
        return np.asarray((total + PRIOR_MEAN) / (np.bincount(annotator, minlength=self.a)[:, None] + 1))

    def all_skills(self, skills: FloatArray, means: FloatArray) -> FloatArray:
        """Return the skills (a, q, 2); annotators without votes on a label have their means."""
        every = np.repeat(means, self.q, 0)
        every[self.pairs] = skills
        return every.reshape(self.a, self.q, 2)


def fit_votes(table: VoteTable, prior: FloatArray | None = None, max_iterations: int = MAX_ITERATIONS) -> VoteModel:
    """Fit the model to votes with the EM algorithm, all labels at the same time.

    Probabilities of machines count as fractions of votes. ``prior`` are log-odds (n, q) of the true labels given the
    features; without them, the shares of the levels are the prior.
    """
    design = VoteDesign(table)
    start = np.exp(-((np.abs(LEVELS) - 3) ** 2) / 2)  # clear labels
    shares = np.tile(start / start.sum(), (design.q, 1))
    means = np.tile(PRIOR_MEAN, (design.a, 1))
    skills = means[design.pairs // design.q]
    true = np.zeros(design.cells.size)
    for _ in range(max_iterations):
        levels = design.levels(shares, skills, prior)
        previous, true = true, levels @ IS_TRUE
        if np.abs(true - previous).mean() < TOLERANCE:
            break
        counts = design.count_levels(levels)
        shares = counts / counts.sum(1, keepdims=True)
        skills = design.center(design.update_skills(levels, skills, means)[0])
        means = design.annotator_means(skills)
    share = (shares * IS_TRUE).sum(1)
    posterior = np.tile(share, design.n) if prior is None else scipy.special.expit(prior.ravel())
    posterior[design.cells] = true
    return VoteModel(posterior.reshape(design.n, design.q), shares, design.all_skills(skills, means), prior)


def calibrate_machines(table: VoteTable) -> VoteTable:
    """Return the votes with the probabilities of machines calibrated against the labels that people infer.

    A logistic regression on the log-odds of each machine replaces its probabilities (Platt scaling). Without people,
    the probabilities are kept.
    """
    graded = (table.value > 0) & (table.value < 1)
    machine = np.bincount(table.annotator[graded], minlength=table.shape[1])[table.annotator] > 0
    if machine.all() or not machine.any():
        return table
    people = table.select(~machine)
    known, target = people.count().ravel()[table.cell] > 0, fit_votes(people).posterior.ravel()[table.cell]
    margin = scipy.special.expit(-MAX_LOG_ODDS)
    log_odds = scipy.special.logit(np.clip(table.value, margin, 1 - margin))[:, None]
    value = table.value.copy()
    for pair in np.unique(table.pair[machine]):
        votes = table.pair == pair
        rows = votes & known
        if rows.any():
            features, true = np.tile(log_odds[rows], (2, 1)), np.repeat((1, 0), rows.sum())
            weights = np.concatenate((target[rows], 1 - target[rows]))
            value[votes] = LogisticRegression().fit(features, true, weights).predict_proba(log_odds[votes])[:, 1]
    return VoteTable(table.row, table.annotator, table.label, value, table.shape)


def _weighted_rate(weight: FloatArray, wrong: FloatArray) -> Rate:
    """Return the weighted share of wrong labels, with the interval of as many rows as the weights sum to."""
    total, errors = float(weight.sum()), float(weight @ wrong)
    rate = jeffreys_rate(errors, round(total))
    return rate if rate == UNKNOWN_RATE else rate._replace(value=errors / total)
