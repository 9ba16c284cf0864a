"""Anchors by quantile (section 3): the noisy posterior near its two ends."""

from __future__ import annotations

import numpy as np

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import NEVER, UNINFORMED, Z_LEVEL, LabelRates, Rate, Side

QUANTILE = 0.97
RESAMPLES = 100


def anchor_quantile(evidence: Evidence) -> list[LabelRates]:
    r"""One minus the 97 % quantile of the held-out probabilities, and the 3 % quantile.

    The probabilities are taken at their word, so they must be calibrated; for a label rarer than 3 % the upper
    quantile lies among the negatives. Kept for comparison: counted anchors need neither.
    """
    return [
        ends_label(evidence.observed(j)[0], side, QUANTILE, "anchor, quantile", evidence.generator(j))
        for j, side in enumerate(evidence.sides)
    ]


def ends_label(scores: FloatArray, side: Side, quantile: float, method: str, rng: np.random.Generator) -> LabelRates:
    """One label, from the quantiles of its noisy posterior; errors from 100 resamples of the rows."""
    if not scores.size:
        note = (("unidentified", "no row was observed"),)
        pos, neg = (NEVER if side == never else UNINFORMED for never in ("partial", "missing"))
        return LabelRates(pos, neg, "upper bound", method, note)
    drawn = scores[rng.integers(scores.size, size=(RESAMPLES, scores.size))]
    high, low = (
        (np.quantile(scores, part), np.quantile(drawn, part, axis=1).std()) for part in (quantile, 1 - quantile)
    )
    pos, neg = _bound(1 - high[0], high[1]), _bound(low[0], low[1])
    return LabelRates(NEVER if side == "partial" else pos, NEVER if side == "missing" else neg, "upper bound", method)


def _bound(value: float, se: float) -> Rate:
    # Nothing below an upper bound is excluded.
    return Rate(float(value), float(se), 0.0, float(min(1.0, value + Z_LEVEL * se)))
