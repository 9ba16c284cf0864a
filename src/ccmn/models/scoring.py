"""From features to scores and probabilities: what a fitted classifier predicts with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ccmn.models.fitted import FittedNetwork
from ccmn.models.probabilities import linear_probability, logistic_probability
from ccmn.models.tiles import label_tiles
from ccmn.noise import ClassConditionalNoise, NoiseModel


@dataclass(frozen=True)
class Scorer:
    """A trained network, and how its outputs are read.

    Parameters
    ----------
    network : FittedNetwork
    noise : NoiseModel
        Inverted in the posterior where the link is "plugin".
    has_dummy : bool
        Is output 0 the dummy label of Eq. (8), which scores are counted from?
    link : str
        How scores become probabilities; see :mod:`ccmn.models.probabilities`.
    slope : float
        Of the link "slope".
    thresholds : array (q,)
        The cut of every label.
    """

    network: FittedNetwork
    noise: NoiseModel
    has_dummy: bool
    link: str
    slope: float
    thresholds: NDArray[np.float64]

    def scores(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Scores (n, q) before the thresholds, or those of some labels: what the loss decides by."""
        outputs = self._outputs(X) if labels is None else self._some_outputs(X, labels)
        if self.link != "plugin":
            return outputs
        rho_pos, rho_neg = (rates[labels or slice(None)] for rates in self._rates())
        # Increasing in the noisy log-odds, 0 where the clean posterior is 1/2.
        return np.asarray(2 * (expit(outputs) - rho_neg) / (1 - rho_pos - rho_neg) - 1)

    def decisions(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Scores counted from the thresholds: a label is predicted where its decision is >= 0."""
        return self.scores(X, labels) - self.thresholds[labels or slice(None)]

    def probabilities(self, decisions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of every label by itself, strictly inside (0, 1)."""
        if self.link in ("linear", "plugin"):
            return linear_probability(decisions)
        return logistic_probability(self.slope * decisions)

    def tiles(self, per_label: int = 1) -> list[slice]:
        """All labels, in tiles; each costs its weights and so many numbers more."""
        return list(label_tiles(self.thresholds.size, max(self.network.weights_per_output, per_label)))

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        outputs = self.network.outputs(X)
        return outputs[:, 1:] - outputs[:, :1] if self.has_dummy else outputs

    def _some_outputs(self, X: Any, labels: slice) -> NDArray[np.float64]:
        if not self.has_dummy:
            return self.network.some_outputs(X, labels)
        dummy = self.network.some_outputs(X, slice(0, 1))
        return self.network.some_outputs(X, slice(labels.start + 1, labels.stop + 1)) - dummy

    def _rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert isinstance(self.noise, ClassConditionalNoise)
        return self.noise.rho_pos, self.noise.rho_neg
