"""Upper bounds of the rates from anchor points: the share of wrong labels among the most extreme scores."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.best_bin import best_bin_label
from ccmn.estimation.evidence import Evidence, held_out_scores
from ccmn.estimation.noise_rates import UNKNOWN_RATE, ZERO_RATE, LabelRates, NoiseType, Rate
from ccmn.estimation.trusted import jeffreys_rate

MIN_ANCHORS = 20
"""Smallest number of rows at either end of the scores, if the class is large enough."""


def anchor(evidence: Evidence) -> list[LabelRates]:
    r"""Estimate upper bounds of the rates by counting noisy labels at both ends of the scores.

    .. math:: \hat\rho_{pos} = 1 - \text{mean of } \tilde y \text{ over the } k \text{ highest scores}, \qquad
              \hat\rho_{neg} = \text{mean of } \tilde y \text{ over the } k \text{ lowest}

    with k = max(20, 1 % of the rows), but at most a fifth of the rows of the respective class. The classical estimator
    uses the extreme probabilities themselves [1]_ [2]_; counting needs no calibrated probabilities and does not depend
    on single rows. Without anchor points, rows whose true label is certain given their features, the counts include
    rows whose label is correct, so they are upper bounds.

    References
    ----------
    .. [1] T. Liu and D. Tao, "Classification with Noisy Labels by Importance Reweighting", IEEE TPAMI 38(3), 2016.
    .. [2] G. Patrini et al., "Making Deep Neural Networks Robust to Label Noise: A Loss Correction Approach",
       CVPR 2017.
    """
    scores = held_out_scores(evidence)
    return [anchor_label(*evidence.observed(scores, j), label_type) for j, label_type in enumerate(evidence.noise_type)]


def anchor_label(scores: FloatArray, positive: NDArray[np.bool_], noise_type: NoiseType) -> LabelRates:
    """Return the bounds of one label from its scores (n,) and whether each row was observed as 1."""
    ones = int(positive.sum())
    pos = ZERO_RATE if noise_type == "partial" else _error_share(scores, positive, ones)
    neg = ZERO_RATE if noise_type == "missing" else _error_share(-scores, ~positive, positive.size - ones)
    notes: tuple[tuple[str, str], ...] = ()
    if UNKNOWN_RATE in (pos, neg):
        note = "One of the two values was never observed, so its rate is unknown. Exclude the label or add rows."
        notes = (("unidentified", note),)
    return LabelRates(pos, neg, "upper bound", "anchor", notes)


def _error_share(scores: FloatArray, correct: NDArray[np.bool_], class_size: int) -> Rate:
    """Return the share of incorrect labels among the k highest scores."""
    if not class_size:
        return UNKNOWN_RATE
    k = max(1, min(max(MIN_ANCHORS, math.ceil(0.01 * scores.size)), int(0.2 * class_size), scores.size))
    errors = k * mean_of_highest(~correct, scores, k)
    # The count is an estimate of an upper bound, so that the interval starts at 0.
    return jeffreys_rate(errors, k)._replace(value=errors / k, low=0.0)


def mean_of_highest(values: NDArray[np.bool_], scores: FloatArray, k: int) -> float:
    """Return the mean of the values at the k highest scores; ties at the last places are averaged.

    >>> mean_of_highest(np.array([True, False, True]), np.array([2.0, 1.0, 1.0]), 2)
    0.75
    """
    threshold = np.partition(scores, -k)[-k]
    above, tied = scores > threshold, scores == threshold
    remaining = k - above.sum()
    return float((values[above].sum() + remaining * values[tied].mean()) / k)


def tightest(evidence: Evidence) -> list[LabelRates]:
    """Estimate upper bounds of the rates as the smaller of best bin and anchor, for each rate.

    Both are too large if no row determines its label with certainty, so the smaller one is closer. On the benchmark
    data the best bin is closer for rho_neg and the anchor for rho_pos.
    """
    scores = held_out_scores(evidence)
    return [tightest_label(evidence, scores, j) for j in range(len(evidence.noise_type))]


def tightest_label(evidence: Evidence, scores: FloatArray, j: int) -> LabelRates:
    """Return the smaller bounds of best bin and anchor of label j."""
    observed, noise_type = evidence.observed(scores, j), evidence.noise_type[j]
    return smaller_bounds(
        best_bin_label(*observed, noise_type, evidence.generator(j)), anchor_label(*observed, noise_type)
    )


def smaller_bounds(first: LabelRates, second: LabelRates) -> LabelRates:
    """Return the smaller of two bounds, separately for each rate; an unknown rate is no bound."""

    def bound(rate: Rate) -> float:
        return 1.0 if rate == UNKNOWN_RATE else rate.value

    pos, neg = min(first.pos, second.pos, key=bound), min(first.neg, second.neg, key=bound)
    methods = [label.method for label in (first, second) if pos is label.pos or neg is label.neg]
    unknown = [] if UNKNOWN_RATE not in (pos, neg) else [*first.notes, *second.notes]
    notes = dict(note for note in unknown if note[0] == "unidentified")
    return LabelRates(pos, neg, "upper bound", ", ".join(methods), tuple(notes.items()))
