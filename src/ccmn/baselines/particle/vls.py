"""PAR-VLS: a label is predicted when it collects more weighted votes than the virtual label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.baselines.particle.pairs import VIRTUAL, label_pairs

TIE = 1e-9
"""Votes closer than this are equal; a label must have strictly more than the cut."""


def strictly_above(margins: FloatArray) -> FloatArray:
    """Margins in which a tie is negative, since decision_function >= 0 predicts."""
    return np.where(np.abs(margins) < TIE, -TIE, margins)


def weighted_votes(votes: NDArray[np.bool_], accuracy: FloatArray, q: int) -> tuple[FloatArray, FloatArray]:
    r"""Votes of the labels (n, q) and of the virtual label (n, 1), each weighted by its classifier's accuracy.

    .. math:: \zeta_j = \sum_{l > j} a_{jl} h_{jl} + \sum_{l < j} a_{lj} (1 - h_{lj}) + a_{jv} h_{jv}, \qquad
              \zeta_v = \sum_j a_{jv} (1 - h_{jv})

    All together they sum to the sum of the accuracies.
    """
    pairs = np.array(label_pairs(q))
    # Column q collects the virtual label's votes.
    first, second = _tally(pairs[:, 0], q), _tally(np.where(pairs[:, 1] == VIRTUAL, q, pairs[:, 1]), q)
    zeta = (votes * accuracy) @ first + (~votes * accuracy) @ second
    return zeta[:, :q], zeta[:, q:]


def _tally(label: NDArray[np.intp], q: int) -> FloatArray:
    """(P, q + 1): 1 where the pair's vote goes to the label."""
    return np.equal.outer(label, np.arange(q + 1)).astype(np.float64)


def vls_margins(votes: NDArray[np.bool_], accuracy: FloatArray, q: int, *, ceil_votes: bool = False) -> FloatArray:
    r""":math:`\zeta_j - \zeta_v`.

    ``ceil_votes`` rounds both up first, as the released program does, and divides by the row's range, so that scores
    within a row are its min-max scaled ones; equal numbers of votes are then common.
    """
    zeta, virtual = weighted_votes(votes, accuracy, q)
    if not ceil_votes:
        return strictly_above(zeta - virtual)
    # Sums of ones must not be rounded up for 1e-16 too much.
    zeta, virtual = np.ceil(zeta - TIE), np.ceil(virtual - TIE)
    spread = zeta.max(1, keepdims=True) - zeta.min(1, keepdims=True)
    return np.asarray((zeta - virtual - 0.5) / np.maximum(spread, 1.0))
