"""The model's doubt about the labels given: of one row when it is asked for, and of all rows as an order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.audit import believed_rates, p_wrong
from ccmn.audit.label_issues import descending
from ccmn.estimation import NoiseRates
from ccmn.noise import NoiseModel

_BLOCK = 2**16


class Doubt:
    """How probably labels are wrong, by held-out probabilities and rates.

    Parameters
    ----------
    given : (n, q)
        Labels, NaN where not observed.
    pred_proba : float64 (n, q)
        Held-out probabilities of the noisy labels.
    noise : NoiseModel or NoiseRates

    Attributes
    ----------
    highest : float64 (n,)
        The largest p_wrong of each row, 0 where nothing was observed.
    order : int64 (n,)
        Rows, the most suspicious first.
    """

    def __init__(self, given: NDArray[np.float32], pred_proba: FloatArray, noise: NoiseModel | NoiseRates) -> None:
        self._given, self._pred_proba = given, pred_proba
        self._rates = believed_rates(noise)
        step = max(1, _BLOCK // given.shape[1])
        blocks = [self._p_wrong(slice(i, i + step)) for i in range(0, len(given), step)]
        self.highest: FloatArray = np.concatenate([np.nan_to_num(block).max(1) for block in blocks])
        self.order = descending(self.highest)

    def of_row(self, row: int) -> FloatArray:
        """p_wrong of every label of a row; NaN where it was not observed."""
        found: FloatArray = self._p_wrong(slice(row, row + 1))[0]
        return found

    def _p_wrong(self, rows: slice) -> FloatArray:
        return p_wrong(self._given[rows], self._pred_proba[rows], self._rates.rho_pos, self._rates.rho_neg)
