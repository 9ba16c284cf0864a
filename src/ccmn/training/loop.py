"""Training loop: for every epoch, one step per batch, then the selection, the checkpoint and the progress callback.

The loop trains G groups of K runs at the same time. The runs of a group use the same rows in the same order and differ
in loss, noise rates, learning rate or seed; groups differ in rows. A single fit is one group with one run per learning
rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss
from ccmn.training.batches import ALONE, Batch, DenseLabels, Features, LabelSource, ProcessGroup, Rows
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.networks import Network, StackedAdam, UserNetwork
from ccmn.training.selection import KeepBest
from ccmn.training.stream import Stream


class Part(NamedTuple):
    """Slice of the runs of every group with the same loss."""

    runs: slice
    loss: MultiLabelLoss


@dataclass
class TrainingResult:
    """Mean training losses and validation criteria of every epoch, (G, K) each, and whether Ctrl-C ended them."""

    losses: list[Tensor] = field(default_factory=list)
    criteria: list[Tensor] = field(default_factory=list)
    interrupted: bool = False


def train(
    network: Network,
    parts: Sequence[Part],
    features: Features,
    labels: LabelSource,
    batches: Rows | Stream,
    optimizer: StackedAdam,
    selection: KeepBest,
    *,
    epochs: int,
    weights: Tensor | None = None,
    on_progress: Callable[[TrainingResult], None] | None = None,
    checkpoint: Checkpoint | None = None,
    group: ProcessGroup = ALONE,
) -> TrainingResult:
    """Train all runs of a network at the same time and return losses and criteria of every epoch.

    At the end, the network holds the weights that ``selection`` selected. Ctrl-C ends the training early and keeps the
    best weights so far.

    ``parts`` are the losses of consecutive slices of the runs, ``weights`` (n,) have a mean of 1, ``on_progress`` is
    called with the result so far after each epoch (its tensors may still be computed on a device), ``checkpoint`` is
    the file from which the training resumes and to which its state is saved, and ``group`` are the ranks that train
    together.
    """
    step = make_step(network, parts, optimizer, features, labels, weights, group=group)
    result = TrainingResult()
    if checkpoint is not None:
        checkpoint.resume(network, optimizer, selection, result)
    try:
        for epoch in range(len(result.losses), epochs):
            total, steps = torch.zeros((), device=features.device), 0
            for batch in batches.epoch(epoch):
                total, steps = total + step(batch), steps + 1
            result.losses.append(group.sum_over_ranks(total / steps))
            result.criteria.append(selection.on_epoch_end(epoch, network))
            if checkpoint is not None and ((epoch + 1) % checkpoint.every == 0 or epoch + 1 == epochs):
                checkpoint.save(network, optimizer, selection, result)
            if on_progress is not None:
                on_progress(result)
    except KeyboardInterrupt:
        if not result.criteria:
            raise
        # An epoch that was interrupted before its criterion was computed does not count.
        del result.losses[len(result.criteria) :]
        result.interrupted = True
    selection.load(network)
    return result


# -- One step


def mean_losses(
    parts: Sequence[Part], outputs: Tensor, labels: LabelSource, index: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Return the losses (G, K) of outputs (G, K, B, o) for the rows ``index`` (G, B) with weights (G, B)."""
    # Rows are independent. They are processed in the order of memory, (G, B, K) after a linear layer, so that no
    # operation has to combine two orders.
    is_corrected = any(loss.correction is not None for _, loss in parts)
    run_dim = 1 if is_corrected or outputs.is_contiguous() else 2
    targets = labels.targets(index, run_dim)
    if targets.dtype != outputs.dtype:
        targets = targets.to(torch.promote_types(outputs.dtype, torch.float32))
    values = []
    for runs, loss in parts:
        f = outputs[:, runs] if run_dim == 1 else outputs[:, runs].transpose(1, 2)
        t = targets[(slice(None),) * run_dim + (runs,)] if targets.shape[run_dim] > 1 else targets
        t = t if loss.debias is None else loss.debias(t)
        if loss.correction is not None:
            values.append(loss.corrected_risk(f, t.expand(*f.shape[:-1], -1)))
            continue
        rows = loss.row_losses(f, t)
        if weights is not None:
            rows = rows * weights.unsqueeze(run_dim).to(rows.dtype)
        values.append(rows.mean(3 - run_dim))
    return values[0] if len(values) == 1 else torch.cat(values, 1)


def make_step(
    network: Network,
    parts: Sequence[Part],
    optimizer: StackedAdam,
    features: Features,
    labels: LabelSource,
    weights: Tensor | None = None,
    *,
    group: ProcessGroup = ALONE,
) -> Callable[[Batch], Tensor]:
    """Return the training step: gather, outputs, loss, backward, reduce over ranks, update.

    It is a function of a batch that updates the weights and returns the losses (G, K) before the update.
    On a CUDA device, the step is captured as a CUDA graph if the data are dense and the network is a built-in one.
    """
    leaves = [p.values for p in network.parameters]
    is_user, is_distributed = isinstance(network, UserNetwork), group.is_distributed
    upstream: list[Tensor] = []  # gradient of the summed losses with respect to each loss; created once

    def step(batch: Batch) -> Tensor:
        index = batch.index
        X = features.gather(index)
        w = None if weights is None else weights[index]
        losses = mean_losses(parts, network.outputs(X), labels, index, w)
        if not upstream or upstream[0].dtype != losses.dtype:
            upstream[:] = [torch.ones_like(losses)]
        gradients = list(torch.autograd.grad(losses, leaves, upstream[0], allow_unused=is_user))
        losses = losses.detach()
        if is_user:
            # A user's module may share gradients between parameters or leave parameters unused. The optimizer
            # modifies gradients in place.
            gradients = [torch.zeros_like(v) if g is None else g.clone() for v, g in zip(leaves, gradients)]
        if is_distributed:
            for gradient in gradients:
                group.sum_over_ranks(gradient.mul_(batch.weight))
            losses = losses * batch.weight
        optimizer.step(gradients)
        return losses

    capturable = features.is_dense and isinstance(labels, DenseLabels) and not is_distributed and not is_user
    return _captured(step, optimizer, leaves) if features.device.type == "cuda" and capturable else step


def _captured(
    step: Callable[[Batch], Tensor], optimizer: StackedAdam, leaves: list[Tensor]
) -> Callable[[Batch], Tensor]:
    """Return a step that replays a CUDA graph; one graph per batch size."""
    graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def capture(index: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        """Run warm-up steps and capture one, then restore the weights and the state of the optimizer."""
        touched = [*leaves, *optimizer.first, *optimizer.second, optimizer.steps]
        before = [t.detach().clone() for t in touched]
        batch = Batch(index.clone())
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                step(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = step(batch)
        with torch.no_grad():
            for tensor, value in zip(touched, before):
                tensor.copy_(value)
        return graph, batch.index, losses

    def replay(batch: Batch) -> Tensor:
        if batch.index.shape not in graphs:
            graphs[batch.index.shape] = capture(batch.index)
        graph, index, losses = graphs[batch.index.shape]
        index.copy_(batch.index)
        graph.replay()
        return losses.clone()

    return replay
