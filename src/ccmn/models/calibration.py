r"""Probabilities and thresholds: how scores become probabilities of the true labels, and what is fitted for that.

Probabilities lie strictly inside (0, 1), increase with the score and are 1/2 at the threshold.

| loss | link | probability | reason |
| --- | --- | --- | --- |
| hamming / square | linear | (1 + f) / 2, with tails that never reach 0 or 1 | the minimizer is f = 2 P - 1 |
| hamming / logistic, forward | logistic | sigma(f) | the minimizer is the log-odds |
| all others | slope | sigma(a f), a > 0 fitted on debiased validation labels | Platt scaling [1]_ without offset |

The slope is the same for all labels, so that probabilities order the labels of a row as the scores do.

References
----------
.. [1] J. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods",
   Advances in Large Margin Classifiers, MIT Press, 1999.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

MAX_TAIL = 0.05
"""Largest probability in the tails of the linear link."""
_MAX_LOG_ODDS = 20.0
"""Scores of the logistic link beyond this value are in the tails, because the exponential would run out of digits."""


def linear_probability(f: NDArray[Any], tail: Any = MAX_TAIL) -> NDArray[Any]:
    """Return p = (1 + f) / 2, with tails below ``tail`` and above 1 - ``tail`` that approach 0 and 1 like 1 / abs(f).

    >>> linear_probability(np.array([-3.0, 0.0, 0.5, 1.0])).round(3)
    array([0.002, 0.5  , 0.75 , 0.975])
    """
    p = (1 + f) / 2
    tiny = np.finfo(np.float64).tiny
    low, high = (tail**2 / np.maximum(2 * tail - part, tiny) for part in (p, 1 - p))
    return _open_interval(np.where(p < tail, low, np.where(1 - p < tail, 1 - high, p)))


def logistic_probability(f: NDArray[Any]) -> NDArray[Any]:
    """Return sigma(f) for abs(f) < 20; the tails approach 0 and 1 like 1 / abs(f), so that ranks are kept.

    >>> bool(logistic_probability(np.array([1e4])) > logistic_probability(np.array([1e3])))
    True
    """
    end = expit(-_MAX_LOG_ODDS)
    tail = end / (1 + np.maximum(np.abs(f) - _MAX_LOG_ODDS, 0))
    inside = expit(np.clip(f, -_MAX_LOG_ODDS, _MAX_LOG_ODDS))
    return _open_interval(np.where(f > _MAX_LOG_ODDS, 1 - tail, np.where(f < -_MAX_LOG_ODDS, tail, inside)))


def _open_interval(p: NDArray[Any]) -> NDArray[Any]:
    """Return probabilities that are at least the smallest floating-point step away from 0 and 1."""
    return np.asarray(np.clip(p, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0)))


def f1_thresholds(
    scores: NDArray[Any], p: NDArray[Any], row_weights: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    r"""Return the threshold t of every label with the largest :math:`2 TP / (PP + P)`.

    :math:`TP = \sum_i 1[f_i \ge t]\, p_i`, :math:`PP = \sum_i 1[f_i \ge t]`, :math:`P = \sum_i p_i` with debiased
    labels p, so that the estimate is consistent for the F1 score on true labels. Thresholds lie halfway between two
    scores. A label whose debiased labels have no positive sum keeps its threshold at 0.
    """
    thresholds = np.zeros(scores.shape[1])
    weights = np.ones(len(scores)) if row_weights is None else row_weights
    for j in range(scores.shape[1]):
        observed = ~np.isnan(p[:, j])
        order = np.argsort(-scores[observed, j], kind="stable")
        f, weight = scores[observed, j][order], weights[observed][order]
        target = weight * p[observed, j][order]
        positives = target.sum()
        if positives <= 0:
            continue
        f1 = 2 * target.cumsum() / (weight.cumsum() + positives)
        f1[:-1][f[:-1] == f[1:]] = -np.inf  # a threshold cannot separate equal scores
        best = int(f1.argmax())
        thresholds[j] = (f[best] + f[best + 1]) / 2 if best + 1 < f.size else f[best]
    return thresholds
