"""Precision at levels of recall, label by label: from labels as they are, or from debiased ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ccmn._validation import FloatArray

LEVELS = tuple(np.arange(0, 21) / 20)
"""The levels of recall at which precision is told."""

MOST_DRAWN = 60
"""Labels whose curves are drawn; of all others there are numbers."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Precision at every level of recall, and their mean over the recall of all positives; None: no positives."""

    precision: tuple[float, ...]
    average: float


@dataclass(frozen=True, eq=False)
class PrecisionRecallFacts:
    """Curves by label, and for each label by way: what was scored, or against which labels."""

    labels: tuple[tuple[str, Mapping[str, Curve]], ...]
    ways: tuple[str, ...]
    note: str


def precision_recall_facts(
    names: Sequence[str], ways: Mapping[str, tuple[FloatArray, FloatArray]], note: str
) -> PrecisionRecallFacts:
    """Of every way the labels (n, q), debiased or not, and the scores (n, q)."""
    labels = []
    for j, name in enumerate(names):
        curves = {way: curve_of(p[:, j], scores[:, j]) for way, (p, scores) in ways.items()}
        labels.append((name, {way: curve for way, curve in curves.items() if curve is not None}))
    return PrecisionRecallFacts(tuple(labels), tuple(ways), note)


def curve_of(p: FloatArray, scores: FloatArray) -> Curve | None:
    r"""The curve of one label; p (n,) in {0, 1} or debiased, NaN (not observed) is left out.

    With the rows S_t of scores of at least t,

    .. math::
        \text{precision}(t) = \frac{1}{|S_t|} \sum_{i \in S_t} p_i, \qquad
        \text{recall}(t) = \frac{\sum_{i \in S_t} p_i}{\sum_i p_i}

    both consistent for those of the true labels. At each level the highest t is taken whose recall reaches it; the
    average is that of scikit-learn, the sum of precision times gain in recall. Kept in [0, 1].

    >>> curve_of(np.array([1.0, 0.0, 1.0]), np.array([3.0, 2.0, 1.0])).average
    0.8333...
    """
    seen = ~np.isnan(p)
    p, scores = p[seen], scores[seen]
    total = p.sum()
    if not p.size or total <= 0:
        return None
    order = np.argsort(-scores, kind="stable")
    # Rows of equal scores come together: a cut can only be behind the last of them.
    cuts = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    hits = np.cumsum(p[order])[cuts]
    precision, recall = hits / (cuts + 1), hits / total
    recall[-1] = 1.0  # not 1 less a rounding error
    average = float((np.diff(recall, prepend=0.0) * precision).sum())
    reached = np.maximum.accumulate(recall)
    at = np.searchsorted(reached, LEVELS)
    return Curve(tuple(precision[at].clip(0, 1).tolist()), min(max(average, 0.0), 1.0))
