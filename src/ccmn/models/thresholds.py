"""Cuts per label that maximise the corrected F1 on held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
