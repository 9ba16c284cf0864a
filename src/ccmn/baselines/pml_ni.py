"""PML-NI: partial multi-label learning with noisy label identification (Xie & Huang, AAAI 2020; TPAMI 2022)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from typing_extensions import Self

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray, check_candidates, check_choice, check_count, check_penalty, check_same_shape
from ccmn.baselines.decomposition import with_ones
from ccmn.baselines.linear import LinearPartialLabelClassifier
from ccmn.baselines.ni_solvers import SOLVERS, NIProblem
from ccmn.baselines.thresholds import SizePredictor


class PMLNI(LinearPartialLabelClassifier):
    r"""A low-rank classifier U of the true labels and a sparse identifier V of the noisy ones.

    .. math:: \min_{U, V} \tfrac12 \lVert Y - \Phi (U + V)^\top \rVert_F^2 + \tfrac\lambda2 \lVert U + V \rVert_F^2
              + \beta \lVert U \rVert_* + \gamma \lVert V \rVert_1, \qquad \Phi = [X, 1]

    The loss is a sum over rows, so what a penalty means depends on n; the bias is penalised like every weight. Where
    ``gamma >= beta``, V = 0 is optimal (the trace norm is never above the l1 norm), so that with the published defaults
    the method is trace-norm-regularised ridge regression on the candidate labels; both parts are active only for
    :math:`\beta / \sqrt{q (d + 1)} < \gamma < \beta`. The published program maps every feature to [-1, 1] first
    (``MinMaxScaler((-1, 1))`` in a pipeline).

    Parameters
    ----------
    lam, beta, gamma : float
        :math:`\lambda, \beta, \gamma` above.
    max_iter : int
        A warning says so when the solver needs more. Below about 60 "alm" returns U = 0.
    solver : "alm" or "proximal"
        "alm": the released program's inexact augmented Lagrangian, its steps in its order. "proximal": accelerated
        proximal gradient on U and V together, to the same optimum; it often needs thousands of iterations.
    threshold : "fixed", "size_candidate" or "size_true"
        The cut: 0.5; or linear in the row's scores, fitted to agree with the candidate labels of the training rows; or,
        as in the released program, with their TRUE labels, which must then be given to ``fit``.
    released_test_cut : bool
        Leave the bias of the fitted cut out when predicting, as the released program does; only with "size_true".

    Attributes
    ----------
    U_, V_ : array (q, d + 1)
        The bias in the last column.
    n_iter_ : int
    coef_, intercept_
        U without and its bias.
    """

    def __init__(
        self,
        lam: float = 10,
        beta: float = 0.5,
        gamma: float = 0.5,
        max_iter: int = 500,
        solver: str = "alm",
        threshold: str = "fixed",
        released_test_cut: bool = False,
    ) -> None:
        self.lam = lam
        self.beta = beta
        self.gamma = gamma
        self.max_iter = max_iter
        self.solver = solver
        self.threshold = threshold
        self.released_test_cut = released_test_cut

    def fit(self, X: Any, candidates: Any, true_labels: Any = None) -> Self:
        """Learn from features and candidate sets.

        ``true_labels`` (n, q) are taken, and then needed, with ``threshold="size_true"`` only: a learner from partial
        labels has none.
        """
        self._check_parameters()
        self._check_truth(true_labels)
        X, Y = self._read(X, candidates)
        reference = Y
        if true_labels is not None:
            reference = check_candidates(to_dense_array(true_labels), "true_labels")
            check_same_shape(reference, Y, "true_labels", "candidates")
        self._learn(X, Y)
        if self.threshold != "fixed":
            self.size_predictor_ = SizePredictor.fit(self._scores(X), reference)
        return self

    def noise_scores(self, X: Any) -> FloatArray:
        """V [x; 1], (n, q): how strongly a row's features speak for a label being in the set by mistake."""
        X = self._features(X)
        return np.asarray(X @ self.V_[:, :-1].T) + self.V_[:, -1]

    def _check_parameters(self) -> None:
        for name in ("lam", "beta", "gamma"):
            check_penalty(getattr(self, name), name)
        check_count(self.max_iter, "max_iter")
        SOLVERS[self.solver]
        check_choice(self.threshold, "threshold", ("fixed", "size_candidate", "size_true"))
        if self.released_test_cut and self.threshold != "size_true":
            raise ValueError(
                "released_test_cut=True repeats the released program's cut: it needs threshold='size_true'"
            )

    def _check_truth(self, true_labels: Any) -> None:
        if (self.threshold == "size_true") == (true_labels is not None):
            return
        if true_labels is None:
            raise ValueError(
                "threshold='size_true' fits the cut to the true training labels, as the released program does: give "
                "fit(X, candidates, true_labels=...), or use 'size_candidate', which needs none"
            )
        raise ValueError(f"true_labels are not used with threshold={self.threshold!r}: leave them out")

    def _learn(self, X: Any, Y: FloatArray) -> None:
        problem = NIProblem(with_ones(X), Y, float(self.lam), float(self.beta), float(self.gamma))
        found = SOLVERS[self.solver](problem, self.max_iter)
        if not found.converged:
            warnings.warn(
                f"PML-NI stopped after max_iter={self.max_iter} iterations without having converged: raise max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.U_, self.V_, self.n_iter_ = found.U, found.V, found.n_iter
        self._set_scores(found.U[:, :-1], found.U[:, -1])

    def _cuts(self, scores: FloatArray) -> FloatArray | float:
        if self.size_predictor_ is not None and self.released_test_cut:
            return self.size_predictor_.cuts(scores, drop_bias=True)
        return super()._cuts(scores)
