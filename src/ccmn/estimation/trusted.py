"""Trusted rows (section 8): flips counted where the true label is known, and how they meet a label-free estimate."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from ccmn.estimation.evidence import Evidence
from ccmn.estimation.rates import LEVEL, NEVER, UNINFORMED, LabelRates, Rate, Side
from ccmn.validation import FloatArray

_Z = math.sqrt(2) * float(scipy.special.erfinv(LEVEL))
ENOUGH = 30
"""Trusted rows of either class from which on the counts stand alone."""


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
    return math.ceil(_Z**2 * rate * (1 - rate) / half_width**2)


def enough_counts(evidence: Evidence, label: int) -> bool:
    """Do the trusted rows of a label stand alone: at least 30 of each class that can be wrong?"""
    if evidence.trusted is None:
        return False
    pairs = evidence.trusted.Y[~np.isnan(evidence.Y[evidence.trusted.rows, label]), label]
    needed = {"both": (0, 1), "partial": (0,), "missing": (1,)}[evidence.sides[label]]
    return all((pairs == value).sum() >= ENOUGH for value in needed)


def combine(counted: LabelRates, free: LabelRates) -> LabelRates:
    """A counted and a label-free estimate of one label, section 8.3.

    Inverse variances weigh the two, rate by rate, unless they contradict each other: then the count stands, with the
    flag ``no_anchor_suspected``. An upper bound says nothing against a count below it, which then stands, too.
    """
    bound = free.kind == "upper bound"
    pairs = (counted.pos, free.pos), (counted.neg, free.neg)
    stands = [contradict(c, f) or (bound and c.value <= f.value and c != UNINFORMED) for c, f in pairs]
    pos, neg = (c if stand else combine_rates(c, f) for (c, f), stand in zip(pairs, stands))
    # What leans on an upper bound more than on counts is one.
    leans = any(c.se > f.se and f not in (NEVER, UNINFORMED) and not s for (c, f), s in zip(pairs, stands))
    unknown = [note for note in free.notes if note[0] == "unidentified"]
    notes = [note for note in counted.notes if note[0] != "unidentified" or unknown]
    return LabelRates(
        pos, neg, free.kind if leans else counted.kind, f"trusted + {free.method}", (*notes, *doubts(counted, free))
    )


def doubts(counted: LabelRates, free: LabelRates) -> list[tuple[str, str]]:
    """The flag ``no_anchor_suspected`` where the label-free estimate contradicts the trusted rows."""
    pairs = {"rho_pos": (counted.pos, free.pos), "rho_neg": (counted.neg, free.neg)}
    apart = [name for name, pair in pairs.items() if contradict(*pair)]
    if not apart:
        return []
    note = f"{' and '.join(apart)} without trusted rows contradicts them: no row's label may be certain from x"
    return [("no_anchor_suspected", note)]


def contradict(counted: Rate, free: Rate) -> bool:
    """More than two joint standard errors apart; a rate that is declared or unknown contradicts nothing."""
    if {counted, free} & {NEVER, UNINFORMED}:
        return False
    return abs(counted.value - free.value) > 2 * math.hypot(counted.se, free.se)


def combine_rates(counted: Rate, free: Rate) -> Rate:
    """The two weighed by their inverse variances; the known one where the other is unknown."""
    if counted == UNINFORMED or free in (NEVER, UNINFORMED):
        return free if counted == UNINFORMED else counted
    weights = counted.se**-2, free.se**-2
    value = (weights[0] * counted.value + weights[1] * free.value) / sum(weights)
    margin = _Z * sum(weights) ** -0.5
    return Rate(value, sum(weights) ** -0.5, max(0.0, value - margin), min(1.0, value + margin))
