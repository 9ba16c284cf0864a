"""Cuts per label that maximise the corrected F1 on held-out rows.

What is fitted on held-out rows after the weights: the slope of probabilities, and the cut of every label.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.models.fitting import ENTRIES_AT_ONCE
from ccmn.models.predictor import Scorer, SlopeFit
from ccmn.models.training_data import Sample


def f1_thresholds(
    scores: NDArray[Any], p: NDArray[Any], row_weights: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    r"""The threshold t of every label with the largest :math:`2 TP / (PP + P)`.

    :math:`TP = \sum_i 1[f_i \ge t]\, p_i`, :math:`PP = \sum_i 1[f_i \ge t]`, :math:`P = \sum_i p_i` with debiased
    labels p, so that the estimate is consistent for the clean F1. Cuts lie half way between two scores. A label
    without (net) positives keeps its cut at 0.
    """
    thresholds = np.zeros(scores.shape[1])
    weights = np.ones(len(scores)) if row_weights is None else row_weights
    for j in range(scores.shape[1]):
        seen = ~np.isnan(p[:, j])
        order = np.argsort(-scores[seen, j], kind="stable")
        f, weight = scores[seen, j][order], weights[seen][order]
        target = weight * p[seen, j][order]
        positives = target.sum()
        if positives <= 0:
            continue
        f1 = 2 * target.cumsum() / (weight.cumsum() + positives)
        f1[:-1][f[:-1] == f[1:]] = -np.inf  # a cut cannot go between ties
        best = int(f1.argmax())
        thresholds[j] = (f[best] + f[best + 1]) / 2 if best + 1 < f.size else f[best]
    return thresholds


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
