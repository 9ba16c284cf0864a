"""Rates from counts of verified labels."""

from __future__ import annotations

import math

import scipy.special

from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL, UNKNOWN_RATE, Z_CONFIDENCE, Rate


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


def trusted_rows_needed(rate: float, half_width: float) -> int:
    r"""Return the number of trusted rows of one true class for a 90 % interval of a given half width.

    The number is :math:`z^2 \rho (1 - \rho) / w^2` for counting alone. With features fewer rows are enough.

    Parameters
    ----------
    rate : float
        Expected rate :math:`\rho`: rho_pos for rows with true label 1, rho_neg for rows with true label 0.
    half_width : float
        Half width w of the interval.

    Returns
    -------
    int
        Number of rows of that true class.

    Examples
    --------
    >>> from ccmn.estimation.trusted import trusted_rows_needed
    >>> trusted_rows_needed(0.2, 0.06)
    121
    """
    return math.ceil(Z_CONFIDENCE**2 * rate * (1 - rate) / half_width**2)
