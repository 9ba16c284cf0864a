"""PML-LRS: partial multi-label learning by low-rank and sparse decomposition (Sun et al., AAAI 2019)."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from ccmn._validation import FloatArray, check_choice, check_count, check_penalty, check_real
from ccmn.baselines.decomposition import with_ones
from ccmn.baselines.linear import LinearPartialLabelClassifier, split_bias
from ccmn.baselines.lrs_solver import solve_lrs
from ccmn.baselines.thresholds import SizePredictor


class PMLLRS(LinearPartialLabelClassifier):
    r"""The candidate matrix as low-rank true labels U plus sparse noise V, U fitted by a low-rank linear map W.

    .. math:: \min \tfrac12 \lVert U - X W \rVert_F^2 + \gamma \lVert U \rVert_* + \beta \lVert V \rVert_1
              + \eta \lVert W \rVert_* \quad \text{subject to } Y = U + V

    No program of the authors is known: the decomposition, the three penalties and their letters are published, which
    letter weighs which term, the factor 1/2 and the cut are inferred. With ``gamma=0`` it is trace-norm-regularised
    Huber regression with threshold beta; the sparse part acts only for beta below 1. Large gamma collapses the model
    (``gamma >= beta * ||Y||_2`` gives U = W = 0). Scores are shrunk towards 0, so that the fixed cut predicts few
    labels when beta is small.

    Parameters
    ----------
    gamma, beta, eta : float
        Weights of the rank of U, the sparsity of V, the rank of W. Sums over rows: what they mean depends on n.
    fit_intercept : bool
        Append a column of ones to X; its weights are penalised with the others.
    threshold : "fixed" or "size_candidate"
        The cut: 0.5, or linear in the row's scores, fitted to agree with the candidate labels.
    max_iter, tol
        Of the alternating direction method; it stops when no entry of a residual or a change is above ``tol``.

    Attributes
    ----------
    W_ : array (d, q)
    U_, V_ : array (n, q)
        ``U_ * candidates`` are the disambiguated training labels.
    intercept_ : array (q,)
    n_iter_ : int
    """

    def __init__(
        self,
        gamma: float = 0.01,
        beta: float = 0.1,
        eta: float = 1.0,
        fit_intercept: bool = False,
        threshold: str = "fixed",
        max_iter: int = 2000,
        tol: float = 1e-6,
    ) -> None:
        self.gamma = gamma
        self.beta = beta
        self.eta = eta
        self.fit_intercept = fit_intercept
        self.threshold = threshold
        self.max_iter = max_iter
        self.tol = tol

    def _check_parameters(self) -> None:
        for name in ("gamma", "beta", "eta"):
            check_penalty(getattr(self, name), name)
        check_count(self.max_iter, "max_iter")
        check_real(self.tol, "tol", 0, float("inf"))
        check_choice(self.threshold, "threshold", ("fixed", "size_candidate"))

    def _learn(self, X: Any, Y: FloatArray) -> None:
        design = with_ones(X) if self.fit_intercept else X
        weights = float(self.gamma), float(self.beta), float(self.eta)
        found = solve_lrs(design, Y, *weights, max_iter=self.max_iter, tolerance=float(self.tol))
        if not found.converged:
            warnings.warn(
                f"PML-LRS stopped after max_iter={self.max_iter} iterations, a residual above tol={self.tol}: raise "
                "max_iter, or scale the features",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.U_, self.V_, self.n_iter_ = found.U, found.V, found.n_iter
        self.W_, bias = split_bias(found.W, self.fit_intercept)
        self._set_scores(self.W_.T, bias)
        if self.threshold == "size_candidate":
            self.size_predictor_ = SizePredictor.fit(self._scores(X), Y)
