"""Noisy labels held against scores in two ways: as they are given, and corrected for the noise."""

from __future__ import annotations

import numpy as np

from ccmn._validation import FloatArray
from ccmn.metrics import Noise
from ccmn.noise import NoiseModel
from ccmn.report.facts.metrics import MetricFacts, MetricLine, measure

GIVEN, CORRECTED = "labels as given", "corrected for the noise"
_ESTIMATES = (
    "Corrected: estimated for the true labels, with standard errors; an unbiased estimate is right on average, a "
    "consistent one for many rows, an approximate one not even then."
)


def two_lines(labels: FloatArray, scores: FloatArray, noise: Noise | None, note: str) -> MetricFacts:
    """Every metric in both ways; against the labels as given only where all were observed."""
    lines = []
    if not np.isnan(labels).any():
        lines.append(MetricLine(GIVEN, measure(labels, scores), 0))
    if noise is not None:
        lines.append(MetricLine(CORRECTED, measure(labels, scores, noise), 1))
    return MetricFacts(tuple(lines), f"{note} {_ESTIMATES}" if noise is not None else note)


def against_given(
    labels: FloatArray, scores: FloatArray, noise: NoiseModel | None
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Labels and scores of either way, for curves."""
    ways = {GIVEN: (labels, scores)}
    if noise is not None:
        ways[CORRECTED] = (np.asarray(noise.debias(labels), dtype=np.float64), scores)
    return ways
