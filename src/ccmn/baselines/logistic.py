"""One-vs-rest logistic regression on the candidate labels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from ccmn._validation import FloatArray, check_count, check_real, name_some
from ccmn.baselines.linear import LinearPartialLabelClassifier


class CandidateLogistic(LinearPartialLabelClassifier):
    """Takes candidates at their word: a logistic regression for every label, predicted where its log-odds are above 0.

    A label that is a candidate of every row, or of none, has no regression: its log-odds are those of its smoothed
    frequency, (count + 1) / (n + 2).

    Parameters
    ----------
    C : float
        Inverse weight of the l2 penalty, as in scikit-learn; the bias is not penalised.
    max_iter : int

    Attributes
    ----------
    coef_ : array (q, d)
    intercept_ : array (q,)
    n_iter_ : int
        Of the label that took most.
    """

    def __init__(self, C: float = 1.0, max_iter: int = 1000) -> None:
        self.C = C
        self.max_iter = max_iter

    def _check_parameters(self) -> None:
        check_real(self.C, "C", 0, float("inf"))
        check_count(self.max_iter, "max_iter")

    def _learn(self, X: Any, Y: FloatArray) -> None:
        n, q = Y.shape
        count = Y.sum(0)
        coef, intercept = np.zeros((q, X.shape[1])), np.log((count + 1) / (n - count + 1))
        self.n_iter_ = 1
        one_class = (count == 0) | (count == n)
        if one_class.any():
            which = name_some(np.flatnonzero(one_class).tolist(), self.label_names_, q)
            warnings.warn(f"every row, or none, has {which} as candidate: constant scores there", stacklevel=3)
        for j in np.flatnonzero(~one_class):
            model = LogisticRegression(C=self.C, max_iter=self.max_iter).fit(X, Y[:, j])
            coef[j], intercept[j] = model.coef_[0], model.intercept_[0]
            self.n_iter_ = max(self.n_iter_, int(model.n_iter_[0]))
        self._set_scores(coef, intercept)

    def _cuts(self, scores: FloatArray) -> FloatArray | float:
        return 0.0
