r"""Scores into probabilities of the true labels, strictly inside (0, 1), increasing in the score, 1/2 at the cut.

| loss | probability | why |
| --- | --- | --- |
| hamming / square | (1 + f) / 2, bent at the ends so that it never reaches 0 or 1 | the minimiser is f = 2 P - 1 |
| hamming / logistic, forward | sigma(f) | the minimiser is the log-odds |
| plugin | (P_noisy - rho_neg) / (1 - rho_pos - rho_neg), bent at the ends likewise | the noise inverted |
| all others | sigma(a f), the slope a > 0 fitted on validation data with debiased labels | no natural one |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

_CORNER = 0.9
_FAR = 20.0


LINKS = ("linear", "logistic", "plugin", "slope")


def link_of(loss: str, surrogate: str | None) -> str:
    """Which transformation applies, of ``LINKS``."""
    if loss in ("forward", "plugin"):
        return "logistic" if loss == "forward" else "plugin"
    if loss == "hamming" and surrogate in ("square", "logistic"):
        return "linear" if surrogate == "square" else "logistic"
    return "slope"


def linear_probability(f: NDArray[Any]) -> NDArray[Any]:
    """(1 + f) / 2 up to +-0.9, then approaching 0 and 1 like 1/|f|: increasing everywhere, so no ranks are lost.

    >>> linear_probability(np.array([-3.0, 0.0, 0.5, 1.0])).round(3)
    array([0.002, 0.5  , 0.75 , 0.975])
    """
    excess = np.maximum(np.abs(f) - _CORNER, 0) / (1 - _CORNER)
    bent = 1 - (1 - _CORNER) / 2 / (1 + excess)
    inside = (1 + np.clip(f, -_CORNER, _CORNER)) / 2
    return _strictly_inside(np.where(f > _CORNER, bent, np.where(f < -_CORNER, 1 - bent, inside)))


def logistic_probability(f: NDArray[Any]) -> NDArray[Any]:
    """sigma(f) up to +-20, then approaching 0 and 1 like 1/|f|, where the exponential would run out of digits.

    >>> bool(logistic_probability(np.array([1e4])) > logistic_probability(np.array([1e3])))
    True
    """
    end = expit(-_FAR)
    tail = end / (1 + np.maximum(np.abs(f) - _FAR, 0))
    return _strictly_inside(np.where(f > _FAR, 1 - tail, np.where(f < -_FAR, tail, expit(np.clip(f, -_FAR, _FAR)))))


def _strictly_inside(p: NDArray[Any]) -> NDArray[Any]:
    """Off 0 and 1 by the least that floating point can say, where scores are so large that it has run out."""
    return np.asarray(np.clip(p, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0)))


class SlopeFit:
    """The a > 0 that minimises the mean of softplus(a f) - p a f on debiased labels (NaN left out).

    One number for all labels: the cut at 0 and every ranking stay what they are. The risk needs of the scores how many
    there are of each size, and of the labels one sum: blocks of rows are added one by one. More than one block is
    counted by scores of eleven binary digits, which moves the slope by about 1e-4 of itself.
    """

    def __init__(self) -> None:
        self._first: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None
        self._counts: NDArray[np.float64] | None = None
        self._linear = 0.0

    def add(self, scores: NDArray[Any], p: NDArray[Any], row_weights: NDArray[Any] | None = None) -> None:
        """Scores and debiased labels (n, q) of some rows."""
        seen = ~np.isnan(p)
        f, target = scores[seen], p[seen]
        weight = np.ones(f.size) if row_weights is None else np.broadcast_to(row_weights[:, None], p.shape)[seen]
        if self._first is None and self._counts is None:
            self._first = f, target, weight
            return
        if self._first is not None:
            self._count(*self._first)
            self._first = None
        self._count(f, target, weight)

    def _count(self, f: NDArray[Any], target: NDArray[Any], weight: NDArray[Any]) -> None:
        self._linear += float((weight * target * f).sum())
        half = np.clip(f, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16).view(np.uint16)
        counts = np.asarray(np.bincount(half, weights=weight, minlength=1 << 16), dtype=np.float64)
        self._counts = counts if self._counts is None else self._counts + counts

    def slope(self) -> float:
        """The slope, 1 when undecided."""
        if self._first is not None:
            f, target, weight = self._first
            return _smallest(f, weight, float((weight * target * f).sum()))
        if self._counts is None:
            return 1.0
        kept = np.flatnonzero(self._counts)
        return _smallest(kept.astype(np.uint16).view(np.float16).astype(np.float64), self._counts[kept], self._linear)


_SLOPES = (-4.0, 4.0)
"""Logarithms of the slopes looked at, for scores of unit size."""
_LARGEST_HALF = float(np.finfo(np.float16).max)


def _smallest(f: NDArray[Any], weight: NDArray[Any], linear: float) -> float:
    total = float(weight.sum())
    scale = float(np.sqrt((weight * f**2).sum() / total)) if total > 0 else 0.0
    if scale == 0 or not np.isfinite(scale):
        return 1.0
    f = f / scale

    def slope_of_risk(log_a: float) -> float:
        """Its zero is found to all digits; the least of the risk itself only to half of them."""
        return float((weight * f * expit(np.exp(log_a) * f)).sum() - linear / scale) / total

    # The risk is convex in a: where it still falls at an end, or rises already, that end is the best there is.
    low, high = _SLOPES
    if slope_of_risk(low) >= 0 or slope_of_risk(high) <= 0:
        return float(np.exp(low if slope_of_risk(low) >= 0 else high) / scale)
    return float(np.exp(brentq(slope_of_risk, low, high, xtol=1e-14)) / scale)
