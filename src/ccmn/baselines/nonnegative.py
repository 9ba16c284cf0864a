r"""Non-negative factors for fPML, by multiplicative updates.

For :math:`a \lVert T - S G \rVert^2 + b \lVert X - S F \rVert^2` with S, G, F >= 0 and X >= 0. T may be
negative in places; with its two parts apart, :math:`T = T_+ - T_-`, every factor is multiplied by the negative over the
positive part of its gradient, which never raises the objective.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccmn._validation import FloatArray
from ccmn.baselines.leading import Leading

_SWEEPS = 10
_TINY = 1e-300


class NonNegativeFactors(Leading):
    """Each round goes on from the last; where it ends depends on the random start."""

    def __init__(self, X: Any, q: int, rank: int, b: float, rng: np.random.Generator) -> None:
        super().__init__(X, rank, b)
        n, d = X.shape
        self.S, self.G, self.F = (rng.random(shape) + 0.1 for shape in ((n, rank), (rank, q), (rank, d)))

    def project(self, T: FloatArray, a: float) -> tuple[FloatArray, float]:
        up, down = np.maximum(T, 0), np.maximum(-T, 0)
        for _ in range(_SWEEPS):
            self._sweep(up, down, a)
        cross = (np.asarray(self.X.T @ self.S) * self.F.T).sum()
        unexplained = self.square - 2 * cross + ((self.S.T @ self.S) * (self.F @ self.F.T)).sum()
        return np.asarray(self.S @ self.G), float(unexplained)

    def _sweep(self, up: FloatArray, down: FloatArray, a: float) -> None:
        S, b = self.S, self.b
        self.G = self.G * (S.T @ up) / (S.T @ S @ self.G + S.T @ down + _TINY)
        self.F = self.F * np.asarray(self.X.T @ S).T / (S.T @ S @ self.F + _TINY)
        attract = a * up @ self.G.T + b * np.asarray(self.X @ self.F.T)
        repel = a * (S @ (self.G @ self.G.T) + down @ self.G.T) + b * S @ (self.F @ self.F.T)
        self.S = S * attract / (repel + _TINY)
