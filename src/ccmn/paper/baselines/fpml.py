r"""fPML: feature-induced partial multi-label learning.

The factors of :math:`M = [\sqrt a\, T, \sqrt b\, X]` change slowly, so that the subspace iteration below starts from
those of the previous iteration. ``randomized_svd`` of scikit-learn cannot: on enron it took three times as long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning

from ccmn._containers import is_sparse, to_dense_floats
from ccmn._messages import warn
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_choice, check_count, check_penalty, check_share
from ccmn.paper.baselines.pml_estimator import LinearPartialLabelClassifier, ShiftedGram

MAX_EXACT = 800
"""svd="auto" is exact up to this smaller dimension of M."""
TOL = 1e-13
"""The iteration stops if the objective decreases by less than this share."""


class FPML(LinearPartialLabelClassifier):
    r"""Feature-induced partial multi-label learning [1]_.

    Candidate labels Y and features X share a low-rank factor S. A linear classifier W fits the reconstructed labels:

    .. math:: \Psi = \lVert Y - S G \rVert_F^2 + \lambda_1 \lVert X - S F \rVert_F^2
              + \lambda_2 \lVert S G - X W \rVert_F^2 + \lambda_3 \lVert W \rVert_F^2

    with S of shape (n, k), G (k, q), F (k, d) and W (d, q). A label is predicted if its score is at least 0.5.

    Parameters
    ----------
    rank : int, float or None, default=None
        Number of factors k. A float is a share of the q labels, rounded up. None is half of the labels.
    lambda1 : float, default=1.0
        Weight of the feature reconstruction.
    lambda2 : float, default=1.0
        Weight of the agreement between the classifier and the reconstructed labels.
    lambda3 : float, default=10.0
        Ridge penalty of W.
    fit_intercept : bool, default=False
        Append a column of ones to X. Its weights are penalized like all others.
    svd : {"auto", "exact", "randomized"}, default="auto"
        Computation of the factors. "exact" decomposes the smaller Gram matrix in every iteration. "randomized" uses
        subspace iteration from a random start, continued from iteration to iteration. "auto" is exact if n or q + d is
        at most 800.
    max_iter : int, default=500
        Maximum number of iterations.
    random_state : int, numpy Generator or None, default=None
        Random start of "randomized".

    Attributes
    ----------
    W_ : ndarray of shape (d, q)
        Classifier.
    Z_ : ndarray of shape (n, q)
        Label confidences S G of the training samples. Candidates with a low confidence are probably noise.
    coef_ : ndarray of shape (q, d)
        Transpose of ``W_``.
    intercept_ : ndarray of shape (q,)
        Intercepts; zero without ``fit_intercept``.
    objective_ : ndarray of shape (2 * number of iterations,)
        Objective after each of the two updates of every iteration.
    rank_ : int
        Number of factors.
    n_iter_ : int
        Number of iterations.

    Notes
    -----
    No code of the authors is known. The idea and the three weights are published; the objective, the rank and the
    threshold are our reconstruction. :math:`\lambda_1` multiplies n d entries, the label term has n q. Scale the
    columns of X to unit variance, otherwise the factors describe X alone.

    References
    ----------
    .. [1] G. Yu, X. Chen, C. Domeniconi, J. Wang, Z. Li, Z. Zhang and X. Wu, "Feature-induced partial multi-label
       learning", ICDM 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from ccmn.paper.baselines import FPML
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4))
    >>> Y = (X @ rng.normal(size=(4, 3)) > 0).astype(int)
    >>> candidates = np.maximum(Y, rng.random(Y.shape) < 0.2).astype(int)
    >>> clf = FPML(rank=3, fit_intercept=True).fit(X, candidates)
    >>> clf.W_.shape, clf.Z_.shape
    ((4, 3), (200, 3))
    >>> bool((clf.predict(X) == Y).mean() > 0.8)
    True
    """

    def __init__(
        self,
        rank: int | float | None = None,
        lambda1: float = 1.0,
        lambda2: float = 1.0,
        lambda3: float = 10.0,
        fit_intercept: bool = False,
        *,
        svd: str = "auto",
        max_iter: int = 500,
        random_state: RandomState = None,
    ) -> None:
        self.rank = rank
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.fit_intercept = fit_intercept
        self.svd = svd
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        for name in ("lambda1", "lambda2", "lambda3"):
            check_penalty(getattr(self, name), name)
        check_choice(self.svd, "svd", ("auto", "exact", "randomized"))
        check_count(self.max_iter, "max_iter")
        if isinstance(self.rank, (float, np.floating)):
            check_share(self.rank, "rank (as a share of the labels)")
        elif self.rank is not None:
            check_count(self.rank, "rank")

    def _fit(self, X: Any, Y: FloatArray) -> None:
        r"""Minimize the objective by block coordinate descent, starting at W = 0.

        With :math:`T = (Y + \lambda_2 X W) / (1 + \lambda_2)` the factors minimize :math:`(1 + \lambda_2) \lVert T - S
        G \rVert^2 + \lambda_1 \lVert X - S F \rVert^2`. The truncated SVD of :math:`[\sqrt{1 + \lambda_2}\, T,
        \sqrt{\lambda_1} X]` is the global minimum. W is the ridge regression of S G on X with penalty
        :math:`\lambda_3 / \lambda_2`.
        """
        X, (n, q), rank = self._design(X), Y.shape, 0.5 if self.rank is None else self.rank
        self.rank_ = max(1, int(np.ceil(rank * q))) if isinstance(rank, (float, np.floating)) else int(rank)
        l1, l2, l3 = float(self.lambda1), float(self.lambda2), float(self.lambda3)
        if self.svd == "randomized" or (self.svd == "auto" and min(n, X.shape[1] + q) > MAX_EXACT):
            factors: JointFactors = SubspaceFactors(X, self.rank_, l1, as_generator(self.random_state))
        else:
            factors = (ColumnGramFactors if X.shape[1] + q <= n else RowGramFactors)(X, self.rank_, l1)
        gram = ShiftedGram(X) if l2 else None
        W, XW = np.zeros((X.shape[1], q)), np.zeros_like(Y)
        objective: list[float] = []
        for iteration in range(1, self.max_iter + 1):
            self.n_iter_ = iteration
            Z, unexplained = factors.update((Y + l2 * XW) / (1 + l2), 1 + l2)
            rest = ((Y - Z) ** 2).sum() + l1 * unexplained
            objective.append(float(rest + l2 * ((Z - XW) ** 2).sum() + l3 * (W**2).sum()))
            if gram is not None:
                W = gram.solve(np.asarray(X.T @ Z).T, l3 / l2).T
                XW = np.asarray(X @ W)
            objective.append(float(rest + l2 * ((Z - XW) ** 2).sum() + l3 * (W**2).sum()))
            if iteration > 1 and objective[-3] - objective[-1] <= TOL * abs(objective[-1]):
                break
        else:
            warn(f"fPML did not converge in max_iter={self.max_iter} iterations; increase max_iter", ConvergenceWarning)
        self.Z_, self.objective_ = Z, np.array(objective)
        self._set_weights(W)


class JointFactors(ABC):
    r"""Rank-k factorization of :math:`M = [\sqrt a\, T, \sqrt b\, X]` for changing T and fixed X.

    Quantities that depend on X alone are computed once. A sparse X is used in matrix products only.
    """

    def __init__(self, X: Any, rank: int, b: float) -> None:
        self.X, self.rank, self.b = X, rank, b
        self.squared_norm = float((X.data**2).sum() if is_sparse(X) else (np.asarray(X) ** 2).sum())

    @abstractmethod
    def update(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        """Return the approximation Z = S G of T and the squared error ||X - S F||^2 of the features."""


class ColumnGramFactors(JointFactors):
    r"""Exact factors :math:`M V_k V_k^\top` from the eigenvectors V of :math:`M^\top M`, for few columns."""

    def __init__(self, X: Any, rank: int, b: float) -> None:
        super().__init__(X, rank, b)
        self.gram = to_dense_floats(X.T @ X)

    def update(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        """Return Z and the squared error of the features."""
        q, cross = T.shape[1], np.sqrt(a * self.b) * np.asarray(self.X.T @ T)
        V = _leading_eigenvectors(np.block([[a * T.T @ T, cross.T], [cross, self.b * self.gram]]), self.rank)
        S = np.sqrt(a) * T @ V[:q] + np.sqrt(self.b) * np.asarray(self.X @ V[q:])
        Z = S @ V[:q].T / np.sqrt(a)
        if not self.b:
            return Z, 0.0
        F = V[q:].T / np.sqrt(self.b)
        explained = 2 * (np.asarray(self.X.T @ S) * F.T).sum() - ((S.T @ S) * (F @ F.T)).sum()
        return Z, self.squared_norm - float(explained)


class RowGramFactors(JointFactors):
    r"""Exact factors :math:`U_k U_k^\top M` from the eigenvectors U of :math:`M M^\top`, for few rows."""

    def __init__(self, X: Any, rank: int, b: float) -> None:
        super().__init__(X, rank, b)
        self.gram = to_dense_floats(X @ X.T)

    def update(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        """Return Z and the squared error of the features."""
        U = _leading_eigenvectors(a * T @ T.T + self.b * self.gram, self.rank)
        return U @ (U.T @ T), self.squared_norm - float(((self.gram @ U) * U).sum())


class SubspaceFactors(JointFactors):
    r"""Factors by subspace iteration with :math:`M M^\top`, started randomly and continued in every update.

    A sweep never increases the approximation error, so the objective decreases monotonically. The first updates do not
    reach the minimum of their block.
    """

    def __init__(self, X: Any, rank: int, b: float, rng: np.random.Generator) -> None:
        super().__init__(X, rank, b)
        self.U = np.linalg.qr(rng.standard_normal((X.shape[0], min(rank + 10, X.shape[0]))))[0]
        self.n_sweeps = 10

    def update(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        """Return Z and the squared error of the features."""
        for _ in range(self.n_sweeps):
            from_X = np.asarray(self.X @ np.asarray(self.X.T @ self.U))
            self.U = np.linalg.qr(a * T @ (T.T @ self.U) + self.b * from_X)[0]
        self.n_sweeps = 2
        projected = np.hstack([np.sqrt(a) * self.U.T @ T, np.sqrt(self.b) * np.asarray(self.X.T @ self.U).T])
        U = self.U @ np.linalg.svd(projected, full_matrices=False)[0][:, : self.rank]
        return U @ (U.T @ T), self.squared_norm - float((np.asarray(self.X.T @ U) ** 2).sum())


def _leading_eigenvectors(gram: FloatArray, k: int) -> FloatArray:
    size = len(gram)
    if k >= size:
        return np.eye(size)
    return np.asarray(scipy.linalg.eigh(gram, subset_by_index=(size - k, size - 1), check_finite=False)[1])
