"""Trusted rows (section 8): flips counted where the true label is known."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.posterior import Counts
from ccmn.estimation.rates import LEVEL, NEVER, UNINFORMED, Z_LEVEL, LabelRates, Rate, Side


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
