"""fPML: feature-induced partial multi-label learning (Yu et al., ICDM 2018)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ccmn._random import RandomState
from ccmn._validation import FloatArray, check_choice, check_count, check_nonnegative, check_penalty, check_share
from ccmn.baselines.decomposition import with_ones
from ccmn.baselines.fpml_solver import Weights, solve_fpml
from ccmn.baselines.linear import LinearPartialLabelClassifier, split_bias


class FPML(LinearPartialLabelClassifier):
    r"""Candidate labels and features factorised together, and a linear classifier of what the factors say.

    .. math:: \Psi = \lVert Y - S G \rVert_F^2 + \lambda_1 \lVert X - S F \rVert_F^2
              + \lambda_2 \lVert S G - X W \rVert_F^2 + \lambda_3 \lVert W \rVert_F^2

    with S (n, k), G (k, q), F (k, d), W (d, q). The idea and the three weights are published, the objective is
    reconstructed from descriptions, the rank and the cut at 0.5 are inferred. :math:`\lambda_1` weighs n d entries
    against n q of the labels: scale the columns of X to unit variance, else the factors describe X alone.

    Parameters
    ----------
    rank : int, float or None
        k; a float is a share of the q labels, rounded up; None is half of them.
    lambda1, lambda2, lambda3 : float
    fit_intercept : bool
        Append a column of ones to X; its weights are penalised with the others.
    svd : "auto", "exact" or "randomised"
        How the leading factors are found: from a whole decomposition of the smaller Gram matrix, or by subspace
        iteration from a random start (each round goes on from the last). "auto": exact up to 800 rows or q + d columns,
        whichever are fewer.
    nonnegative : bool
        Keep S, G and F non-negative, by multiplicative updates from a random start; needs a non-negative X. Slower, and
        where it ends depends on the start.
    max_iter : int
        Rounds; it stops when one lowers the objective by less than 1e-13 of it.
    random_state
        Of the randomised start.

    Attributes
    ----------
    W_ : array (d, q)
    Z_ : array (n, q)
        Confidences S G: a candidate with a small one is probably noise.
    objective_ : array
        After every half round.
    rank_, n_iter_, intercept_
    """

    def __init__(
        self,
        rank: int | float | None = None,
        lambda1: float = 1.0,
        lambda2: float = 1.0,
        lambda3: float = 10.0,
        fit_intercept: bool = False,
        svd: str = "auto",
        nonnegative: bool = False,
        max_iter: int = 500,
        random_state: RandomState = None,
    ) -> None:
        self.rank = rank
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.fit_intercept = fit_intercept
        self.svd = svd
        self.nonnegative = nonnegative
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        for name in ("lambda1", "lambda2", "lambda3"):
            check_penalty(getattr(self, name), name)
        check_choice(self.svd, "svd", ("auto", "exact", "randomised"))
        check_count(self.max_iter, "max_iter")
        if self.nonnegative and self.svd != "auto":
            raise ValueError(f"svd={self.svd!r} does nothing with nonnegative=True: leave it out")
        if isinstance(self.rank, (float, np.floating)):
            check_share(self.rank, "rank (as a share of the labels)")
        elif self.rank is not None:
            check_count(self.rank, "rank")

    def _learn(self, X: Any, Y: FloatArray) -> None:
        self.rank_ = self._rank_for(Y.shape[1])
        design = with_ones(X) if self.fit_intercept else X
        weights = Weights(float(self.lambda1), float(self.lambda2), float(self.lambda3))
        if self.nonnegative:
            check_nonnegative(X, "X (with nonnegative=True)")
        found = solve_fpml(
            design,
            Y,
            self.rank_,
            weights,
            svd=self.svd,
            nonnegative=self.nonnegative,
            max_iter=self.max_iter,
            random_state=self.random_state,
        )
        if not found.converged:
            warnings.warn(
                f"fPML stopped after max_iter={self.max_iter} rounds with its objective still falling: raise max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.Z_, self.objective_, self.n_iter_ = found.Z, found.objective, found.n_iter
        self.W_, bias = split_bias(found.W, self.fit_intercept)
        self._set_scores(self.W_.T, bias)

    def _rank_for(self, q: int) -> int:
        if self.rank is None:
            return -(-q // 2)
        if isinstance(self.rank, (float, np.floating)):
            return max(1, int(np.ceil(self.rank * q)))
        return int(self.rank)
