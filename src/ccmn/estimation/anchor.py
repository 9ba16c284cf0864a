"""Counted anchors (section 3, count-k): how often the label is wrong where the model is surest.

The tightest of several upper bounds, rate by rate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.best_bin import best_bin
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import NEVER, UNINFORMED, LabelRates, Rate, Side
from ccmn.estimation.trusted import count_interval


def anchor(evidence: Evidence) -> list[LabelRates]:
    r"""Shares of wrong labels at the two ends of the scores.

    .. math:: \hat\rho_{pos} = 1 - \text{mean of } \tilde y \text{ over the } k \text{ highest scores}, \qquad
              \hat\rho_{neg} = \text{mean of } \tilde y \text{ over the } k \text{ lowest}

    k = max(20, 1 % of the rows), and at most a fifth of the rows of the class that is looked for. What is counted is
    the most that the rates can be: rows at the ends whose label is not certain from their features count as noise.
    """
    return [anchor_label(*evidence.observed(j), side) for j, side in enumerate(evidence.sides)]


def anchor_label(scores: FloatArray, positive: NDArray[np.bool_], side: Side) -> LabelRates:
    """One label: scores (n,), high where a 1 is expected, and whether a 1 was observed."""
    ones = int(positive.sum())
    lost = NEVER if side == "partial" else _wrong_at_the_end(scores, positive, ones)
    added = NEVER if side == "missing" else _wrong_at_the_end(-scores, ~positive, positive.size - ones)
    notes: tuple[tuple[str, str], ...] = ()
    if UNINFORMED in (lost, added):
        notes = (("unidentified", "no row was observed in one of the two classes: its end cannot be counted"),)
    return LabelRates(lost, added, "upper bound", "anchor", notes)


def _wrong_at_the_end(scores: FloatArray, right: NDArray[np.bool_], of_class: int) -> Rate:
    """The share of labels that are not right among the k highest scores; 0 < k where the class was seen at all."""
    if not of_class:
        return UNINFORMED
    k = max(1, min(max(20, math.ceil(0.01 * scores.size)), int(0.2 * of_class), scores.size))
    wrong = k * mean_of_highest(~right, scores, k)
    counted = count_interval(wrong, k)
    # Nothing below the count is excluded: an upper bound has no lower end.
    return counted._replace(value=wrong / k, low=0.0)


def mean_of_highest(values: NDArray[np.bool_], scores: FloatArray, k: int) -> float:
    """Mean of the values at the k highest scores; rows tied for the last places share them, whatever their order.

    >>> mean_of_highest(np.array([True, False, True]), np.array([2.0, 1.0, 1.0]), 2)
    0.75
    """
    cut = np.partition(scores, -k)[-k]
    above, tied = scores > cut, scores == cut
    places = k - above.sum()
    return float((values[above].sum() + places * values[tied].mean()) / k)


def tightest(evidence: Evidence) -> list[LabelRates]:
    """The lower of best bin and anchors, for each rate.

    Without a row whose label is certain from its features, both report more noise than there is (section 1), so the
    lower is the nearer. On the benchmark sets the best bin is nearer for labels added, the anchors for labels lost: a
    positive that the features do not explain looks lost to the best bin, and there are many.
    """
    return [lower_of(b, a) for b, a in zip(best_bin(evidence), anchor(evidence))]


def lower_of(first: LabelRates, second: LabelRates) -> LabelRates:
    """The lower of two estimates of a label, for each of its rates."""
    pos, neg = min(first.pos, second.pos, key=_bound), min(first.neg, second.neg, key=_bound)
    origins = [label.method for label in (first, second) if pos is label.pos or neg is label.neg]
    unknown = [] if UNINFORMED not in (pos, neg) else [*first.notes, *second.notes]
    notes = dict(note for note in unknown if note[0] == "unidentified")
    return LabelRates(pos, neg, "upper bound", ", ".join(origins), tuple(notes.items()))


def _bound(rate: Rate) -> float:
    return 1.0 if rate == UNINFORMED else rate.value
