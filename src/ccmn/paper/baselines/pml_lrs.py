"""PML-LRS: partial multi-label learning by low-rank and sparse decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ccmn._messages import warn
from ccmn._validation import FloatArray, check_count, check_penalty, check_real
from ccmn.paper.baselines.pml_estimator import (
    LinearPartialLabelClassifier,
    ShiftedGram,
    shrink_singular_values_tall,
    soft_threshold,
)


class PMLLRS(LinearPartialLabelClassifier):
    r"""Partial multi-label learning by low-rank and sparse decomposition [1]_.

    The candidate matrix Y is the sum of low-rank true labels U and sparse noise V. A low-rank linear map W fits U:

    .. math:: \min \tfrac12 \lVert U - X W \rVert_F^2 + \gamma \lVert U \rVert_* + \beta \lVert V \rVert_1
              + \eta \lVert W \rVert_* \quad \text{subject to } Y = U + V

    Parameters
    ----------
    gamma : float, default=0.01
        Trace-norm penalty of U.
    beta : float, default=0.1
        l1 penalty of V.
    eta : float, default=1.0
        Trace-norm penalty of W.
    fit_intercept : bool, default=False
        Append a column of ones to X. Its weights are penalized like all others.
    max_iter : int, default=2000
        Maximum number of iterations.
    tol : float, default=1e-6
        The solver stops when no entry of a residual or of a change exceeds ``tol``.

    Attributes
    ----------
    W_ : ndarray of shape (d, q)
        Linear map.
    U_ : ndarray of shape (n, q)
        Estimated true labels of the training samples; ``U_ * y`` are the disambiguated candidates.
    V_ : ndarray of shape (n, q)
        Estimated noise of the training samples.
    coef_ : ndarray of shape (q, d)
        Transpose of ``W_``.
    intercept_ : ndarray of shape (q,)
        Intercepts; zero without ``fit_intercept``.
    n_iter_ : int
        Number of iterations.

    Notes
    -----
    No code of the authors is known. The decomposition and the penalties are published. The assignment of letters to
    terms, the factor 1/2, the threshold and the solver [2]_ are our reconstruction.

    The penalties refer to sums over samples, so their effect depends on n. With ``gamma=0`` the method is
    trace-norm-regularized Huber regression with threshold ``beta``; V is nonzero only for ``beta < 1``. For ``gamma >=
    beta * ||Y||_2`` the solution is U = W = 0. Scores are shrunk towards 0: with a small ``beta`` the fixed threshold
    predicts few labels.

    References
    ----------
    .. [1] L. Sun, S. Feng, T. Wang, C. Lang and Y. Jin, "Partial multi-label learning by low-rank and sparse
       decomposition", AAAI 2019.
    .. [2] S. Boyd, N. Parikh, E. Chu, B. Peleato and J. Eckstein, "Distributed optimization and statistical learning
       via the alternating direction method of multipliers", Foundations and Trends in Machine Learning 3(1), 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.paper.baselines import PMLLRS
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 4))
    >>> Y = (X @ rng.normal(size=(4, 3)) > 0).astype(int)
    >>> candidates = np.maximum(Y, rng.random(Y.shape) < 0.2).astype(int)
    >>> clf = PMLLRS(fit_intercept=True).fit(X, candidates)
    >>> clf.W_.shape, clf.U_.shape
    ((4, 3), (200, 3))
    >>> bool((clf.predict(X) == Y).mean() > 0.9)
    True
    """

    def __init__(
        self,
        gamma: float = 0.01,
        beta: float = 0.1,
        eta: float = 1.0,
        fit_intercept: bool = False,
        *,
        max_iter: int = 2000,
        tol: float = 1e-6,
    ) -> None:
        self.gamma = gamma
        self.beta = beta
        self.eta = eta
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def _check_parameters(self) -> None:
        for name in ("gamma", "beta", "eta"):
            check_penalty(getattr(self, name), name)
        check_count(self.max_iter, "max_iter")
        check_real(self.tol, "tol", 0, float("inf"))

    def _fit(self, X: Any, Y: FloatArray) -> None:
        r"""Minimize the objective by the alternating direction method of multipliers.

        The two blocks are (U, W) and (V, K = U, J = W), with scaled duals A, B and C; with two blocks the method
        converges for any penalty, here 1. The first block is linear: with :math:`R = Y - V + A + K - B`, W solves
        :math:`(\tfrac23 X^\top X + I) W = J - C + X^\top R / 3`, and :math:`U = (R + X W) / 3`. The second block is one
        over-relaxed proximal step each. One decomposition of X serves all iterations.
        """
        X, relaxation = self._design(X), 1.6
        solve = ShiftedGram(X).solver(1.5)
        V, A, B = (np.zeros_like(Y) for _ in range(3))
        K = Y
        J = C = np.zeros((X.shape[1], Y.shape[1]))
        for iteration in range(1, self.max_iter + 1):
            self.n_iter_ = iteration
            R = (Y - V + A) + (K - B)
            W = solve((J - C + np.asarray(X.T @ R) / 3).T).T * 1.5
            U = (R + np.asarray(X @ W)) / 3
            previous = V, K, J
            relaxed = [relaxation * new + (1 - relaxation) * old for new, old in zip((Y - U, U, W), previous)]
            V = soft_threshold(relaxed[0] + A, self.beta)
            K = shrink_singular_values_tall(relaxed[1] + B, self.gamma)
            J = shrink_singular_values_tall(relaxed[2] + C, self.eta)
            A, B, C = A + relaxed[0] - V, B + relaxed[1] - K, C + relaxed[2] - J
            residuals = Y - U - V, U - K, W - J
            changes = V - previous[0], K - previous[1], J - previous[2]
            if max(np.abs(matrix).max(initial=0.0) for matrix in (*residuals, *changes)) < self.tol:
                break
        else:
            warn(
                f"PML-LRS did not converge to tol={self.tol} in max_iter={self.max_iter} iterations; increase max_iter "
                "or scale the features",
                ConvergenceWarning,
            )
        self.U_, self.V_ = K, Y - K
        self._set_weights(J)
