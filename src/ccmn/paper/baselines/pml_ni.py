"""PML-NI: partial multi-label learning with noisy label identification."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from typing_extensions import Self

from ccmn._containers import to_dense_floats
from ccmn._messages import warn
from ccmn._validation import FloatArray, check_count, check_penalty
from ccmn.paper.baselines.pml_estimator import (
    LinearPartialLabelClassifier,
    ShiftedGram,
    append_ones,
    shrink_singular_values,
    soft_threshold,
)


class PMLNI(LinearPartialLabelClassifier):
    r"""Partial multi-label learning with noisy label identification [1]_ [2]_.

    The model is the sum of a low-rank classifier U of the true labels and a sparse classifier V of the noisy labels:

    .. math:: \min_{U, V} \tfrac12 \lVert Y - \Phi (U + V)^\top \rVert_F^2 + \tfrac\lambda2 \lVert U + V \rVert_F^2
              + \beta \lVert U \rVert_* + \gamma \lVert V \rVert_1, \qquad \Phi = [X, 1]

    Predictions use U only; a label is predicted if its score is at least 0.5. The solver is the inexact augmented
    Lagrangian method [3]_ with the update order and the constants of the authors' code.

    Parameters
    ----------
    lam : float, default=10
        Ridge penalty :math:`\lambda`.
    beta : float, default=0.5
        Trace-norm penalty :math:`\beta` of U.
    gamma : float, default=0.5
        l1 penalty :math:`\gamma` of V.
    max_iter : int, default=500
        Maximum number of iterations. Below about 60 iterations the solver returns U = 0.

    Attributes
    ----------
    U_ : ndarray of shape (q, d + 1)
        Classifier of the true labels; the last column is the intercept.
    V_ : ndarray of shape (q, d + 1)
        Classifier of the noisy labels; the last column is the intercept.
    coef_ : ndarray of shape (q, d)
        ``U_`` without the intercept.
    intercept_ : ndarray of shape (q,)
        Last column of ``U_``.
    n_iter_ : int
        Number of iterations.

    Notes
    -----
    The loss is a sum over samples, so the effect of the penalties depends on n. The intercept is penalized like every
    weight. For ``gamma >= beta`` V = 0 is optimal, because the trace norm never exceeds the l1 norm; with the published
    defaults the method is therefore trace-norm-regularized ridge regression on the candidate labels. Both parts are
    nonzero only for :math:`\beta / \sqrt{q (d + 1)} < \gamma < \beta`. The authors map every feature to [-1, 1]: use
    :class:`RangeScaler` in a pipeline.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "Partial multi-label learning with noisy label identification", IEEE TPAMI 44(7),
       2022.
    .. [2] M.-K. Xie and S.-J. Huang, "Partial multi-label learning with noisy label identification", AAAI 2020.
    .. [3] Z. Lin, M. Chen and Y. Ma, "The augmented Lagrange multiplier method for exact recovery of corrupted low-rank
       matrices", arXiv:1009.5055, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.paper.baselines import PMLNI
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 4))
    >>> Y = (X @ rng.normal(size=(4, 3)) > 0).astype(int)
    >>> candidates = np.maximum(Y, rng.random(Y.shape) < 0.2).astype(int)
    >>> clf = PMLNI().fit(X, candidates)
    >>> clf.U_.shape
    (3, 5)
    >>> bool((clf.predict(X) == Y).mean() > 0.9)
    True
    """

    def __init__(
        self,
        lam: float = 10,
        beta: float = 0.5,
        gamma: float = 0.5,
        max_iter: int = 500,
    ) -> None:
        self.lam = lam
        self.beta = beta
        self.gamma = gamma
        self.max_iter = max_iter

    def _check_parameters(self) -> None:
        for name in ("lam", "beta", "gamma"):
            check_penalty(getattr(self, name), name)
        check_count(self.max_iter, "max_iter")

    def _fit(self, X: Any, Y: FloatArray) -> None:
        r"""Minimize the objective by the authors' augmented Lagrangian method.

        One eigendecomposition serves the linear systems of all iterations. The penalty :math:`\mu` starts at 1e-4 and
        grows by 10 % per iteration, so that U = V = 0 for about sixty iterations. The dual update uses the :math:`\mu`
        of the next iteration. The objective is not monotone.
        """
        Phi = append_ones(X)
        A, gram = to_dense_floats((Phi.T @ Y).T), ShiftedGram(Phi)
        U, V, dual = (np.zeros_like(A) for _ in range(3))
        mu, growth, max_mu = 1e-4, 1.1, 1e10
        for iteration in range(1, self.max_iter + 1):
            self.n_iter_ = iteration
            W = gram.solve(A + mu * (U + V) + dual, self.lam + mu)
            previous_U = U
            U = shrink_singular_values(W - V - dual / mu, self.beta / mu)
            V = soft_threshold(W - U - dual / mu, self.gamma / mu)
            size = float(np.linalg.norm(W))
            change, residual = mu * float(np.linalg.norm(U - previous_U)), float(np.linalg.norm(W - U - V))
            # Without any candidate W = 0 is the solution, and the relative errors 0/0 count as 0.
            is_stable, is_feasible = (change < 1e-5 * size, residual < 1e-7 * size) if size else (True, True)
            mu = min(growth * mu, max_mu) if is_stable else mu
            dual = dual + mu * (U + V - W)
            if is_stable and is_feasible:
                break
        else:
            warn(
                f"PML-NI did not converge in max_iter={self.max_iter} iterations; increase max_iter", ConvergenceWarning
            )
        self.U_, self.V_ = U, V
        self.coef_, self.intercept_ = U[:, :-1], U[:, -1]


class RangeScaler(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scaler that maps the training range of every feature to [-1, 1], as the program of PML-NI does.

    Features that are constant on the training samples become 0. Values outside of the training range are extrapolated.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Store the range of every feature of X, dense or CSR of shape (n, d)."""
        X = to_dense_floats(X)
        self.low_, self.high_ = X.min(0), X.max(0)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the scaled features as a dense array of shape (n, d)."""
        width = self.high_ - self.low_
        slope = np.divide(2.0, width, out=np.zeros_like(width), where=width > 0)
        return np.asarray((to_dense_floats(X) - (self.low_ + self.high_) / 2) * slope)
