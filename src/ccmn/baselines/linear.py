"""Methods whose score is linear in the features: f(x) = W'x + b against a cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccmn._validation import FloatArray
from ccmn.baselines.base import PartialLabelClassifier
from ccmn.baselines.thresholds import FIXED_CUT, SizePredictor


class LinearPartialLabelClassifier(PartialLabelClassifier):
    """Scores ``X @ coef_.T + intercept_``; ``coef_`` is (q, d).

    A method may leave a ``size_predictor_`` behind, which then gives every row its own cut in place of 0.5.
    """

    coef_: FloatArray
    intercept_: FloatArray
    size_predictor_: SizePredictor | None

    def _set_scores(self, coef: FloatArray, intercept: FloatArray) -> None:
        self.coef_, self.intercept_, self.size_predictor_ = coef, intercept, None

    def _scores(self, X: Any) -> FloatArray:
        return np.asarray(X @ self.coef_.T) + self.intercept_

    def _cuts(self, scores: FloatArray) -> FloatArray | float:
        return FIXED_CUT if self.size_predictor_ is None else self.size_predictor_.cuts(scores)

    def _margins(self, X: Any) -> FloatArray:
        scores = self._scores(X)
        return scores - self._cuts(scores)


def split_bias(weights: FloatArray, fit_intercept: bool) -> tuple[FloatArray, FloatArray]:
    """Weights (d, q) and bias (q,) from a solution whose last row may be the bias."""
    if fit_intercept:
        return weights[:-1], weights[-1]
    return weights, np.zeros(weights.shape[1])
