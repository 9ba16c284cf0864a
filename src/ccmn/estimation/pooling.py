"""Rare labels lean on the others (section 9): estimates are drawn towards their mean, the more so the less is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special
from numpy.typing import NDArray

from ccmn.estimation.rates import NEVER, LabelRates, Rate
from ccmn.validation import FloatArray

FEWEST = 20
"""Observed rows of the rarer class below which a label takes the pooled value alone."""
_EDGE = 0.01
"""Rates are kept this far from 0 and 1 where their log-odds are taken."""


@dataclass(frozen=True)
class Pool:
    """The rates of one side over all labels, as log-odds: their mean, its variance, and their spread about it."""

    mean: float
    mean_variance: float
    spread: float


def pool(labels: Sequence[LabelRates], rarer: NDArray[np.int64]) -> list[LabelRates]:
    r"""Every free rate drawn towards the pooled mean of the labels, on the scale of log-odds.

    .. math:: \theta_j \leftarrow m + \frac{\tau^2}{\tau^2 + s_j^2} (\theta_j - m)

    with m the mean, :math:`s_j` the standard error of :math:`\theta_j` and :math:`\tau` the spread of the labels that
    their errors do not explain. Labels with fewer than 20 observed rows of their rarer
    class have no say in the mean and take it as it is (flag ``shrunk``).

    Parameters
    ----------
    labels : the estimates, by one method
    rarer : (q,)
        Observed rows of each label's rarer class.
    """
    informed = rarer >= FEWEST
    if informed.sum() < 2:
        return list(labels)
    pos = _pooled_side([label.pos for label in labels], informed)
    neg = _pooled_side([label.neg for label in labels], informed)
    return [
        label._replace(pos=p, neg=n, notes=label.notes if known else (*label.notes, _note(count)))
        for label, p, n, known, count in zip(labels, pos, neg, informed, rarer.tolist())
    ]


def _note(count: int) -> tuple[str, str]:
    return "shrunk", f"{count} observed rows of the rarer class are too few: the rates are those of the other labels"


def _pooled_side(rates: Sequence[Rate], informed: NDArray[np.bool_]) -> list[Rate]:
    if any(rate == NEVER for rate in rates):
        return list(rates)
    values = np.clip([rate.value for rate in rates], _EDGE, 1 - _EDGE)
    slope = values * (1 - values)
    theta, variance = scipy.special.logit(values), (np.array([rate.se for rate in rates]) / slope) ** 2
    common = pooled(theta[informed], variance[informed])
    return [
        _drawn(rate, t, v, common) if known else _mean_rate(common)
        for rate, t, v, known in zip(rates, theta, variance, informed)
    ]


def pooled(theta: FloatArray, variance: FloatArray) -> Pool:
    r"""Mean and spread of the labels' log-odds; what their own errors explain is no spread.

    The spread is DerSimonian and Laird's, which lets no badly known label drown the rest: with :math:`w = 1 / s^2`,

    .. math:: \tau^2 = \max\Bigl(0, \frac{\sum_j w_j (\theta_j - \bar\theta_w)^2 - (q - 1)}
              {\sum_j w_j - \sum_j w_j^2 / \sum_j w_j}\Bigr)
    """
    w = 1 / variance
    scatter = float((w * (theta - (w * theta).sum() / w.sum()) ** 2).sum())
    spread = max(0.0, (scatter - (theta.size - 1)) / float(w.sum() - (w**2).sum() / w.sum()))
    weights = 1 / (spread + variance)
    return Pool(float((weights * theta).sum() / weights.sum()), float(1 / weights.sum()), spread)


def _drawn(rate: Rate, theta: float, variance: float, common: Pool) -> Rate:
    weight = common.spread / (common.spread + variance)
    value = float(scipy.special.expit(common.mean + weight * (theta - common.mean)))
    se = np.sqrt(weight * variance + (1 - weight) ** 2 * common.mean_variance) * value * (1 - value)
    # The interval moves with its centre and keeps its length.
    low, high = (float(np.clip(end + value - rate.value, 0, 1)) for end in (rate.low, rate.high))
    return Rate(value, float(se), low, high)


def _mean_rate(common: Pool) -> Rate:
    deviation = np.sqrt(common.mean_variance + common.spread)
    value, low, high = (float(scipy.special.expit(common.mean + z * deviation)) for z in (0, -1.645, 1.645))
    return Rate(value, float(deviation * value * (1 - value)), low, high)
