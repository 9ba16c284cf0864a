"""Rates from counts of verified labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import scipy.special

from ccmn.estimation.posterior import CONFIDENCE_LEVEL


class Rate(NamedTuple):
    """Estimate of one rate of one label, with standard error and interval."""

    value: float
    se: float
    low: float
    high: float


UNKNOWN_RATE = Rate(0.0, 12**-0.5, 0.0, 1.0)
"""Rate without any evidence: nothing is corrected, the interval is [0, 1], the error that of a uniform variable."""


def jeffreys_rate(k: float, m: int) -> Rate:
    """Return the rate behind k events in m trials: mean, standard deviation and interval of the Jeffreys posterior.

    The posterior is Beta(k + 1/2, m - k + 1/2). The interval is closed at 0 if k = 0 and at 1 if k = m [1]_.

    References
    ----------
    .. [1] L. D. Brown, T. T. Cai and A. DasGupta, "Interval Estimation for a Binomial Proportion", Statistical Science
       16(2), 2001.

    Examples
    --------
    >>> [round(number, 3) for number in jeffreys_rate(10, 50)]
    [0.206, 0.056, 0.121, 0.304]
    """
    if not m:
        return UNKNOWN_RATE
    a, b = 0.5 + k, 0.5 + m - k
    mean, tail = a / (a + b), (1 - CONFIDENCE_LEVEL) / 2
    low, high = (float(scipy.special.betaincinv(a, b, part)) for part in (tail, 1 - tail))
    se = math.sqrt(mean * (1 - mean) / (m + 2))
    return Rate(mean, se, 0.0 if k == 0 else low, 1.0 if k == m else high)
