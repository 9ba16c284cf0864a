"""Is the noise class-conditional at all? Whether x tells which labels of one true class were flipped.

How far predictions and debiased labels move when the rates are a little off (section 9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import scipy.stats
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray, check_label_width, check_probabilities
from ccmn.estimation.evidence import Evidence, Trusted
from ccmn.estimation.likelihood import BINS
from ccmn.estimation.noise_rates import Z_LEVEL, Flag
from ccmn.estimation.out_of_fold import narrow, standardise
from ccmn.noise import ClassConditionalNoise

FEWEST = 10
"""Trusted rows that were flipped, and that were not, below which a true class of a label is left out."""
DIRECTIONS = 10
"""Leading directions of the features that are asked."""
MARGIN = 0.05
"""How far above 1/2 an interval must lie to be told: a little dependence does little harm."""
LEAST_PROBABLE = 1e-3
FOLDS = 5

WHAT_FOLLOWS = (
    "rates per label do not describe these flips: corrected losses still help where flips mostly move the cut (the "
    "Hamming loss with the square surrogate), less where they change the order of labels (ranking); counted rates are "
    "averages, and corrected metrics are no longer unbiased. Train on more trusted rows, or split the rows by source "
    "(groups=)"
)


class Area(NamedTuple):
    """An area under the curve with its interval: 1/2 where x tells nothing."""

    value: float
    low: float
    high: float
    pairs: int
    """Pairs of a flipped and an unflipped row that it rests on."""


UNKNOWN = Area(math.nan, 0.0, 1.0, 0)


@dataclass(frozen=True)
class Diagnosis:
    """How far the noise is from class-conditional.

    Attributes
    ----------
    lost, added : tuple of Area, one per label
        How well x tells which true positives were lost, which negatives were added, in cross-validation on the
        trusted rows; unknown (NaN) where there are fewer than ten of either kind.
    pooled : Area
        Over all labels, pair by pair.
    misfit : float64 (q,)
        Probability of so bad a fit of the best class-conditional explanation, were it true; NaN where unknown.
    flags : tuple of Flag
        ``not_class_conditional`` (trusted rows say so) and ``lack_of_fit`` (the shape of the noisy posterior says so).
    """

    lost: tuple[Area, ...]
    added: tuple[Area, ...]
    pooled: Area
    misfit: FloatArray
    flags: tuple[Flag, ...]


def diagnose(evidence: Evidence) -> Diagnosis:
    """Look at trusted rows, where there are some, and at the fit of the best class-conditional explanation."""
    if evidence.trusted is None:
        lost = added = (UNKNOWN,) * evidence.Y.shape[1]
    else:
        lost, added = flip_areas(evidence, evidence.trusted, 1), flip_areas(evidence, evidence.trusted, 0)
    whole = pool_areas([*lost, *added])
    misfit = np.asarray(scipy.stats.chi2.sf(evidence.surfaces.deviance, BINS - 4), dtype=np.float64)
    return Diagnosis(lost, added, whole, misfit, (*_telling(lost, added, whole), *_misfits(misfit)))


def flip_areas(evidence: Evidence, trusted: Trusted, true: int) -> tuple[Area, ...]:
    """Among the trusted rows of one true class, label by label: how well is it foreseen from x which were flipped?

    A logistic model of the label's held-out score and ten leading directions of the features, in cross-validation.
    """
    noisy, scores = evidence.Y[trusted.rows], _held_out_scores(evidence)[trusted.rows]
    directions = leading_directions(evidence.X[trusted.rows], evidence.seed)
    result = []
    for j in range(noisy.shape[1]):
        rows = np.flatnonzero((trusted.Y[:, j] == true) & ~np.isnan(noisy[:, j]))
        flipped = noisy[rows, j] != true
        if min(flipped.sum(), (~flipped).sum()) < FEWEST:
            result.append(UNKNOWN)
            continue
        features = standardise(np.column_stack([scores[rows, j], directions[rows]]))
        result.append(area(foresee(features, flipped, evidence.seed), flipped))
    return tuple(result)


def _held_out_scores(evidence: Evidence) -> FloatArray:
    """Log-odds (n, q) of the noisy labels; the mean, which says nothing, for rows that no model was held out from."""
    surfaces = evidence.surfaces
    logits = scipy.special.logit(np.clip(surfaces.scores, 1e-4, 1 - 1e-4))
    result = np.tile(logits.mean(0), (len(evidence.Y), 1))
    result[surfaces.rows] = logits
    return result


def leading_directions(X: Any, seed: int) -> FloatArray:
    """(m, at most 10)."""
    left, values, _ = np.linalg.svd(narrow(X, seed), full_matrices=False)
    return np.asarray((left * values)[:, :DIRECTIONS])


def foresee(features: FloatArray, flipped: NDArray[np.bool_], seed: int) -> FloatArray:
    """Log-odds of a flip for every row, by a model that did not see it."""
    result = np.empty(len(flipped))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    for training, held_out in folds.split(features, flipped):
        model = LogisticRegression(C=0.1).fit(features[training], flipped[training])
        result[held_out] = model.decision_function(features[held_out])
    return result


def area(scores: FloatArray, flipped: NDArray[np.bool_]) -> Area:
    r"""Share of pairs in which the flipped row scores higher (a tie counts half), with Hanley and McNeil's error.

    .. math:: s^2 = \frac{A (1 - A) + (m - 1)(\frac{A}{2 - A} - A^2) + (n - 1)(\frac{2 A^2}{1 + A} - A^2)}{m n}
    """
    m, n = int(flipped.sum()), int((~flipped).sum())
    ranks = scipy.stats.rankdata(scores)
    a = float((ranks[flipped].sum() - m * (m + 1) / 2) / (m * n))
    variance = a * (1 - a) + (m - 1) * (a / (2 - a) - a**2) + (n - 1) * (2 * a**2 / (1 + a) - a**2)
    # At 0 and 1 the formula knows no error; that of one pair in two is the least there is.
    return _interval(a, math.sqrt(max(variance, 0.25) / (m * n)), m * n)


def pool_areas(areas: list[Area]) -> Area:
    """The mean over pairs of all strata, taken to be independent."""
    known = [a for a in areas if a.pairs]
    if not known:
        return UNKNOWN
    pairs = np.array([a.pairs for a in known], dtype=np.float64)
    errors = np.array([(a.high - a.low) / (2 * Z_LEVEL) for a in known])
    value = float(pairs @ np.array([a.value for a in known]) / pairs.sum())
    return _interval(value, float(np.sqrt((pairs**2) @ errors**2) / pairs.sum()), int(pairs.sum()))


def _interval(value: float, se: float, pairs: int) -> Area:
    return Area(value, max(0.0, value - Z_LEVEL * se), min(1.0, value + Z_LEVEL * se), pairs)


def _telling(lost: tuple[Area, ...], added: tuple[Area, ...], whole: Area) -> list[Flag]:
    """``not_class_conditional``: over all, and label by label where the interval allows for so many looks."""
    flags = []
    if whole.pairs and whole.low > 0.5 + MARGIN:
        told = f"x tells flipped labels from others of the same true class, area {whole.value:.2f}"
        flags.append(Flag("not_class_conditional", f"{told} ({whole.low:.2f} to {whole.high:.2f}): {WHAT_FOLLOWS}"))
    looks = max(1, sum(a.pairs > 0 for a in (*lost, *added)))
    stricter = float(scipy.stats.norm.isf(0.05 / looks)) / Z_LEVEL
    for word, areas in (("lost", lost), ("added", added)):
        for j, a in enumerate(areas):
            if a.pairs and a.value - stricter * (a.value - a.low) > 0.5 + MARGIN:
                note = f"x tells which labels were {word}, area {a.value:.2f} ({a.low:.2f} to {a.high:.2f})"
                flags.append(Flag("not_class_conditional", note, j))
    return flags


def _misfits(misfit: FloatArray) -> list[Flag]:
    note = "the best class-conditional explanation with a logistic posterior does not fit the noisy labels"
    return [Flag("lack_of_fit", note, j) for j, p in enumerate(misfit) if p < LEAST_PROBABLE]


CHANGES = ("rho_pos up", "rho_pos down", "rho_neg up", "rho_neg down")
"""The four ways in which one rate is off, the rows of every array."""


@dataclass(frozen=True)
class Sensitivity:
    """What a change of one rate by ``delta`` does, (4, q) each: rows as in ``CHANGES``, columns labels.

    Attributes
    ----------
    cut : where the decision at 1/2 falls on the posterior by the rates given; 1/2 where nothing moves
    target_given_1, target_given_0 : what a noisy 1, a noisy 0 is debiased to, less what it was
    moved : mean change of the posterior
    changed : share of decisions that change
    delta : float
    """

    cut: FloatArray
    target_given_1: FloatArray
    target_given_0: FloatArray
    moved: FloatArray
    changed: FloatArray
    delta: float


def sensitivity(noise: ClassConditionalNoise, proba: object, delta: float = 0.05) -> Sensitivity:
    r"""How far predictions move when one rate is off by delta.

    A model of the noisy posterior :math:`\tilde\eta = \rho_{neg} + r \eta` is right whatever the rates; they turn it
    into :math:`\eta' = (\tilde\eta - \rho_{neg}') / r'`. So the cut at 1/2 moves by
    :math:`(\Delta\rho_{neg} - \Delta\rho_{pos}) / (2 r)` on the scale of :math:`\eta`: equal errors of both rates
    leave decisions as they are, but not the order of labels.

    Parameters
    ----------
    noise : ClassConditionalNoise
        The rates that were used.
    proba : (n, q)
        P(true label = 1 | x) by them: ``clf.predict_proba(X)``.
    delta : float
        By how much a rate is off. Rates are kept at 0 and above, and their sum below 1.

    Examples
    --------
    >>> result = sensitivity(ClassConditionalNoise([0.2], [0.3]), [[0.1], [0.52], [0.9]], delta=0.05)
    >>> result.cut[2].round(3), result.changed[2].round(3)
    (array([0.55]), array([0.333]))
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1; got {delta!r}")
    eta = check_probabilities(to_dense_array(proba), "proba")
    check_label_width(eta.shape, noise.n_labels, "proba")
    signal = 1 - noise.rho_pos - noise.rho_neg
    noisy = noise.rho_neg + signal * eta
    rows = [_change(noise, eta, noisy, *rates) for rates in changed_rates(noise, delta)]
    cut, ones, zeros, moved, changed = (np.stack(column) for column in zip(*rows))
    return Sensitivity(cut, ones, zeros, moved, changed, delta)


