"""Adam with separate learning rates and weight decays for all runs of a network."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ccmn.training.networks import Stacked

BETAS = (0.9, 0.999)
"""Decay rates of the moments, the defaults of ``torch.optim.Adam``."""
EPS = 1e-8
"""Constant in the denominator, the default of ``torch.optim.Adam``."""


class StackedAdam:
    """Adam [1]_ for all runs at the same time: the formula of ``torch.optim.Adam`` with a learning rate per run.

    As in ``torch.optim.Adam``, the weight decay is added to the gradient. The bias of the first layer is not decayed.

    Parameters
    ----------
    parameters : list of Stacked
        Parameters, which are updated in place.
    lr : Tensor of shape (G, K)
        Learning rate of every run.
    weight_decay : Tensor of shape (G, K)
        Weight decay of every run.
    clip : float or None, default=10.0
        Maximum norm of the gradient of a run. Larger gradients are scaled to this norm.

    References
    ----------
    .. [1] D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """

    def __init__(
        self, parameters: list[Stacked], lr: Tensor, weight_decay: Tensor, *, clip: float | None = 10.0
    ) -> None:
        self.parameters, self.clip = parameters, clip
        self.first = [torch.zeros_like(p.values, requires_grad=False) for p in parameters]
        self.second = [torch.zeros_like(p.values, requires_grad=False) for p in parameters]
        # A tensor, because the steps of a CUDA graph are counted on the device.
        self.steps = torch.zeros((), dtype=torch.float64, device=parameters[0].values.device)
        # A single run has one learning rate: the fused step of torch replaces a dozen small operations.
        self._single: tuple[float, float] | None = None
        is_single = lr.numel() == 1 and self.steps.device.type == "cpu"
        if is_single and all(_same_layout(moment, p.values) for moment, p in zip(self.first, parameters)):
            self._single = float(lr), float(weight_decay)
            return
        self._lr, self._decay = (
            [p.spread(value.to(p.values), along_outputs=True) for p in parameters] for value in (lr, weight_decay)
        )
        self._has_decay = bool((weight_decay != 0).any())
        self._workspace = [torch.empty_like(p.values, requires_grad=False) for p in parameters]

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        """Update the parameters; the gradients of the summed losses are modified in place."""
        if self.clip is not None:
            squares = [p.per_run_squares(g) for p, g in zip(self.parameters, gradients)]
            norm = torch.stack(squares).sum(0).sqrt()
            factor = (self.clip / norm.clamp_min(self.clip)).nan_to_num(0.0)
            for parameter, gradient in zip(self.parameters, gradients):
                gradient.mul_(parameter.spread(factor))
        self.steps += 1
        if self._single is not None:
            return self._fused_step(gradients, *self._single)
        b1, b2 = BETAS
        root: Any
        rescale: Any
        if self.steps.device.type == "cpu":
            t = float(self.steps)
            root = math.sqrt(1 - b2**t)
            rescale = root / (1 - b1**t)
        else:  # tensors, because a CUDA graph counts the steps on the device
            exact_root, dtype = (1 - b2**self.steps).sqrt(), self._workspace[0].dtype
            root, rescale = exact_root.to(dtype), (exact_root / (1 - b1**self.steps)).to(dtype)
        for i, (parameter, gradient) in enumerate(zip(self.parameters, gradients)):
            values, update = parameter.values, self._workspace[i]
            if self._has_decay:
                parameter.decayed(gradient).addcmul_(parameter.decayed(values), self._decay[i])
            self.first[i].lerp_(gradient, 1 - b1)
            self.second[i].mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
            # lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps); eps is scaled so that the value is that of torch.
            torch.sqrt(self.second[i], out=update).add_(EPS * root)
            torch.div(self.first[i], update, out=update)
            values.addcmul_(update, self._lr[i] * rescale, value=-1)
        return None

    def _fused_step(self, gradients: list[Tensor], lr: float, weight_decay: float) -> None:
        """Call the kernel of ``torch.optim.Adam(fused=True)`` without the overhead of the optimizer class."""
        values = [p.values for p in self.parameters]
        if weight_decay:
            for parameter, gradient in zip(self.parameters, gradients):
                parameter.decayed(gradient).add_(parameter.decayed(parameter.values), alpha=weight_decay)
        # The kernel ignores strides. A gradient with a different memory layout is copied to that of its parameter, as
        # ``backward`` does for the ``grad`` of a parameter.
        gradients = [g if _same_layout(g, v) else torch.empty_like(v).copy_(g) for g, v in zip(gradients, values)]
        torch._fused_adam_(
            values,
            gradients,
            self.first,
            self.second,
            [],
            [self.steps] * len(values),
            lr=lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=0.0,
            eps=EPS,
            amsgrad=False,
            maximize=False,
        )


def _same_layout(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of equal shape have their elements at the same places in memory."""
    return (one.is_contiguous() and other.is_contiguous()) or one.stride() == other.stride()
