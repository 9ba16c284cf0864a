"""The loop: for each epoch, for each batch a step; then select; then tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from ccmn.training.batches import Batches, Features
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.labels import LabelRows, as_labels
from ccmn.training.networks import Network
from ccmn.training.objective import Objective
from ccmn.training.optimiser import StackedAdam
from ccmn.training.selection import Selection
from ccmn.training.step import make_step


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
