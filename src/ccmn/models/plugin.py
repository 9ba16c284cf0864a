"""The plug-in as a loss: the likelihood of the noisy labels as they are, and decisions that invert the noise."""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses import ForwardLoss
from ccmn.noise import ClassConditionalNoise


class PluginLoss(ForwardLoss):
    r"""Logistic loss of the noisy labels; scores are those of the true ones.

    .. math:: s_j = 2\, \frac{\sigma(f_j) - \rho_{neg,j}}{1 - \rho_{pos,j} - \rho_{neg,j}} - 1

    0 where the true label's probability is 1/2. Epochs must be compared by these: at its own cut the noisy posterior
    predicts noisy labels.
    """

    def __init__(self, noise: ClassConditionalNoise) -> None:
        super().__init__(None)
        if not isinstance(noise, ClassConditionalNoise):
            raise TypeError(f"loss='plugin' needs two rates per label; got {type(noise).__name__}")
        self.invert = noise.debiasing()

    def decision(self, outputs: Tensor) -> Tensor:
        """The scores of the true labels."""
        decided: Tensor = 2 * self.invert.to(outputs.device)(torch.sigmoid(outputs)) - 1
        return decided
