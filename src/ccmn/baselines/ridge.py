"""Ridge regression on the candidate labels: what every other method must beat."""

from __future__ import annotations

from typing import Any

from ccmn._validation import FloatArray, check_penalty
from ccmn.baselines.decomposition import ShiftedGram, dense, with_ones
from ccmn.baselines.linear import LinearPartialLabelClassifier


class CandidateRidge(LinearPartialLabelClassifier):
    r"""Takes candidates at their word; a label is predicted where its score is at least 0.5.

    .. math:: \min_W \lVert Y - \Phi W^\top \rVert_F^2 + \lambda \lVert W \rVert_F^2, \qquad \Phi = [X, 1]

    The bias is penalised like every weight, so that PML-NI with its published, weak penalties comes out close to it.

    Parameters
    ----------
    lam : float
        :math:`\lambda`; 0 is least squares of least norm.

    Attributes
    ----------
    coef_ : array (q, d)
    intercept_ : array (q,)
    """

    def __init__(self, lam: float = 10) -> None:
        self.lam = lam

    def _check_parameters(self) -> None:
        check_penalty(self.lam, "lam")

    def _learn(self, X: Any, Y: FloatArray) -> None:
        Phi = with_ones(X)
        W = ShiftedGram(Phi).solve(dense((Phi.T @ Y).T), float(self.lam))
        self._set_scores(W[:, :-1], W[:, -1])
