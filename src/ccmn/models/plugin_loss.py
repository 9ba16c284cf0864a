"""Loss of the solver that inverts the noise in predicted probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses import ForwardLoss
from ccmn.noise import ClassConditionalNoise


class PluginLoss(ForwardLoss):
    r"""Logistic loss of the noisy labels whose decisions invert the noise (plug-in).

    .. math:: s_j = 2\, \frac{\sigma(f_j) - \rho_{neg,j}}{1 - \rho_{pos,j} - \rho_{neg,j}} - 1

    The score is 0 if the probability of the true label is 1/2. Model selection must use these scores: at a threshold of
    0, the outputs themselves predict noisy labels.

    Parameters
    ----------
    noise : ClassConditionalNoise
        Noise model of the labels passed to ``forward``.
    """

    def __init__(self, noise: ClassConditionalNoise) -> None:
        super().__init__(None)
        if not isinstance(noise, ClassConditionalNoise):
            raise TypeError(f"loss='plugin' requires two rates per label; got {type(noise).__name__}")
        self.invert = noise.debiasing()

    def decision(self, outputs: Tensor) -> Tensor:
        """Return the scores of the true labels."""
        decisions: Tensor = 2 * self.invert.to(outputs.device)(torch.sigmoid(outputs)) - 1
        return decisions
