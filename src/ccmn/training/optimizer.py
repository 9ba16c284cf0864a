"""Adam with a learning rate and an l2 weight for every run, in place."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ccmn.training.networks import Stacked


class StackedAdam:
    """torch.optim.Adam, for all runs of a stack at once: the same formula, one learning rate per run.

    l2 is added to the gradient, as torch's ``weight_decay`` does; the bias of the first layer is not decayed.

    Parameters
    ----------
    parameters : list of Stacked
    lr, weight_decay : tensors (G, K)
    clip : float or None
        Largest gradient norm of a run; larger gradients are scaled down to it.
    """

    can_be_captured = True
    """Is every step the same operations on the same memory, as a CUDA graph replays them?"""

    def __init__(
        self,
        parameters: list[Stacked],
        lr: Tensor,
        weight_decay: Tensor,
        *,
        clip: float | None = 10.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters, self.clip, self.betas, self.eps = parameters, clip, betas, eps
        self.first = [torch.zeros_like(p.values, requires_grad=False) for p in parameters]
        self.second = [torch.zeros_like(p.values, requires_grad=False) for p in parameters]
        # A tensor, so that a captured step counts too.
        self.steps = torch.zeros((), dtype=torch.float64, device=parameters[0].values.device)
        # A run alone has one learning rate: torch's own fused step does for it, a dozen small operations in one.
        self._alone: tuple[float, float] | None = None
        whole = all(_laid_out_alike(moment, p.values) for moment, p in zip(self.first, parameters))
        if lr.numel() == 1 and self.steps.device.type == "cpu" and whole:
            self._alone = float(lr), float(weight_decay)
            return
        self._lr = [p.along_outputs(lr.to(p.values)) for p in parameters]
        self._decay = [p.along_outputs(weight_decay.to(p.values)) for p in parameters]
        self._decays = bool((weight_decay != 0).any())
        self._room = [torch.empty_like(p.values, requires_grad=False) for p in parameters]

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        """One step from the gradients of the summed losses (runs are independent: the sum keeps them apart)."""
        if self.clip is not None:
            self._clip(gradients, self.clip)
        self.steps += 1
        if self._alone is not None:
            return self._fused_step(gradients, *self._alone)
        b1, b2 = self.betas
        root, rescale = self._bias_corrections()
        for i, (parameter, gradient) in enumerate(zip(self.parameters, gradients)):
            values, room = parameter.values, self._room[i]
            if self._decays:
                parameter.decayed(gradient).addcmul_(parameter.decayed(values), self._decay[i])
            self.first[i].lerp_(gradient, 1 - b1)
            self.second[i].mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
            # lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps), with eps scaled alike so that the value is torch's.
            torch.sqrt(self.second[i], out=room).add_(self.eps * root)
            torch.div(self.first[i], room, out=room)
            values.addcmul_(room, self._lr[i] * rescale, value=-1)
        return None

    def _fused_step(self, gradients: list[Tensor], lr: float, weight_decay: float) -> None:
        """What torch.optim.Adam(fused=True) calls, without what an optimiser does around it."""
        values = [p.values for p in self.parameters]
        if weight_decay:
            for parameter, gradient in zip(self.parameters, gradients):
                parameter.decayed(gradient).add_(parameter.decayed(parameter.values), alpha=weight_decay)
        # It goes through memory, whatever the strides: a gradient that is stored in another order is put in that of its
        # parameter, as ``backward`` does for a parameter's ``grad``.
        alike = [g if _laid_out_alike(g, v) else torch.empty_like(v).copy_(g) for g, v in zip(gradients, values)]
        torch._fused_adam_(
            values,
            alike,
            self.first,
            self.second,
            [],
            [self.steps] * len(values),
            lr=lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def _bias_corrections(self) -> tuple[Any, Any]:
        """sqrt(1 - b2^t), and it over 1 - b1^t: plain numbers on a CPU, tensors where a captured step must count."""
        b1, b2 = self.betas
        if self.steps.device.type == "cpu":
            t = float(self.steps)
            root = math.sqrt(1 - b2**t)
            return root, root / (1 - b1**t)
        dtype = self._room[0].dtype
        tensor_root = (1 - b2**self.steps).sqrt()
        return tensor_root.to(dtype), (tensor_root / (1 - b1**self.steps)).to(dtype)

    def _clip(self, gradients: list[Tensor], most: float) -> None:
        squares = [p.per_run_squares(g) for p, g in zip(self.parameters, gradients)]
        total = torch.stack(squares).sum(0).sqrt()
        factor = (most / total.clamp_min(most)).nan_to_num(0.0)
        for parameter, gradient in zip(self.parameters, gradients):
            gradient.mul_(parameter.spread(factor))


def _laid_out_alike(one: Tensor, other: Tensor) -> bool:
    """Are equal places in memory equal places in two tensors of one shape?"""
    return (one.is_contiguous() and other.is_contiguous()) or one.stride() == other.stride()
