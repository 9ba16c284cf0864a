"""How good predictions are, by every metric: plain, or estimated for clean labels from noisy ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.metrics import METRICS, Noise


@dataclass(frozen=True)
class Figure:
    """A metric's value; estimated ones have a standard error and a status."""

    value: float
    se: float | None = None
    status: str | None = None


@dataclass(frozen=True)
class MetricLine:
    """Every metric of one model against one kind of labels."""

    name: str
    figures: Mapping[str, Figure]
    colour: int
    """The number of its colour: lines of one kind share it."""


@dataclass(frozen=True)
class MetricFacts:
    """What was measured, a line each, and a sentence of what the lines are."""

    lines: tuple[MetricLine, ...]
    note: str


def measure(Y: Any, scores: NDArray[np.floating[Any]], noise: Noise | None = None) -> dict[str, Figure]:
    """Every metric of scores (n, q), positive from 0 on; with ``noise`` the labels are noisy, the figures estimates.

    >>> measure([[1, 0], [0, 1]], np.array([[0.5, -0.5], [0.5, -0.5]]))["hamming_loss"]
    Figure(value=0.5, se=None, status=None)
    """
    predicted = (scores >= 0).astype(int)
    found = {}
    for name, metric in METRICS.items():
        second = scores if metric.needs == "scores" else predicted
        if noise is None:
            found[name] = Figure(float(metric.function(Y, second)))
        else:
            estimate = metric.function(Y, second, noise=noise)
            found[name] = Figure(float(estimate.value), float(estimate.se), str(estimate.status))
    return found
