"""Numbers of a report: metrics with their ranges and standard errors, and curves of precision and recall."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray
from ccmn.metrics import METRICS
from ccmn.metrics.metric import Noise
from ccmn.noise import ClassConditionalNoise

ROUNDING_TOLERANCE = 1e-9
"""Values that exceed the range of their metric by at most this much count as inside: sums are inexact."""
MEAN_AVERAGE_PRECISION = "mean_average_precision"
RANK_METRICS = ("ranking_loss", "average_precision", "one_error", "coverage")
"""Metrics of the order of the labels in a row."""
AS_GIVEN, CORRECTED = "labels as given", "corrected for noise"
"""Names of the two evaluations on noisy labels."""
OUT_OF_RANGE_REASONS = (
    "there are too few rows for this much noise, the stated noise rates are too high, or the model was trained on "
    "these rows"
)
"""Why an estimate can be outside the range of its metric."""


@dataclass(frozen=True)
class MetricValue:
    """Value of a metric; estimates from noisy labels have a standard error and a status."""

    value: float
    se: float | None = None
    status: str | None = None
    bounds: tuple[float, float] = field(default=(-math.inf, math.inf), repr=False)
    """Range of the metric; an estimate can lie outside it."""

    @property
    def out_of_range(self) -> bool:
        """Whether the value is outside ``bounds``; False for NaN."""
        return self.value < self.bounds[0] - ROUNDING_TOLERANCE or self.value > self.bounds[1] + ROUNDING_TOLERANCE

    def text(self) -> str:
        """Return the value with its standard error and status; an asterisk marks values out of range.

        >>> MetricValue(1.25, 0.1, "consistent", (0.0, 1.0)).text()
        '1.250* ± 0.100, consistent'
        """
        if math.isnan(self.value):
            return "–"
        error = "" if self.se is None or math.isnan(self.se) else f" ± {self.se:.3f}"
        return f"{self.value:.3f}{'*' * self.out_of_range}{error}" + (f", {self.status}" if self.status else "")


@dataclass(frozen=True)
class MetricRow:
    """All metrics of one model on one set of labels (given, corrected or true)."""

    name: str
    values: Mapping[str, MetricValue]
    color: int = 0
    """Number of the color of its dots."""


def measure(
    Y: Any, scores: NDArray[np.floating[Any]], noise: Noise | None = None, *, standard_errors: bool = False
) -> dict[str, MetricValue]:
    """Compute every metric of scores (n, q) with threshold 0; with ``noise``, estimate it from the noisy labels Y.

    The mean average precision over labels comes first. Without ``noise``, metrics of the order of labels in a row use
    the rows that have a label: in a row without labels no order is wrong. ``standard_errors`` adds those over rows.

    >>> measure([[1, 0], [0, 1]], np.array([[0.5, -0.5], [0.5, -0.5]]))["hamming_loss"]
    MetricValue(value=0.5, se=None, status=None)
    """
    predicted, values = (scores >= 0).astype(int), {}
    labeled, everything = rows_with_labels(Y), np.ones(len(scores), dtype=bool)
    for name in sorted(METRICS, key=lambda name: name != MEAN_AVERAGE_PRECISION):
        metric = METRICS[name]
        second, bounds = scores if metric.needs == "scores" else predicted, metric.bounds(scores.shape[1])
        if noise is not None:
            estimate = metric.function(Y, second, noise=noise)
            values[name] = MetricValue(estimate.value, estimate.se, str(estimate.status), bounds)
            continue
        used = labeled if name in RANK_METRICS else everything
        if not used.any():
            values[name] = MetricValue(math.nan, None, bounds=bounds)
            continue
        given, second, error = Y if used.all() else _take(Y, used), second[used], None
        if standard_errors:
            clean = ClassConditionalNoise(0.0, 0.0, n_labels=scores.shape[1])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the metrics themselves warn below
                error = float(metric.function(given, second, noise=clean).se)
        values[name] = MetricValue(float(metric.function(given, second)), error, bounds=bounds)
    return values


def rows_with_labels(Y: Any) -> NDArray[np.bool_]:
    """Return which rows have a label."""
    return np.asarray((Y == 1).sum(1) if is_sparse(Y) else (np.asarray(Y) == 1).sum(1)).ravel() > 0


def _take(Y: Any, rows: NDArray[np.bool_]) -> Any:
    return Y[rows] if is_sparse(Y) else np.asarray(Y)[rows]


def out_of_range_notes(rows: list[MetricRow]) -> list[str]:
    """Explain the estimates that are outside the range of their metric.

    >>> out_of_range_notes([MetricRow("", {"f1": MetricValue(1.2, bounds=(0.0, 1.0))})])[0].split(":")[0]
    '* outside [0, 1]'
    """
    exceeded = {metric.bounds for row in rows for metric in row.values.values() if metric.out_of_range}
    return [f"* outside [{low:g}, {high:g}]: {OUT_OF_RANGE_REASONS}." for low, high in sorted(exceeded)]


def average_precision_of_label(p: FloatArray, scores: FloatArray) -> float:
    r"""Compute the average precision of one label from labels or debiased labels p (n,); NaN is left out.

    With the rows S_t of scores of at least t,

    .. math::
        \text{precision}(t) = \frac{1}{|S_t|} \sum_{i \in S_t} p_i, \qquad
        \text{recall}(t) = \frac{\sum_{i \in S_t} p_i}{\sum_i p_i}

    Both are consistent for the true labels. As in scikit-learn, the result is the sum of precision times increase in
    recall. It is clipped to [0, 1], and NaN without positive labels.

    >>> average_precision_of_label(np.array([1.0, 0.0, 1.0]), np.array([3.0, 2.0, 1.0]))
    0.8333...
    """
    observed = ~np.isnan(p)
    p, scores = p[observed], scores[observed]
    if not p.size or p.sum() <= 0:
        return math.nan
    order = np.argsort(-scores, kind="stable")
    # Rows of equal scores are selected together: a threshold can only follow the last of them.
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    hits = np.cumsum(p[order])[last]
    average = (np.diff(hits / p.sum(), prepend=0.0) * hits / (last + 1)).sum()
    return float(np.clip(average, 0.0, 1.0))
