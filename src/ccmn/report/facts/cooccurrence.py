"""Which labels go together: as they are given, and as they are by the rates of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccmn._validation import FloatArray
from ccmn.noise import NoiseModel

MOST_LABELS = 60
"""More would be too small to see, and their pairs too many for one page: the commonest are shown."""


@dataclass(frozen=True, eq=False)
class CooccurrenceFacts:
    """P(label of the column | label of the row), of the commonest labels in the order of the data."""

    names: tuple[str, ...]
    given: FloatArray
    corrected: FloatArray | None
    """Estimated for the true labels, kept in [0, 1]; None where the noise is not known, or moves labels together."""
    left_out: int


def cooccurrence_facts(Y: FloatArray, names: Sequence[str], noise: NoiseModel | None = None) -> CooccurrenceFacts:
    """Count pairs of labels (n, q), NaN where not observed."""
    shown = np.sort(np.argsort(-np.nansum(Y, 0), kind="stable")[:MOST_LABELS])
    corrected = None
    if noise is not None and noise.flips_independent:
        debiased = np.asarray(noise.debias(Y), dtype=np.float64)
        corrected = conditional_shares(debiased[:, shown]).clip(0, 1)
    return CooccurrenceFacts(
        tuple(names[j] for j in shown), conditional_shares(Y[:, shown]), corrected, len(names) - shown.size
    )


def conditional_shares(p: FloatArray) -> FloatArray:
    r"""Shares of the rows with label j that have label k, too, (q, q), from labels or debiased ones, NaN not observed.

    .. math:: \frac{\sum_i p_{ij} p_{ik}}{\sum_i p_{ij}}, \qquad j \neq k

    over rows in which both are observed; 1 on the diagonal, NaN where no row has label j. Flips of different labels are
    independent given the true ones, so both sums are unbiased for those of the true labels.

    >>> conditional_shares(np.array([[1.0, 1.0], [1.0, 0.0]]))
    array([[1. , 0.5],
           [1. , 1. ]])
    """
    seen = ~np.isnan(p)
    known = np.where(seen, p, 0.0)
    rows = known.T @ seen
    shares: FloatArray = np.divide(known.T @ known, rows, out=np.full(rows.shape, np.nan), where=rows > 0)
    np.fill_diagonal(shares, 1.0)
    return shares
