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
from scipy.optimize import minimize_scalar
from scipy.special import expit

_CORNER = 0.9
_FAR = 20.0


def link_of(loss: str, surrogate: str | None) -> str:
    """Which transformation applies: "linear", "logistic", "plugin" or "slope"."""
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


def fit_slope(scores: NDArray[Any], p: NDArray[Any], row_weights: NDArray[Any] | None = None) -> float:
    """The a > 0 that minimises the mean of softplus(a f) - p a f on debiased labels (NaN left out); 1 when undecided.

    One number for all labels: the cut at 0 and every ranking stay what they are.
    """
    seen = ~np.isnan(p)
    f, target = scores[seen], p[seen]
    weight = np.ones(f.size) if row_weights is None else np.broadcast_to(row_weights[:, None], p.shape)[seen]
    scale = float(np.sqrt(np.average(f**2, weights=weight))) if weight.sum() > 0 else 0.0
    if scale == 0 or not np.isfinite(scale):
        return 1.0
    f = f / scale

    def risk(log_a: float) -> float:
        a = np.exp(log_a)
        return float(np.average(np.logaddexp(0, a * f) - target * a * f, weights=weight))

    return float(np.exp(minimize_scalar(risk, bounds=(-4, 4), method="bounded", options={"xatol": 1e-9}).x) / scale)
