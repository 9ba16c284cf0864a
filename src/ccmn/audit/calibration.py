"""Held-out probabilities of noisy labels put right by what is known of the noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.surface import calibrate, cells_of

FEWEST = 20
"""Observed rows of either class that a label needs to be calibrated by its own."""
SUREST = 0.01
"""No true label is foreseen more surely than to this."""
_EDGE = 1e-6


def within_noise(noisy: NDArray[Any], pred_proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""Probabilities that noise of these rates allows, calibrated on the noisy labels.

    .. math:: \tfrac12 \bigl(\min(\max(\tilde\eta, \rho_{neg}), 1 - \rho_{pos}) + g\bigr), \qquad
        g = \rho_{neg} + r\, (\epsilon + (1 - 2 \epsilon)\, \sigma(a \operatorname{logit} \tilde\eta + b))

    with a and b the likeliest for the label's noisy values and :math:`\epsilon = 0.01`. No P(noisy 1 | x) is below
    rho_neg or above 1 - rho_pos; that of a model is, and taken at its word makes a label sure to be wrong. g cannot
    leave the range, but trusts the rates and the shape; the mean of both lists flipped labels in an order as good as
    the better of the two, and is nearer to the share that is wrong (docs/audit.md).

    Parameters
    ----------
    noisy : (n, q)
        Noisy labels, NaN where not observed.
    pred_proba : (n, q)
        Held-out probabilities of them.
    rho_pos, rho_neg : (q,)
    """
    bounded = np.clip(pred_proba, rho_neg, 1 - rho_pos)
    columns = [
        _calibrated(noisy[:, j], pred_proba[:, j], rho_pos[j], rho_neg[j]) if _enough(noisy[:, j]) else bounded[:, j]
        for j in range(noisy.shape[1])
    ]
    return np.asarray((bounded + np.stack(columns, 1)) / 2)


def _enough(noisy: FloatArray) -> bool:
    return min(int((noisy == 1).sum()), int((noisy == 0).sum())) >= FEWEST


def _calibrated(noisy: FloatArray, proba: FloatArray, rho_pos: float, rho_neg: float) -> FloatArray:
    """g of one label, for every row."""
    scores, seen = scipy.special.logit(np.clip(proba, _EDGE, 1 - _EDGE)), ~np.isnan(noisy)
    centres, zeros, ones = (part[None] for part in cells_of(scores[seen], noisy[seen] == 1))
    found = calibrate(centres, zeros, ones, np.array([rho_pos]), np.array([rho_neg]))
    true = scipy.special.expit(np.exp(found.slope) * scores + found.offset)
    return np.asarray(rho_neg + (1 - rho_pos - rho_neg) * (SUREST + (1 - 2 * SUREST) * true))
