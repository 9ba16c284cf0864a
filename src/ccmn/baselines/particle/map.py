"""PAR-MAP: how many votes a label has, read by Bayes' rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.baselines.particle.neighbours import nearest
from ccmn.baselines.particle.pairs import label_pairs
from ccmn.baselines.particle.propagation import stretch_rows
from ccmn.baselines.particle.vls import strictly_above, weighted_votes

SMOOTHING = 1.0


def count_votes(votes: NDArray[np.bool_], q: int) -> NDArray[np.intp]:
    """Votes c_j of the q (q - 1) / 2 pairs, 0 .. q - 1, without weights and without the virtual label: (n, q)."""
    real = q * (q - 1) // 2
    ones = np.concatenate([np.ones(real), np.zeros(len(label_pairs(q)) - real)])
    return np.rint(weighted_votes(votes, ones, q)[0]).astype(np.intp)


@dataclass(frozen=True)
class VotePosterior:
    """Prior of every label (q,) and the probabilities of 0 .. q - 1 votes (q, q) where it is true and where not."""

    prior: FloatArray
    if_true: FloatArray
    if_false: FloatArray

    @classmethod
    def fit(
        cls, prior: FloatArray, counts: NDArray[np.intp], positive: NDArray[Any], negative: NDArray[Any]
    ) -> VotePosterior:
        """Smoothed frequencies of the votes over the rows where a label is taken for true, and for false."""
        return cls(prior, _frequencies(counts, positive), _frequencies(counts, negative))

    def odds(self, counts: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        r""":math:`\pi_j P(c_j \mid H_j)` and :math:`(1 - \pi_j) P(c_j \mid \neg H_j)`."""
        label = np.arange(counts.shape[1])
        return self.prior * self.if_true[label, counts], (1 - self.prior) * self.if_false[label, counts]

    def margins(self, counts: NDArray[np.intp]) -> FloatArray:
        """Posterior minus 1/2."""
        true, false = self.odds(counts)
        return strictly_above(true / (true + false) - 0.5)

    def released_margins(self, counts: NDArray[np.intp]) -> FloatArray:
        """The ratio of the two products, stretched to [0, 1] within the row, minus 1/2: the released program's rule."""
        true, false = self.odds(counts)
        ratio = true / false
        return strictly_above(stretch_rows(ratio, where_flat=np.zeros_like(ratio)) - 0.5)


def _frequencies(counts: NDArray[np.intp], chosen: NDArray[Any]) -> FloatArray:
    q = counts.shape[1]
    tables = [np.bincount(counts[chosen[:, j] > 0, j], minlength=q) for j in range(q)]
    kappa = np.array(tables, dtype=np.float64)
    return np.asarray((SMOOTHING + kappa) / (SMOOTHING * q + kappa.sum(1, keepdims=True)))


def candidate_prior(Y: FloatArray) -> FloatArray:
    """Smoothed frequency of a label among the candidates."""
    return np.asarray((SMOOTHING + Y.sum(0)) / (2 * SMOOTHING + len(Y)))


def neighbour_prior(X: Any, Y: FloatArray, k: int) -> FloatArray:
    """The same of the rows where at least half of the k nearest, the row itself among them, have the label."""
    n = len(Y)
    k = min(k, n)
    if k < 2:
        return candidate_prior(Y)
    others = nearest(X, np.arange(n), np.arange(n), k - 1).index
    share = Y + Y[others].sum(1)
    return candidate_prior((share >= k / 2).astype(np.float64))
