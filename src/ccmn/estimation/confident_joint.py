"""The confident joint of a label and its guess (section 5): what cleanlab computes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.noise_rates import NEVER, UNINFORMED, LabelRates, Side
from ccmn.estimation.trusted import count_interval


def confident_joint(evidence: Evidence) -> list[LabelRates]:
    """Rates from counts of (observed, confidently guessed) labels; see :func:`joint_counts`.

    Consistent when the probabilities are near the ideal for each class; biased when a label is rare or its noise is
    one-sided. Kept for comparison and exchange: ``NoiseRates.from_confident_joint`` reads cleanlab's own array.
    """
    return [joint_label(*evidence.observed(j), side) for j, side in enumerate(evidence.sides)]


def joint_label(scores: FloatArray, positive: NDArray[np.bool_], side: Side) -> LabelRates:
    """One label: held-out probabilities (n,), and whether a 1 was observed."""
    if positive.all() or not positive.any():
        pos, neg = UNINFORMED, UNINFORMED
        notes: tuple[tuple[str, str], ...] = (("unidentified", "every observed label is the same"),)
    else:
        joint = joint_counts(scores, positive)
        true = joint.sum(0)
        pos, neg = count_interval(joint[0, 1], round(true[1])), count_interval(joint[1, 0], round(true[0]))
        notes = ()
    return LabelRates(
        NEVER if side == "partial" else pos, NEVER if side == "missing" else neg, "point", "confident joint", notes
    )


def joint_counts(scores: FloatArray, positive: NDArray[np.bool_]) -> FloatArray:
    r"""Rows by observed (first index) and guessed label (second), scaled so that each observed class keeps its size.

    A row is guessed positive where its probability reaches the mean of the rows observed positive, negative where
    one minus it reaches the mean of those observed negative; the likelier where both hold, not at all where neither.
    """
    proba = np.stack([1 - scores, scores], 1)
    reached = proba >= np.array([proba[~positive, 0].mean(), proba[positive, 1].mean()])
    guess = np.where(reached, proba, -1.0).argmax(1)
    sure = reached.any(1)
    counts = np.zeros((2, 2))
    np.add.at(counts, (positive[sure].astype(int), guess[sure]), 1)
    counts[np.diag_indices(2)] = np.maximum(counts.diagonal(), 1)
    sizes = np.array([(~positive).sum(), positive.sum()])
    scaled: FloatArray = counts * (sizes / counts.sum(1))[:, None]
    return scaled
