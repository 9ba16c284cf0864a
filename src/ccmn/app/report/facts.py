"""Numbers of a report: metrics with their ranges and standard errors, and curves of precision and recall."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray
from ccmn.metrics import METRICS
from ccmn.metrics.corrected_metrics import average_precision_sums
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
    predicted, labeled, values = (scores >= 0).astype(int), rows_with_labels(Y), {}
    clean = ClassConditionalNoise(0.0, 0.0, n_labels=scores.shape[1]) if standard_errors else None
    for name in sorted(METRICS, key=lambda name: name != MEAN_AVERAGE_PRECISION):
        metric, given = METRICS[name], Y
        second, bounds = scores if metric.needs == "scores" else predicted, metric.bounds(scores.shape[1])
        if noise is None and name in RANK_METRICS and not labeled.all():
            given, second = Y[labeled] if is_sparse(Y) else np.asarray(Y)[labeled], second[labeled]
        if not len(second):
            values[name] = MetricValue(math.nan, bounds=bounds)
        elif noise is not None:
            estimate = metric.function(given, second, noise=noise)
            values[name] = MetricValue(estimate.value, estimate.se, str(estimate.status), bounds)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the metric itself warns below
                error = None if clean is None else float(metric.function(given, second, noise=clean).se)
            values[name] = MetricValue(float(metric.function(given, second)), error, bounds=bounds)
    return values


def rows_with_labels(Y: Any) -> NDArray[np.bool_]:
    """Return which rows have a label."""
    return np.asarray((Y == 1).sum(1) if is_sparse(Y) else (np.asarray(Y) == 1).sum(1)).ravel() > 0


def out_of_range_notes(rows: list[MetricRow]) -> list[str]:
    """Explain the estimates that are outside the range of their metric.

    >>> out_of_range_notes([MetricRow("", {"f1": MetricValue(1.2, bounds=(0.0, 1.0))})])[0].split(":")[0]
    '* outside [0, 1]'
    """
    exceeded = {metric.bounds for row in rows for metric in row.values.values() if metric.out_of_range}
    return [f"* outside [{low:g}, {high:g}]: {OUT_OF_RANGE_REASONS}." for low, high in sorted(exceeded)]


def average_precisions(p: FloatArray, scores: FloatArray) -> FloatArray:
    """Return the average precision of each label from labels or debiased labels p (n, q), clipped to [0, 1].

    It is consistent for the true labels, and NaN without positive labels.

    >>> average_precisions(np.array([[1.0], [0.0], [1.0]]), np.array([[3.0], [2.0], [1.0]]))
    array([0.83333333])
    """
    hits, positives = (part.numpy() for part in average_precision_sums(torch.tensor(p), torch.tensor(scores)))
    found: FloatArray = np.divide(hits, positives, out=np.full_like(positives, np.nan), where=positives > 0)
    return found.clip(0, 1)