def changed_rates(noise: ClassConditionalNoise, delta: float) -> list[tuple[FloatArray, FloatArray]]:
    """(rho_pos, rho_neg) with one of them off by delta, as in ``CHANGES``; a signal of 0.01 is always left."""
    pos, neg = noise.rho_pos, noise.rho_neg
    return [
        (np.minimum(pos + delta, np.maximum(pos, 0.99 - neg)), neg),
        (np.maximum(pos - delta, 0), neg),
        (pos, np.minimum(neg + delta, np.maximum(neg, 0.99 - pos))),
        (pos, np.maximum(neg - delta, 0)),
    ]


def _change(
    noise: ClassConditionalNoise, eta: FloatArray, noisy: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray
) -> tuple[FloatArray, ...]:
    """cut, target_given_1, target_given_0, moved, changed of one pair of rates, (q,) each."""
    signal, other = 1 - noise.rho_pos - noise.rho_neg, 1 - rho_pos - rho_neg
    cut = ((1 - rho_pos + rho_neg) / 2 - noise.rho_neg) / signal
    ones = (1 - rho_neg) / other - (1 - noise.rho_neg) / signal
    zeros = -rho_neg / other + noise.rho_neg / signal
    new = (noisy - rho_neg) / other
    return cut, ones, zeros, np.abs(new - eta).mean(0), ((new >= 0.5) != (eta >= 0.5)).mean(0)
