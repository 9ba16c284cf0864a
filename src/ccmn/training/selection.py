"""Model selection during training: validation criteria and the weights of the best epoch.

Criteria are computed on debiased validation labels, so that they estimate the loss on true labels. Rows are processed
in blocks: the scores of all validation rows, runs and labels need not fit in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss
from ccmn.metrics.corrected_metrics import Sums, hamming_sums, one_error_sums, pooled_ranking_sums
from ccmn.training.batches import Features, LabelSource
from ccmn.training.distributed import ProcessGroup
from ccmn.training.networks import Network

MIN_IMPROVEMENT = 1e-9
"""A criterion that decreases by less than this has not improved: smaller differences are rounding errors."""
MAX_BLOCK_SCORES = 1 << 20
"""Number of scores of a block of validation rows, of which about ten temporary float64 arrays exist."""
MAX_BLOCK_ROWS = 8192
"""Number of rows of a block of validation rows."""
MAX_BLOCK_ENTRIES = 1 << 25
"""Features of a block of validation rows, which are dense for a network of the user."""

# -- Criteria

CriterionPart = Callable[[Tensor, Tensor, Tensor | None], Sums]
"""(debiased labels (n, q), scores (..., n, q), sample weights) -> quotient of sums over rows."""


def _hamming_part(p: Tensor, scores: Tensor, weights: Tensor | None) -> Sums:
    """Return the sums of the corrected Hamming loss of predictions at threshold 0."""
    return hamming_sums(p, scores >= 0, weights)


CRITERIA: dict[str, tuple[CriterionPart, ...]] = {
    "hamming_loss": (_hamming_part,),
    # The ranking loss does not depend on the threshold between relevant and irrelevant labels; the Hamming loss does.
    "ranking_and_hamming_loss": (pooled_ranking_sums, _hamming_part),
    "one_error": (one_error_sums,),
}
"""Validation criteria by name: sums of these quotients. Smaller is better."""


def criterion_of_scores(name: str, p: Tensor, scores: Tensor, weights: Tensor | None) -> Tensor:
    """Return a criterion of scores (..., n, q) given debiased labels (n, q): (...), infinite for non-finite scores."""
    diverged = ~scores.isfinite().all(-1).all(-1)
    return _total([part(p, scores, weights) for part in CRITERIA[name]], diverged)


def _total(sums: list[Sums], diverged: Tensor) -> Tensor:
    """Return the sum of quotients; infinite for runs that diverged, because NaN scores predict no label."""
    # Few noisy rows can have no pairs on balance. The order of labels then does not count, but the threshold does.
    parts = [torch.where(s.total > 0, s.ratio(), 0.0) for s in sums]
    return torch.stack(parts).sum(0).masked_fill(diverged, torch.inf)


@dataclass(frozen=True)
class ValidationCriterion:
    """Criterion of a network on validation rows.

    Parameters
    ----------
    name : str
        Key of ``CRITERIA``.
    loss : MultiLabelLoss
        Loss whose ``decision`` turns outputs into scores.
    features : Features
        Features of the validation rows.
    labels : LabelSource
        Debiased labels of the validation rows.
    weights : Tensor of shape (n,), optional
        Sample weights.
    group : ProcessGroup, optional
        Ranks, each of which evaluates a part of the blocks; by default this process alone.
    """

    name: str
    loss: MultiLabelLoss
    features: Features
    labels: LabelSource
    weights: Tensor | None = None
    group: ProcessGroup | None = None

    def __call__(self, network: Network) -> Tensor:
        """Return the criterion of every run, (G, K) with G = 1. Smaller is better."""
        parts, device = CRITERIA[self.name], self.features.device
        shape = network.groups, network.runs
        wrong = torch.zeros(len(parts) + 1, *shape, dtype=torch.float64, device=device)
        total = torch.zeros(len(parts), dtype=torch.float64, device=device)
        rows = torch.arange(self.features.n, device=device).unsqueeze(0)
        q = self.labels.targets(rows[:, :1]).shape[-1]
        size = min(MAX_BLOCK_ROWS, MAX_BLOCK_SCORES // (q * network.runs), MAX_BLOCK_ENTRIES // self.features.d)
        blocks = torch.split(rows, max(1, size), 1)
        for block in blocks if self.group is None else blocks[self.group.rank :: self.group.world_size]:
            p = self.labels.targets(block)[0, 0]
            scores = self.loss.decision(network.outputs(self.features.gather(block)))
            weights = None if self.weights is None else self.weights[block[0]]
            for i, part in enumerate(parts):
                sums = part(p, scores, weights)
                wrong[i] += sums.wrong
                total[i] += sums.total
            wrong[-1] += ~scores.isfinite().all(-1).all(-1)
        if self.group is not None:
            self.group.sum_over_ranks(wrong)
            self.group.sum_over_ranks(total)
        return _total([Sums(w, t) for w, t in zip(wrong, total)], wrong[-1] > 0)


# -- Best epochs


@dataclass
class BestWeights:
    """Smallest value of each criterion for every run, and the weights of that epoch.

    No value is read back from the device.

    Parameters
    ----------
    min_improvement : float, default=MIN_IMPROVEMENT
        A smaller decrease does not count as an improvement.

    Attributes
    ----------
    value : Tensor of shape (C, G, K) or None
        Smallest value of each of C criteria.
    epoch : Tensor of shape (C, G, K) or None
        Epoch of that value, starting at 0.
    weights : list of C lists of Tensors
        Parameters of that epoch.
    buffers : list of Tensors
        Buffers of the network in that epoch. Only single runs with one criterion have buffers.
    """

    min_improvement: float = MIN_IMPROVEMENT
    value: Tensor | None = None
    epoch: Tensor | None = None
    weights: list[list[Tensor]] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)

    def improved(self, epoch: int, value: Tensor) -> Tensor:
        """Update values and epochs from new values (C, G, K); return which runs improved. NaN is the worst value."""
        value = value.nan_to_num(nan=torch.inf, posinf=torch.inf)
        if self.value is None or self.epoch is None:
            self.value, self.epoch = value.clone(), torch.full_like(value, epoch)
            return torch.ones_like(value, dtype=torch.bool)
        better = value < self.value - self.min_improvement
        self.value = torch.where(better, value, self.value)
        self.epoch = torch.where(better, epoch, self.epoch)
        return better

    def keep(self, better: Tensor, network: Network) -> None:
        """Keep the present weights of the runs for which ``better`` (C, G, K) is true; at first, of all runs."""
        if not self.weights:
            self.weights = [[p.values.detach().clone() for p in network.parameters] for _ in better]
            self.buffers = [b.detach().clone() for b in network.buffers]
            return
        for runs, kept in zip(better, self.weights):
            if runs.device.type == "cpu" and not runs.any():
                continue  # this check is free on a CPU; on a GPU it would wait for the device
            for weights, parameter in zip(kept, network.parameters):
                torch.where(parameter.spread(runs), parameter.values.detach(), weights, out=weights)
            for kept_buffer, buffer in zip(self.buffers, network.buffers):
                kept_buffer.copy_(torch.where(runs.all(), buffer, kept_buffer))

    def load(self, network: Network, criterion: int = 0) -> None:
        """Load the weights that were kept for a criterion into the network."""
        for weights, parameter in zip(self.weights[criterion], network.parameters):
            parameter.values.data.copy_(weights)
        for kept_buffer, buffer in zip(self.buffers, network.buffers):
            buffer.copy_(kept_buffer)


class Selection(ABC):
    """Observer of the training that selects the final weights."""

    @abstractmethod
    def on_epoch_end(self, epoch: int, network: Network) -> Tensor | None:
        """Return the validation criterion of this epoch, (G, K), or None if there is none."""

    @abstractmethod
    def load_best(self, network: Network) -> None:
        """Load the selected weights into the network."""

    def finished(self, epoch: int) -> bool:
        """Return whether the training should stop after this epoch."""
        return False

    @property
    def has_best(self) -> bool:
        """Whether there are weights that can be loaded."""
        return True

    def state(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint stores."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the state that a checkpoint stored."""
        return


