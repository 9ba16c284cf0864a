"""One posterior of a label's two rates from whatever is known: likelihood, trusted rows, prevalence, other labels.

Cross-validated profile likelihood with the other labels as evidence (sections 16 and 17): the default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.special

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.likelihood import FEWEST, GRIDS, Grid, shares
from ccmn.estimation.noise_rates import LEVEL, NEVER, UNINFORMED, LabelRates, Rate, Side

CAUTION = 2.5
"""Held-out likelihoods are divided by this: models that share rows, and shapes that are never quite right, make them
surer than they should be. With it intervals cover what they claim to on real data (benchmarks/noise_rates.py)."""
LEAST_EXPLAINED = 0.02
"""Shares of a label that are explained less than this are taken for this."""
FEWEST_POSITIVES = 0.01
"""Shares of true positives below this are as likely as this one."""
_EDGE = 1e-3


class Counts(NamedTuple):
    """Trusted rows of one label: true positives and how many of them were lost, negatives and how many were added."""

    positives: int
    lost: int
    negatives: int
    added: int


def log_posterior(
    surface: FloatArray,
    grid: Grid,
    observed: float,
    counts: Counts | None = None,
    prevalence: float | None = None,
    rows: float = math.inf,
    caution: float = CAUTION,
) -> FloatArray:
    r"""Log-posterior (A, B) over the grid, up to a constant, all shares of true positives alike beforehand.

    .. math:: \frac{\ell(\rho)}{c} + k_{pos} \log \rho_{pos} + (n_{pos} - k_{pos}) \log (1 - \rho_{pos}) + \dots
        + w\, (n_{pos} \log \pi + n_{neg} \log (1 - \pi))

    with :math:`\pi = (\tilde p - \rho_{neg}) / r` the share of true positives that goes with the rates. First the
    held-out likelihood, divided by a ``caution`` c (:func:`caution_with`), then trusted rows: flips are counted, and so
    are true positives, which say as much again, since the observed prevalence is known; not quite, where it is that of
    few ``rows``, hence w (:func:`share_weight`). A known prevalence is a further term, within a hundredth.
    """
    prior = grid.prior(observed)
    result = surface / caution
    if counts is not None:
        result = result + flips(counts, grid) + share_weight(counts, observed, rows) * positives(counts, prior)
    if prevalence is not None:
        result = result - 0.5 * ((prior - prevalence) / 0.01) ** 2
    return np.asarray(np.where(np.isfinite(surface), result, -np.inf))


def caution_with(side: Side, scores: FloatArray, noisy: FloatArray) -> float:
    r"""What to divide a label's held-out likelihood by: 2.5, or more where lost labels are judged by a weak model.

    .. math:: c = \max(2.5,\, 1 / D), \qquad D = E[\hat g \mid \tilde y = 1] - E[\hat g \mid \tilde y = 0]

    D is the share of the noisy label that held-out probabilities :math:`\hat g` explain (Tjur's). Where labels are only
    lost, their rate is known by how high :math:`P(\tilde y = 1 \mid x) \le 1 - \rho_{pos}` reaches. A weak model never
    gets there, and where it levels off is a matter of its shape more than of lost labels.
    """
    positive, negative = scores[noisy == 1], scores[noisy == 0]
    if side != "missing" or not positive.size or not negative.size:
        return CAUTION
    explained = float(positive.mean() - negative.mean())
    return max(CAUTION, 1 / max(explained, LEAST_EXPLAINED))


def flips(counts: Counts, grid: Grid) -> FloatArray:
    """Binomial log-likelihood (A, B) of the flips among trusted rows."""
    pos, neg = (np.clip(side, _EDGE, 1 - _EDGE) for side in grid.pairs)
    lost = counts.lost * np.log(pos) + (counts.positives - counts.lost) * np.log1p(-pos)
    return np.asarray(lost + counts.added * np.log(neg) + (counts.negatives - counts.added) * np.log1p(-neg))


def positives(counts: Counts, prior: FloatArray) -> FloatArray:
    """Binomial log-likelihood of the true positives among trusted rows, at shares ``prior``."""
    share = np.clip(prior, _EDGE, 1 - _EDGE)
    return np.asarray(counts.positives * np.log(share) + counts.negatives * np.log1p(-share))


def share_weight(counts: Counts, observed: float, rows: float) -> float:
    r"""How much of the spread between the trusted and the implied share of positives is the trusted rows' own.

    .. math:: w = \frac{v}{v + \tilde p (1 - \tilde p) / (n r^2)}, \qquad v = \frac{\pi (1 - \pi)}{m}

    with m trusted rows among n, and :math:`\pi`, r as counted on them.
    """
    many = counts.positives + counts.negatives
    share = (counts.positives + 0.5) / (many + 1)
    lost, added = (counts.lost + 0.5) / (counts.positives + 1), (counts.added + 0.5) / (counts.negatives + 1)
    own = share * (1 - share) / max(many, 1)
    return own / (own + observed * (1 - observed) / (rows * max(1 - lost - added, 0.2) ** 2))


def rare(grid: Grid, observed: float) -> FloatArray:
    r"""Log-prior (A, B): most labels of a multi-label problem are rare, :math:`(1 - \pi) / \pi`."""
    shown = np.clip(grid.prior(observed), FEWEST_POSITIVES, 1 - FEWEST_POSITIVES)
    return np.asarray(np.log1p(-shown) - np.log(shown))


def weights(log_values: FloatArray) -> FloatArray:
    """The posterior itself, (A, B), summing to 1."""
    return np.asarray(np.exp(log_values - scipy.special.logsumexp(log_values)))


def rates_of(log_values: FloatArray, grid: Grid, observed: float) -> tuple[Rate, Rate]:
    """(rho_pos, rho_neg): the mean if labels are rare; deviation and interval whether they are or not.

    The prior is a good guess and no more: where it matters, the interval must say so. So the interval is the shortest
    that holds 90 % of the mean of two posteriors, with it and without.
    """
    guess = weights(log_values + rare(grid, observed))
    open_minded = (guess + weights(log_values)) / 2
    pos, neg = (
        _rate(guess.sum(axis), open_minded.sum(axis), values) for axis, values in ((1, grid.pos), (0, grid.neg))
    )
    return pos, neg


def _rate(guess: FloatArray, marginal: FloatArray, values: FloatArray) -> Rate:
    if values.size == 1:
        return NEVER
    step = float(values[1] - values[0])
    mean = float(guess @ values)
    # Within a cell of the grid nothing is known.
    se = float(np.sqrt(marginal @ (values - mean) ** 2 + step**2 / 12))
    order = np.argsort(-marginal, kind="stable")
    held = order[: int(np.searchsorted(np.cumsum(marginal[order]), LEVEL)) + 1]
    low, high = values[held.min()] - step / 2, values[held.max()] + step / 2
    return Rate(mean, se, max(0.0, float(low)), min(1.0, float(high)))


def like_others(posterior_of_others: FloatArray, log_values: FloatArray) -> FloatArray:
    """The log-posterior of a label that is too rare to speak for itself: the mean of the others' is its prior.

    A twentieth of the prior is spread evenly, so that a label may differ from all others where it must.
    """
    prior = 0.95 * posterior_of_others / posterior_of_others.sum() + 0.05 / posterior_of_others.size
    return np.asarray(log_values + np.log(prior))


def profile(evidence: Evidence) -> list[LabelRates]:
    """Rates at which a corrected logistic model explains the noisy labels of rows it has not seen best.

    See :func:`ccmn.estimation.likelihood.surface` for the likelihood and :func:`ccmn.estimation.profile.log_posterior`
    for what is made of it. No row need be certain of its label; what is assumed instead is a shape: the posterior of
    the true label is logistic along some direction of the features. Labels with fewer than 20 observed rows of their
    rarer class lean on the others (flag ``shrunk``).
    """
    if evidence.pred_proba is not None:
        raise ValueError("method='profile' fits models of its own: give the features X in place of pred_proba")
    return profile_labels(evidence, [None] * evidence.Y.shape[1])


def profile_labels(evidence: Evidence, counts: Sequence[Counts | None], blind: Sequence[int] = ()) -> list[LabelRates]:
    """Posterior rates of every label; the labels in ``blind`` are judged by their counts, not by their likelihood."""
    log_values = [_log_posterior(evidence, j, counts[j], j in blind) for j in range(len(evidence.sides))]
    rarer = np.minimum((evidence.Y == 1).sum(0), (evidence.Y == 0).sum(0))
    informed = rarer >= FEWEST
    result = []
    for j, side in enumerate(evidence.sides):
        alike = [k for k in np.flatnonzero(informed).tolist() if evidence.sides[k] == side]
        if informed[j] or (len(alike) < 2 and (rarer[j] or counts[j] is not None)):
            result.append(_label(evidence, j, log_values[j], counts[j]))
        elif len(alike) < 2:
            result.append(_unidentified(evidence, j))
        else:
            grid = GRIDS[side]
            others = np.mean([weights(log_values[k] + rare(grid, _observed(evidence, k))) for k in alike], 0)
            label = _label(evidence, j, like_others(others, log_values[j]), counts[j])
            note = f"{int(rarer[j])} observed rows of the rarer class are too few: the rates lean on the other labels"
            result.append(label._replace(notes=(*label.notes, ("shrunk", note))))
    return result


def _log_posterior(evidence: Evidence, j: int, counts: Counts | None, blind: bool) -> FloatArray:
    grid, observed = GRIDS[evidence.sides[j]], _observed(evidence, j)
    surface = evidence.surfaces.values[j]
    if blind:
        surface = np.where(np.isfinite(surface), 0.0, surface)
    known = None if evidence.prevalence is None else float(evidence.prevalence[j])
    rows = int((~np.isnan(evidence.Y[:, j])).sum())
    given = None if known is None or np.isnan(known) else known
    return log_posterior(surface, grid, observed, counts, given, rows, _caution(evidence, j))


def _caution(evidence: Evidence, j: int) -> float:
    found = evidence.surfaces
    return caution_with(evidence.sides[j], found.scores[:, j], evidence.Y[found.rows, j])


def _observed(evidence: Evidence, j: int) -> float:
    return float(shares(evidence.Y[:, [j]])[0])


def _label(evidence: Evidence, j: int, log_values: FloatArray, counts: Counts | None) -> LabelRates:
    pos, neg = rates_of(log_values, GRIDS[evidence.sides[j]], _observed(evidence, j))
    return LabelRates(pos, neg, "point", _method(evidence, counts))


def _method(evidence: Evidence, counts: Counts | None) -> str:
    parts = ("trusted", counts is not None), ("profile", evidence.X is not None)
    return " + ".join(name for name, there in parts if there) or "known prevalence"


def _unidentified(evidence: Evidence, j: int) -> LabelRates:
    side = evidence.sides[j]
    note = "every observed label is the same, and there are no others to lean on"
    return LabelRates(
        NEVER if side == "partial" else UNINFORMED,
        NEVER if side == "missing" else UNINFORMED,
        "point",
        "profile",
        (("unidentified", note),),
    )
