"""One training step: gather, outputs, loss, backward, Adam. On a CUDA device it is captured once and replayed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from ccmn.training.batches import Features
from ccmn.training.labels import LabelRows
from ccmn.training.networks import Network, UserNetwork
from ccmn.training.objective import Objective
from ccmn.training.optimiser import StackedAdam

Step = Callable[[Tensor], Tensor]
"""Row numbers (G, B) -> the losses (G, K) before the step."""


def make_step(
    network: Network,
    objective: Objective,
    optimiser: StackedAdam,
    features: Features,
    labels: LabelRows,
    weights: Tensor | None,
    *,
    autocast: bool = False,
) -> Step:
    """A step on these data. Captured as a CUDA graph where shapes allow: dense data and a stacked network."""
    leaves = [p.values for p in network.parameters]
    ones: list[Tensor] = []  # the gradient of the summed losses by each of them, made once

    def eager(index: Tensor) -> Tensor:
        X = features.gather(index)
        w = None if weights is None else weights[index]
        # A context costs as much as a small operation: none where there is nothing to cast.
        with torch.autocast(X.device.type, dtype=torch.bfloat16) if autocast else nullcontext():
            # The labels of the batch are let go of before the backward pass.
            losses = objective(network.outputs(X), labels.gather(index), w)
        if not ones or ones[0].dtype != losses.dtype:
            ones[:] = [torch.ones_like(losses)]
        optimiser.step(_gradients(losses, leaves, ones[0], own=isinstance(network, UserNetwork)))
        return losses.detach()

    alike = features.is_dense and labels.is_dense and optimiser.can_be_captured
    if features.device.type == "cuda" and alike and not isinstance(network, UserNetwork):
        return _CapturedSteps(eager, optimiser, leaves)
    return eager


def _gradients(losses: Tensor, leaves: list[Tensor], ones: Tensor, *, own: bool) -> list[Tensor]:
    """Gradients of the summed losses that may be changed in place.

    A user's module may share them between parameters, or use some not.
    """
    found = torch.autograd.grad(losses, leaves, ones, allow_unused=own)
    if not own:
        return list(found)
    return [torch.zeros_like(leaf) if g is None else g.clone() for leaf, g in zip(leaves, found)]


class _CapturedSteps:
    """Replays a captured step; one graph for each size of batch."""

    def __init__(self, eager: Step, optimiser: StackedAdam, leaves: list[Tensor]) -> None:
        self._eager, self._optimiser, self._leaves = eager, optimiser, leaves
        self._graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def __call__(self, index: Tensor) -> Tensor:
        if index.shape not in self._graphs:
            self._graphs[index.shape] = self._capture(index)
        graph, where, losses = self._graphs[index.shape]
        where.copy_(index)
        graph.replay()
        return losses.clone()

    def _capture(self, index: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        """Warm up and capture without leaving a trace in weights or optimiser."""
        touched = [*self._leaves, *self._optimiser.first, *self._optimiser.second, self._optimiser.steps]
        before = [t.detach().clone() for t in touched]
        where = index.clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._eager(where)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = self._eager(where)
        with torch.no_grad():
            for tensor, value in zip(touched, before):
                tensor.copy_(value)
        return graph, where, losses
