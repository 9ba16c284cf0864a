"""What is fitted on held-out rows after the weights: the slope of probabilities, and the cut of every label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ccmn.models.choosing import ENTRIES_AT_ONCE
from ccmn.models.probabilities import SlopeFit
from ccmn.models.samples import Sample
from ccmn.models.scoring import Scorer
from ccmn.models.thresholds import f1_thresholds

ENTRIES_ENOUGH = 1 << 26
"""So many held-out scores say what the slope of probabilities is."""


def calibrated(scorer: Scorer, held_out: Sample, threshold: str) -> Scorer:
    """The scorer with its slope and, for "f1", its thresholds."""
    slope = fit_slope(scorer, held_out) if scorer.link == "slope" else scorer.slope
    thresholds = fit_thresholds(scorer, held_out) if threshold == "f1" else scorer.thresholds
    return replace(scorer, slope=slope, thresholds=thresholds)


def fit_slope(scorer: Scorer, held_out: Sample) -> float:
    """A block of rows at a time; of very many rows and labels as many rows as make enough entries."""
    n, q = held_out.p.shape
    fit, size = SlopeFit(), max(1, ENTRIES_AT_ONCE // q)
    rows = np.unique(np.linspace(0, n - 1, max(1, min(n, ENTRIES_ENOUGH // q))).astype(np.int64))
    for start in range(0, rows.size, size):
        part = held_out.take(rows[start : start + size])
        fit.add(scorer.scores(part.X), part.dense_labels(), part.weights)
    return fit.slope()


def fit_thresholds(scorer: Scorer, held_out: Sample) -> NDArray[np.float64]:
    """The cuts of the largest corrected F1, a tile of labels at a time."""
    parts = [
        f1_thresholds(scorer.scores(held_out.X, labels), held_out.labels_of(labels), held_out.weights)
        for labels in scorer.tiles(max(1, held_out.X.shape[0]))
    ]
    return np.concatenate(parts)
