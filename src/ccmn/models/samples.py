"""Rows with labels, as fitting wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ccmn.training import SparseLabels

Labels = NDArray[np.float32] | SparseLabels
"""Labels (n, q): debiased ones, or as the loss takes them; NaN where not observed."""


@dataclass
class Sample:
    """Rows with their debiased labels p (n, q), NaN where not observed."""

    X: Any
    p: Labels
    weights: NDArray[np.float64] | None

    def labels_of(self, labels: slice) -> NDArray[np.float32]:
        """The debiased labels of some columns."""
        return self.p.columns(labels) if isinstance(self.p, SparseLabels) else self.p[:, labels]

    def dense_labels(self) -> NDArray[np.float32]:
        """All debiased labels: for a sample of few rows."""
        if not isinstance(self.p, SparseLabels):
            return self.p
        return self.p.gather(torch.arange(self.p.shape[0]).unsqueeze(0))[0].numpy()

    def weights_tensor(self) -> torch.Tensor | None:
        """The rows' weights, if there are any."""
        return None if self.weights is None else torch.from_numpy(self.weights)

    def take(self, rows: NDArray[Any]) -> Sample:
        return Sample(self.X[rows], self.p[rows], None if self.weights is None else self.weights[rows])
