"""Training loop: for every epoch, one step per batch, then the selection, the checkpoint and the progress callback.

The loop trains G groups of K runs at the same time. The runs of a group use the same rows in the same order and differ
in loss, noise rates, learning rate or seed; groups differ in rows. A single fit is one group with one run per learning
rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss
from ccmn.training.batches import Batch, Batches, DenseLabels, Features, LabelSource
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.distributed import ProcessGroup
from ccmn.training.networks import Network, UserNetwork
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import Selection

MAX_KEPT_LOSSES = 1 << 16
"""Losses of an epoch that are kept before they are summed: an epoch of a stream can have millions of batches."""


@dataclass(frozen=True)
class EpochProgress:
    """Argument of the progress callback after each epoch.

    The tensors have shape (G, K). They may still be computed on a device; reading them waits for it.
    """

    epoch: int
    """Number of the epoch, starting at 0."""
    epochs: int
    """Maximum number of epochs."""
    loss: Tensor
    """Mean training loss of the epoch."""
    criterion: Tensor | None
    """Validation criterion, if there is one."""


@dataclass
class TrainingResult:
    """Record of a training."""

    losses: list[Tensor] = field(default_factory=list)
    """Mean training losses of every epoch, (G, K) each."""
    criteria: list[Tensor] = field(default_factory=list)
    """Validation criteria of every epoch, (G, K) each."""
    interrupted: bool = False
    """Whether Ctrl-C ended the training."""
    start_epoch: int = 0
    """First epoch after resuming from a checkpoint."""


def train(
    network: Network,
    objective: Objective,
    features: Features,
    labels: Tensor | LabelSource,
    batches: Batches,
    optimizer: StackedAdam,
    selection: Selection,
    *,
    epochs: int,
    weights: Tensor | None = None,
    on_progress: Callable[[EpochProgress], None] | None = None,
    checkpoint: Checkpoint | None = None,
    group: ProcessGroup | None = None,
) -> TrainingResult:
    """Train all runs of a network at the same time.

    At the end, the network holds the weights that ``selection`` selected. Ctrl-C ends the training early and keeps
    the best weights so far.

    Parameters
    ----------
    network : Network
        Weights of all runs.
    objective : Objective
        Loss of every run.
    features : Features
        Features of all rows.
    labels : LabelSource, or Tensor of shape (n, q) or (G, n, q)
        Source of the training targets, or the targets themselves.
    batches : Batches
        Training rows of every step.
    optimizer : StackedAdam
        Optimizer of the parameters of ``network``.
    selection : Selection
        Selection of the final weights.
    epochs : int
        Maximum number of epochs.
    weights : Tensor of shape (n,), optional
        Sample weights with a mean of 1.
    on_progress : callable, optional
        Called with an ``EpochProgress`` after each epoch.
    checkpoint : Checkpoint, optional
        File from which the training resumes and to which its state is saved.
    group : ProcessGroup, optional
        Ranks that train together; by default this process alone.

    Returns
    -------
    TrainingResult
        Losses and criteria of every epoch.
    """
    if isinstance(labels, Tensor):
        labels = DenseLabels(labels, dtype=network.parameters[0].values.dtype)
    step = make_step(network, objective, optimizer, features, labels, weights, group=group)
    result = TrainingResult()
    if checkpoint is not None:
        result.start_epoch = checkpoint.resume(network, optimizer, selection, result)
    network.train_mode(True)
    try:
        for epoch in range(result.start_epoch, epochs):
            # Before an epoch and not after it: a resumed training may have to stop at once.
            if epoch > 0 and selection.finished(epoch - 1):
                break
            losses: list[Tensor] = []
            steps = 0
            for batch in batches.epoch(epoch):
                losses.append(step(batch))
                steps += 1
                if len(losses) == MAX_KEPT_LOSSES:
                    losses = [torch.stack(losses).sum(0)]
            loss = torch.stack(losses).sum(0) / steps
            result.losses.append(loss if group is None else group.sum_over_ranks(loss))
            criterion = selection.on_epoch_end(epoch, network)
            if criterion is not None:
                result.criteria.append(criterion)
            if checkpoint is not None:
                checkpoint.save(epoch, network, optimizer, selection, result)
            if on_progress is not None:
                on_progress(EpochProgress(epoch, epochs, result.losses[-1], criterion))
    except KeyboardInterrupt:
        if not selection.has_best or not result.losses:
            raise
        # An epoch that was interrupted before its criterion was computed does not count.
        if result.criteria:
            del result.losses[len(result.criteria) :]
        result.interrupted = True
    network.train_mode(False)
    selection.load_best(network)
    return result


# -- One step


@dataclass(frozen=True)
class Part:
    """Slice of the runs of every group with the same loss."""

    runs: slice
    loss: MultiLabelLoss


class Objective:
    """Mean loss of a batch for every run.

    Parameters
    ----------
    parts : sequence of Part
        Losses of consecutive slices of the runs.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self._corrected = any(part.loss.correction is not None for part in parts)

    @classmethod
    def of(cls, loss: MultiLabelLoss) -> Objective:
        """Return the objective in which all runs have the same loss."""
        return cls([Part(slice(None), loss)])

    def __call__(self, outputs: Tensor, labels: LabelSource, index: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the losses (G, K) of outputs (G, K, B, o) for the rows ``index`` (G, B) with weights (G, B)."""
        # Rows are independent. They are processed in the order of memory, (G, B, K) after a linear layer, so that no
        # operation has to combine two orders.
        run_dim = 1 if self._corrected or outputs.is_contiguous() else 2
        targets = labels.targets(index, run_dim)
        if targets.dtype != outputs.dtype:
            targets = targets.to(torch.promote_types(outputs.dtype, torch.float32))
        values = []
        for runs, loss in ((part.runs, part.loss) for part in self.parts):
            f = outputs[:, runs] if run_dim == 1 else outputs[:, runs].transpose(1, 2)
            t = targets
            if targets.shape[run_dim] > 1:
                t = targets[:, runs] if run_dim == 1 else targets[:, :, runs]
            t = loss.debias_tensor(t)
            if loss.correction is not None:
                values.append(loss.corrected_risk(f, t.expand(*f.shape[:-1], -1)))
                continue
            rows = loss.row_losses(f, t)
            if weights is not None:
                rows = rows * weights.unsqueeze(run_dim).to(rows.dtype)
            values.append(rows.mean(3 - run_dim))
        return values[0] if len(values) == 1 else torch.cat(values, 1)


Step = Callable[[Batch], Tensor]
"""Function of a batch that updates the weights and returns the losses (G, K) before the update."""


def make_step(
    network: Network,
    objective: Objective,
    optimizer: StackedAdam,
    features: Features,
    labels: LabelSource,
    weights: Tensor | None = None,
    *,
    group: ProcessGroup | None = None,
) -> Step:
    """Return the training step: gather, outputs, loss, backward, reduce over ranks, update.

    On a CUDA device, the step is captured as a CUDA graph if the data are dense and the network is a built-in one.
    """
    leaves = [p.values for p in network.parameters]
    is_user, is_distributed = isinstance(network, UserNetwork), group is not None and group.is_distributed
    upstream: list[Tensor] = []  # gradient of the summed losses with respect to each loss; created once

    def step(batch: Batch) -> Tensor:
        index = batch.index
        X = features.gather(index)
        w = None if weights is None else weights[index]
        losses = objective(network.outputs(X), labels, index, w)
        if not upstream or upstream[0].dtype != losses.dtype:
            upstream[:] = [torch.ones_like(losses)]
        gradients = list(torch.autograd.grad(losses, leaves, upstream[0], allow_unused=is_user))
        losses = losses.detach()
        if is_user:
            # A user's module may share gradients between parameters or leave parameters unused. The optimizer
            # modifies gradients in place.
            gradients = [torch.zeros_like(v) if g is None else g.clone() for v, g in zip(leaves, gradients)]
        if is_distributed:
            assert group is not None
            for gradient in gradients:
                group.sum_over_ranks(gradient.mul_(batch.weight))
            losses = losses * batch.weight
        optimizer.step(gradients)
        return losses

    capturable = features.is_dense and labels.is_dense and not is_distributed and not is_user
    return _CapturedStep(step, optimizer, leaves) if features.device.type == "cuda" and capturable else step


class _CapturedStep:
    """Step that replays a CUDA graph; one graph per batch size."""

    def __init__(self, step: Step, optimizer: StackedAdam, leaves: list[Tensor]) -> None:
        self._step, self._optimizer, self._leaves = step, optimizer, leaves
        self._graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def __call__(self, batch: Batch) -> Tensor:
        shape = batch.index.shape
        if shape not in self._graphs:
            self._graphs[shape] = self._capture(batch.index)
        graph, index, losses = self._graphs[shape]
        index.copy_(batch.index)
        graph.replay()
        return losses.clone()

    def _capture(self, index: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        """Run warm-up steps and capture one, then restore the weights and the state of the optimizer."""
        touched = [*self._leaves, *self._optimizer.first, *self._optimizer.second, self._optimizer.steps]
        before = [t.detach().clone() for t in touched]
        batch = Batch(index.clone())
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = self._step(batch)
        with torch.no_grad():
            for tensor, value in zip(touched, before):
                tensor.copy_(value)
        return graph, batch.index, losses
