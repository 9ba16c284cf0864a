"""Trusted rows (section 8): flips counted where the true label is known.

Rates from known prevalence (section 1, item 5): closed form where labels were only added, or only lost.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.likelihood import shares
from ccmn.estimation.noise_rates import LEVEL, NEVER, UNINFORMED, Z_LEVEL, LabelRates, Rate, Side
from ccmn.estimation.profile import Counts, profile_labels


def trusted_counts(evidence: Evidence) -> list[LabelRates]:
    r"""Flips counted on the trusted rows, section 8.1.

    .. math:: \hat\rho_{pos} = \frac{\#\{\tilde y = 0, y = 1\} + 1/2}{\#\{y = 1\} + 1}

    and likewise :math:`\rho_{neg}`; intervals are Jeffreys', quantiles of Beta(1/2 + k, 1/2 + m - k).
    """
    if evidence.trusted is None:
        raise ValueError("method='trusted' needs trusted=(rows, Y_true): numbers of rows, and their true labels")
    noisy, true = evidence.Y[evidence.trusted.rows], evidence.trusted.Y
    return [count_label(noisy[:, j], true[:, j], side) for j, side in enumerate(evidence.sides)]


def count_label(noisy: FloatArray, true: FloatArray, side: Side) -> LabelRates:
    """One label; comparisons with NaN are False, so pairs that were not observed drop out."""
    seen = ~np.isnan(noisy)
    positives, lost = int(((true == 1) & seen).sum()), int(((true == 1) & (noisy == 0)).sum())
    negatives, added = int(((true == 0) & seen).sum()), int(((true == 0) & (noisy == 1)).sum())
    notes = []
    for flips, never, word, rate, total in (
        (lost, side == "partial", "lost", "rho_pos", positives),
        (added, side == "missing", "added", "rho_neg", negatives),
    ):
        if never and flips:
            note = f"sides={side!r} says that no label was {word}, but {flips} were on the trusted rows"
            notes.append(("side_contradicted", note))
        if not never and not total:
            notes.append(("unidentified", f"no trusted row says anything about {rate}"))
    pos = NEVER if side == "partial" else count_interval(lost, positives)
    neg = NEVER if side == "missing" else count_interval(added, negatives)
    return LabelRates(pos, neg, "point", "trusted", tuple(notes))


def count_interval(k: float, m: int) -> Rate:
    """The rate behind k of m: the centre, deviation and quantiles of Jeffreys' posterior; uninformed for m = 0.

    >>> [round(number, 3) for number in count_interval(10, 50)]
    [0.206, 0.056, 0.12, 0.304]
    """
    if not m:
        return UNINFORMED
    a, b = 0.5 + k, 0.5 + m - k
    centre, tail = a / (a + b), (1 - LEVEL) / 2
    low, high = (float(scipy.special.betaincinv(a, b, part)) for part in (tail, 1 - tail))
    # Jeffreys' own amendment: an end that was not seen to be wrong stays open.
    return Rate(
        centre,
        math.sqrt(centre * (1 - centre) / (m + 2)),
        0.0 if k == 0 else low,
        1.0 if k == m else high,
    )


def rows_needed(rate: float, half_width: float) -> int:
    r"""Trusted rows of a class for an interval of +- ``half_width`` about its rate, :math:`z^2 \rho (1-\rho) / w^2`.

    >>> rows_needed(0.2, 0.06)
    121
    """
    return math.ceil(Z_LEVEL**2 * rate * (1 - rate) / half_width**2)


def counts_of(evidence: Evidence) -> list[Counts] | None:
    """Flips and true labels on the trusted rows, label by label; None where there are no such rows.

    A trusted label without a noisy one says nothing of flips; it is left out.
    """
    if evidence.trusted is None:
        return None
    noisy, true = evidence.Y[evidence.trusted.rows], evidence.trusted.Y
    positive, negative = (true == 1) & ~np.isnan(noisy), (true == 0) & ~np.isnan(noisy)
    numbers = positive.sum(0), (positive & (noisy == 0)).sum(0), negative.sum(0), (negative & (noisy == 1)).sum(0)
    return [Counts(*map(int, label)) for label in zip(*numbers)]


def contradict(counted: Rate, free: Rate) -> bool:
    """More than two joint standard errors apart; a rate that is declared or unknown contradicts nothing."""
    if {counted, free} & {NEVER, UNINFORMED}:
        return False
    return abs(counted.value - free.value) > 2 * math.hypot(counted.se, free.se)


def known_prevalence(evidence: Evidence) -> list[LabelRates]:
    r"""Rates that turn the known share of true positives into the observed one.

    .. math:: \text{only added: } \rho_{neg} = \frac{\tilde p - \pi}{1 - \pi}, \qquad
              \text{only lost: } \rho_{pos} = 1 - \frac{\tilde p}{\pi}

    With both sides open the prevalence fixes one rate given the other, and the profile likelihood decides between the
    pairs that are left; that needs features or scores.
    """
    if evidence.prevalence is None:
        raise ValueError("method='known_prevalence' needs prevalence=, the share of true positives of every label")
    open_sides = [j for j, side in enumerate(evidence.sides) if side == "both" or np.isnan(evidence.prevalence[j])]
    if open_sides and evidence.X is None:
        raise ValueError("with both sides open a prevalence is not enough: declare sides, or give the features X, too")
    rest = profile_labels(evidence, [None] * len(evidence.sides)) if open_sides else []
    observed = shares(evidence.Y)
    rows = (~np.isnan(evidence.Y)).sum(0)
    return [
        rest[j]._replace(method="profile, known prevalence")
        if j in open_sides
        else closed_form(float(observed[j]), int(rows[j]), float(evidence.prevalence[j]), side)
        for j, side in enumerate(evidence.sides)
    ]


def closed_form(observed: float, n: int, prevalence: float, side: Side) -> LabelRates:
    """One label whose side is declared; a prevalence that no rate of that side explains is flagged."""
    missing = side == "missing"
    if not n or (prevalence == 0 if missing else prevalence == 1):
        note = "no rate can be told: nothing was observed, or there is no row that could be wrong"
        return _label(UNINFORMED, side, (("unidentified", note),))
    room = prevalence if missing else 1 - prevalence
    value = 1 - observed / prevalence if missing else (observed - prevalence) / room
    se = np.sqrt(max(observed * (1 - observed), 0.25 / n) / n) / room
    notes: tuple[tuple[str, str], ...] = ()
    if value < -2 * se:
        wrong = "more" if missing else "fewer"
        note = f"{wrong} positives were observed ({observed:.3f}) than there are ({prevalence:.3f}): check the side"
        notes = (("side_contradicted", note),)
    kept = float(np.clip(value, 0, 1))
    ends = (float(np.clip(value + sign * Z_LEVEL * se, 0, 1)) for sign in (-1, 1))
    return _label(Rate(kept, float(se), *ends), side, notes)


def _label(rate: Rate, side: Side, notes: tuple[tuple[str, str], ...]) -> LabelRates:
    pos, neg = (rate, NEVER) if side == "missing" else (NEVER, rate)
    return LabelRates(pos, neg, "point", "known prevalence", notes)


def read_prevalence(prevalence: FloatArray, q: int) -> FloatArray:
    """(q,) shares of true positives, from one number or one for each label; NaN where not known."""
    given = np.asarray(prevalence, dtype=np.float64)
    values = np.full(q, float(given)) if given.ndim == 0 else given
    if values.shape != (q,) or not ((values >= 0) & (values <= 1) | np.isnan(values)).all():
        raise ValueError(
            f"prevalence must be a share between 0 and 1, or one for each of the {q} labels (NaN: not known); "
            f"got {prevalence!r}"
        )
    return values