class KeepLast(Selection):
    """Selection of the weights after the last epoch."""

    def on_epoch_end(self, epoch: int, network: Network) -> Tensor | None:
        """Return None: there is no criterion."""
        return None

    def load_best(self, network: Network) -> None:
        """Leave the network as it is."""


class KeepBest(Selection):
    """Selection of the epoch with the smallest criterion, separately for every run.

    Parameters
    ----------
    criterion : callable, Network -> Tensor of shape (G, K)
        Criterion; smaller is better.
    patience : int, optional
        Stop when no run has improved for this number of epochs.

    Attributes
    ----------
    best : Tensor of shape (G, K) or None
        Smallest criterion of every run.
    best_epoch : Tensor of shape (G, K) or None
        Epoch of the smallest criterion, starting at 0.
    """

    def __init__(self, criterion: Callable[[Network], Tensor], *, patience: int | None = None) -> None:
        self.criterion, self.patience = criterion, patience
        self.best: Tensor | None = None
        self.best_epoch: Tensor | None = None
        self._kept = BestWeights()

    def on_epoch_end(self, epoch: int, network: Network) -> Tensor | None:
        """Compute the criterion and keep the weights of the runs that improved."""
        network.train_mode(False)
        with torch.no_grad():
            value = self.criterion(network).double().nan_to_num(nan=torch.inf, posinf=torch.inf)
            self._kept.keep(self._kept.improved(epoch, value.unsqueeze(0)), network)
        network.train_mode(True)
        assert self._kept.value is not None
        assert self._kept.epoch is not None
        self.best, self.best_epoch = self._kept.value[0], self._kept.epoch[0]
        return value

    def load_best(self, network: Network) -> None:
        """Load the weights of the best epoch of every run into the network."""
        self._kept.load(network)

    @property
    def has_best(self) -> bool:
        """Whether an epoch has been evaluated."""
        return self.best is not None

    def finished(self, epoch: int) -> bool:
        """Return whether no run has improved for ``patience`` epochs."""
        if self.patience is None or self.best_epoch is None:
            return False
        return epoch - int(self.best_epoch.max()) >= self.patience

    def state(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint stores."""
        if self.best is None or self.best_epoch is None:
            return {}
        weights = {f"kept.{i}": weights for i, weights in enumerate(self._kept.weights[0])}
        buffers = {f"buffer.{i}": b for i, b in enumerate(self._kept.buffers)}
        return {"best": self.best, "best_epoch": self.best_epoch, **weights, **buffers}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the state that a checkpoint stored."""
        if state:
            self.best, self.best_epoch = state["best"], state["best_epoch"]
            self._kept.value, self._kept.epoch = self.best.unsqueeze(0), self.best_epoch.unsqueeze(0)
            self._kept.weights = [[state[f"kept.{i}"] for i in range(sum(k.startswith("kept.") for k in state))]]
            self._kept.buffers = [state[f"buffer.{i}"] for i in range(sum(k.startswith("buffer.") for k in state))]
