"""The probability that a given label is wrong, on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray

_ORDER = 1e-12
"""How much of the model's own doubt is let into p_wrong, so that what is sure to be wrong stays in order."""


def p_wrong(noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""P(true label differs from the given one | x, given label), by Bayes' rule.

    .. math::
        P(y = 0 \mid \tilde y = 1, x) = \frac{\rho_{neg} (1 - \eta)}{\tilde\eta}, \qquad
        P(y = 1 \mid \tilde y = 0, x) = \frac{\rho_{pos}\, \eta}{1 - \tilde\eta}

    with :math:`\tilde\eta = P(\tilde y = 1 \mid x)`, the probability of the *noisy* label, and
    :math:`\eta = (\tilde\eta - \rho_{neg}) / r`, :math:`r = 1 - \rho_{pos} - \rho_{neg}`, the corrected posterior. Both
    are one formula in :math:`s = P(\tilde y = \text{given} \mid x)` and
    :math:`o = P(\tilde y = \text{given} \mid y = \text{other})`:

    .. math:: \frac{o}{r} \left( \frac{o + r}{s} - 1 \right), \qquad o \le s \le o + r

    Noise of these rates cannot take s out of this range; scores that leave it are brought back to its ends, where a
    label is sure to be wrong, or right. The former are told apart by s, in the twelfth digit.

    Parameters
    ----------
    noisy : (..., q)
        Given labels, 0 or 1; NaN (not observed) comes out as NaN.
    pred_proba : (..., q)
        Held-out probabilities of the noisy labels.
    rho_pos, rho_neg : (q,)

    Examples
    --------
    >>> p_wrong(np.array([1, 0]), np.array([0.5, 0.5]), np.array([0.1, 0.2]), np.array([0.3, 0.0]))
    array([0.4 , 0.25])
    """
    given = noisy == 1
    signal = 1 - rho_pos - rho_neg
    other = np.where(given, rho_neg, rho_pos)
    self = np.where(given, pred_proba, 1 - pred_proba)
    # 0 / 0 where what was given cannot be, neither from the true label nor from a flip: never wrong, by the rates.
    within = np.clip(self, np.maximum(other, np.finfo(np.float64).tiny), other + signal)
    wrong = np.minimum(other / signal * ((other + signal) / within - 1), 1)
    result: FloatArray = wrong * (1 - _ORDER * self)
    if np.issubdtype(noisy.dtype, np.floating):
        result[np.isnan(noisy)] = np.nan
    return result
