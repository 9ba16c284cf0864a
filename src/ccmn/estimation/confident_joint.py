"""Rates from the confident joint of observed and predicted labels, as computed by cleanlab."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence, held_out_scores
from ccmn.estimation.noise_rates import ZERO_RATE, LabelRates, NoiseType, unidentified
from ccmn.estimation.trusted import jeffreys_rate


def confident_joint(evidence: Evidence) -> list[LabelRates]:
    """Estimate the rates from counts of observed and confidently predicted labels.

    The method of confident learning [1]_ is consistent if the probabilities are nearly ideal within each class. It is
    biased if a label is rare or the noise is of one type only. It is provided for comparison and for exchange with
    cleanlab; ``NoiseRates.from_confident_joint`` reads cleanlab's array.

    References
    ----------
    .. [1] C. Northcutt, L. Jiang and I. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR
       70, 2021.
    """
    scores = held_out_scores(evidence)
    return [joint_label(*evidence.observed(scores, j), label_type) for j, label_type in enumerate(evidence.noise_type)]


def joint_label(scores: FloatArray, positive: NDArray[np.bool_], noise_type: NoiseType) -> LabelRates:
    """Return the rates of one label from its probabilities (n,) and whether each row was observed as 1."""
    if positive.all() or not positive.any():
        note = "All observed values are equal, so the rates are unknown. Exclude the label or add rows."
        return unidentified(noise_type, "point", "confident joint", note)
    joint = joint_counts(scores, positive)
    true = joint.sum(0)
    pos = ZERO_RATE if noise_type == "partial" else jeffreys_rate(joint[0, 1], round(true[1]))
    neg = ZERO_RATE if noise_type == "missing" else jeffreys_rate(joint[1, 0], round(true[0]))
    return LabelRates(pos, neg, "point", "confident joint")


def joint_counts(scores: FloatArray, positive: NDArray[np.bool_]) -> FloatArray:
    """Return the rows by observed (first index) and predicted value (second), scaled to the observed class sizes.

    A row is predicted positive if its probability is at least the mean probability of the observed positives, and
    negative if one minus its probability is at least the mean of that over the observed negatives. If both hold, the
    more probable value is predicted. If neither holds, the row is not counted.
    """
    proba = np.stack([1 - scores, scores], 1)
    reached = proba >= np.array([proba[~positive, 0].mean(), proba[positive, 1].mean()])
    predicted = np.where(reached, proba, -1.0).argmax(1)
    counted = reached.any(1)
    counts = np.zeros((2, 2))
    np.add.at(counts, (positive[counted].astype(int), predicted[counted]), 1)
    counts[np.diag_indices(2)] = np.maximum(counts.diagonal(), 1)
    sizes = np.array([(~positive).sum(), positive.sum()])
    scaled: FloatArray = counts * (sizes / counts.sum(1))[:, None]
    return scaled
