"""Ridge and logistic regression on the candidate labels, without noise correction."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from ccmn._containers import to_dense_floats
from ccmn._messages import warn
from ccmn._validation import FloatArray, check_penalty, check_real, name_some
from ccmn.paper.baselines.pml_estimator import LinearPartialLabelClassifier, ShiftedGram, append_ones


class CandidateRidge(LinearPartialLabelClassifier):
    r"""Ridge regression on candidate labels.

    .. math:: \min_W \lVert Y - \Phi W^\top \rVert_F^2 + \lambda \lVert W \rVert_F^2, \qquad \Phi = [X, 1]

    A label is predicted if its score is at least 0.5. The intercept is penalized like every weight, so that PML-NI
    with its published penalties is close to this baseline.

    Parameters
    ----------
    lam : float, default=10
        Penalty :math:`\lambda`. 0 gives the least-squares solution of minimum norm.
    """

    def __init__(self, lam: float = 10) -> None:
        self.lam = lam

    def _check_parameters(self) -> None:
        check_penalty(self.lam, "lam")

    def _fit(self, X: Any, Y: FloatArray) -> None:
        Phi = append_ones(X)
        W = ShiftedGram(Phi).solve(to_dense_floats((Phi.T @ Y).T), float(self.lam))
        self.coef_, self.intercept_ = W[:, :-1], W[:, -1]


class CandidateLogistic(LinearPartialLabelClassifier):
    """One-vs-rest logistic regression on candidate labels.

    A label is predicted if its log-odds are at least 0. If a label is a candidate of every sample or of none, its
    log-odds are constant: the log-odds of its smoothed frequency, (count + 1) / (n + 2).

    Parameters
    ----------
    C : float, default=1.0
        Inverse weight of the l2 penalty, as in scikit-learn. The intercept is not penalized.
    """

    _threshold = 0.0

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def _check_parameters(self) -> None:
        check_real(self.C, "C", 0, float("inf"))

    def _fit(self, X: Any, Y: FloatArray) -> None:
        n, q = Y.shape
        count = Y.sum(0)
        self.coef_, self.intercept_ = np.zeros((q, X.shape[1])), np.log((count + 1) / (n - count + 1))
        one_class = (count == 0) | (count == n)
        if one_class.any():
            which = name_some(np.flatnonzero(one_class).tolist(), self.label_names_, q)
            warn(f"Scores are constant for {which}: candidates of every sample or of none")
        for j in np.flatnonzero(~one_class):
            model = LogisticRegression(C=self.C, max_iter=1000).fit(X, Y[:, j])
            self.coef_[j], self.intercept_[j] = model.coef_[0], model.intercept_[0]
