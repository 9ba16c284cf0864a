"""Where the cut lies between labels that are predicted and those that are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccmn._validation import FloatArray

FIXED_CUT = 0.5
"""Half way between the targets 0 and 1 of a regression on candidate labels."""
BEYOND = 0.1
"""How far the two outermost cuts lie from the lowest and the highest score."""


def best_cuts(scores: FloatArray, reference: FloatArray) -> FloatArray:
    """For every row the first of q + 1 cuts that agrees with the reference labels most often.

    The cuts are below all scores, half way between neighbours in sorted order, and above all.

    >>> best_cuts(np.array([[0.1, 0.9, 0.5]]), np.array([[0, 1, 0]]))
    array([0.7])
    """
    ordered = np.sort(scores, axis=1)
    middle = (ordered[:, 1:] + ordered[:, :-1]) / 2
    cuts = np.hstack([ordered[:, :1] - BEYOND, middle, ordered[:, -1:] + BEYOND])
    wrong = np.stack([((scores >= cut[:, None]) != (reference > 0)).sum(1) for cut in cuts.T], axis=1)
    return np.asarray(cuts[np.arange(len(cuts)), wrong.argmin(1)])


@dataclass(frozen=True)
class SizePredictor:
    """A row's cut as a linear function of its scores: cut = scores @ weights + bias."""

    weights: FloatArray
    bias: float

    @classmethod
    def fit(cls, scores: FloatArray, reference: FloatArray) -> SizePredictor:
        """Least squares on the best cuts; of least norm where low-rank scores leave it open."""
        design = np.hstack([scores, np.ones((len(scores), 1))])
        solution = np.linalg.lstsq(design, best_cuts(scores, reference), rcond=None)[0]
        return cls(np.asarray(solution[:-1], dtype=np.float64), float(solution[-1]))

    def cuts(self, scores: FloatArray, *, drop_bias: bool = False) -> FloatArray:
        """(n, 1). ``drop_bias`` leaves the bias out, as the released program of PML-NI does with test rows."""
        return np.asarray(scores @ self.weights + (0.0 if drop_bias else self.bias))[:, None]
