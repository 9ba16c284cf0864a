"""Outputs and labels -> one loss per run.

One training step: gather, outputs, loss, backward, Adam. On a CUDA device it is captured once and replayed.

The loop: for each epoch, for each batch a step; then select; then tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss
from ccmn.training.batches import Batches, Features, LabelRows, as_labels
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.networks import Network, UserNetwork
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import Selection


@dataclass(frozen=True)
class Part:
    """A slice of the runs of every group that share a loss."""

    runs: slice
    loss: MultiLabelLoss


class Objective:
    """The mean loss of a batch for every run, (G, K).

    Parameters
    ----------
    parts : sequence of Part
        Losses without a noise model of their own (``noise=None``) when ``rates`` are given.
    rates : tensors rho_pos, rho_neg of shape (G, K, q), optional
        Noise rates of every run; zero rates make a run "plain". Labels are debiased here, batch by batch.
    """

    def __init__(self, parts: Sequence[Part], rates: tuple[Tensor, Tensor] | None = None) -> None:
        self.parts = list(parts)
        self._scale = self._offset = None
        if rates is not None:
            rho_pos, rho_neg = (r.double() for r in rates)
            # Two constants per run and label, rounded once; dense targets exist for a batch at a time.
            scale = 1 / (1 - rho_pos - rho_neg)
            self._scale, self._offset = scale.unsqueeze(2), (-rho_neg * scale).unsqueeze(2)

    @classmethod
    def of(cls, loss: MultiLabelLoss) -> Objective:
        """One loss for all runs, with the noise it knows."""
        return cls([Part(slice(None), loss)])

    def __call__(self, outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """(G, K, B, o), (G, B, q), weights (G, B) or None -> (G, K). Weights have a mean of 1 over all rows."""
        values = [self._mean(part, outputs[:, part.runs], labels, weights) for part in self.parts]
        return values[0] if len(values) == 1 else torch.cat(values, 1)

    def _mean(self, part: Part, outputs: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        loss = part.loss
        # Rows are independent: they are taken in the order in which they lie in memory, (G, B, K) after a linear
        # layer, so that no operation has to go through two orders at once.
        rows_first = loss.correction is None and not outputs.is_contiguous()
        runs_dim = 2 if rows_first else 1
        outputs = outputs.transpose(1, 2) if rows_first else outputs
        targets = self._targets(part, labels.unsqueeze(runs_dim), outputs.dtype, rows_first)
        if loss.correction is not None:
            return loss.corrected_risk(outputs, targets.expand(*outputs.shape[:-1], -1))
        rows = loss.risk(outputs, targets)
        if weights is not None:
            rows = rows * weights.unsqueeze(runs_dim).to(rows.dtype)
        return rows.mean(3 - runs_dim)

    def _targets(self, part: Part, labels: Tensor, dtype: torch.dtype, rows_first: bool) -> Tensor:
        """Labels (G, 1, B, q), or (G, B, 1, q) with rows first, debiased for every run."""
        labels = labels.to(torch.promote_types(dtype, torch.float32))
        if self._scale is None or self._offset is None:
            return part.loss.debias_tensor(labels)
        if self._scale.dtype != labels.dtype:
            self._scale, self._offset = self._scale.to(labels.dtype), self._offset.to(labels.dtype)
        offset, scale = self._offset[:, part.runs], self._scale[:, part.runs]
        if rows_first:
            offset, scale = offset.transpose(1, 2), scale.transpose(1, 2)
        return torch.addcmul(offset, labels, scale)


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


@dataclass(frozen=True)
class Progress:
    """What is told after each epoch; the tensors are (G, K) and may still be on their way from a device."""

    epoch: int
    epochs: int
    loss: Tensor
    criterion: Tensor | None


@dataclass
class TrainingResult:
    """Losses and criteria of every epoch, (epochs, G, K), and how the training ended."""

    losses: list[Tensor] = field(default_factory=list)
    criteria: list[Tensor] = field(default_factory=list)
    interrupted: bool = False

    @property
    def epochs(self) -> int:
        return len(self.losses)


def train(
    network: Network,
    objective: Objective,
    features: Features,
    labels: Tensor | LabelRows,
    batches: Batches,
    optimiser: StackedAdam,
    selection: Selection,
    *,
    epochs: int,
    weights: Tensor | None = None,
    tell: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
    autocast: bool = False,
) -> TrainingResult:
    """Train all runs of a stack together; the network holds the selected weights at the end.

    Labels are a tensor (n, q), the same for all groups, or (G, n, q), as when every repeat has its own noise; or CSR
    labels, of which a batch at a time is made dense.
    Ctrl-C ends the training early and keeps what is best so far (``interrupted`` says so).
    """
    label_rows = as_labels(labels, network.parameters[0].values.dtype)
    step = make_step(network, objective, optimiser, features, label_rows, weights, autocast=autocast)
    result = TrainingResult()
    start = 0 if checkpoint is None else checkpoint.resume(network, optimiser, selection, result)
    network.train_mode(True)
    try:
        for epoch in range(start, epochs):
            result.losses.append(batches.mean(step(index) for index in batches.epoch(epoch)))
            criterion = selection.look(epoch, network)
            if criterion is not None:
                result.criteria.append(criterion)
            if checkpoint is not None:
                checkpoint.save(epoch, network, optimiser, selection, result)
            if tell is not None:
                tell(Progress(epoch, epochs, result.losses[-1], criterion))
            if selection.finished(epoch):
                break
    except KeyboardInterrupt:
        if selection.has_nothing() or not result.losses:
            raise
        # The epoch that was cut off between its last step and its criterion is none.
        if result.criteria:
            del result.losses[len(result.criteria) :]
        result.interrupted = True
    network.train_mode(False)
    selection.restore(network)
    return result
