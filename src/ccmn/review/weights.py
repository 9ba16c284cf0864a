"""How much a row that a person has answered in full says, against one whose labels are only debiased."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ccmn._validation import FloatArray
from ccmn.estimation import NoiseRates
from ccmn.review.trusted import TrustedRows

SPREAD = 0.1
"""Variance of a true label about what a fair model foresees."""


def row_weights(n: int, rates: NoiseRates, trusted: TrustedRows, drawn: Iterable[int]) -> FloatArray:
    r"""Weights (n,) of the rows in training: the inverse of the variance of their labels, 1 for noisy ones.

    A debiased label spreads about the true one with variance

    .. math:: v_j = \frac{\pi_j \rho_{pos,j} (1 - \rho_{pos,j}) + (1 - \pi_j) \rho_{neg,j} (1 - \rho_{neg,j})}
                         {(1 - \rho_{pos,j} - \rho_{neg,j})^2}

    and a true label not at all; both spread by s about what a model foresees. So a row with true labels is worth
    :math:`1 + \bar v / s` others. Rows drawn by lot only: to give weight to rows that were looked at because they look
    wrong would bend the sample. And rows known in full only, since noisy labels would get the weight, too.
    """
    pos, neg, prior = rates.noise.rho_pos, rates.noise.rho_neg, np.nan_to_num(rates.prior, nan=0.5)
    spread = (prior * pos * (1 - pos) + (1 - prior) * neg * (1 - neg)) / (1 - pos - neg) ** 2
    full = trusted.rows[~np.isnan(trusted.Y).any(1)]
    weights = np.ones(n)
    weights[np.intersect1d(full, np.array(list(drawn), dtype=np.int64))] += spread.mean() / SPREAD
    return weights
