"""After each epoch: which epoch is best so far, for every run, and its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ccmn.training.networks import Network


class Selection(ABC):
    """Looks at the network after each epoch; at the end puts back the weights that it kept."""

    @abstractmethod
    def look(self, epoch: int, network: Network) -> Tensor | None:
        """The criterion of this epoch, (G, K), or None where there is none."""

    @abstractmethod
    def restore(self, network: Network) -> None:
        """Put the kept weights into the network."""

    def finished(self, epoch: int) -> bool:
        """Is there no use in going on?"""
        return False

    def has_nothing(self) -> bool:
        """Is there nothing yet that could be put back?"""
        return False

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """The inverse of ``state``."""
        return


class KeepLast(Selection):
    """The weights after the last epoch."""

    def look(self, epoch: int, network: Network) -> Tensor | None:
        return None

    def restore(self, network: Network) -> None:
        return


class KeepBest(Selection):
    """The weights of the epoch with the smallest criterion, run by run.

    Parameters
    ----------
    criterion : network -> (G, K)
        Smaller is better. Nothing is read back to the host unless ``patience`` asks for it.
    patience : int or None
        Stop when no run has improved for this many epochs.
    """

    smallest_gain = 1e-9
    """Less than this is rounding, not progress."""

    def __init__(self, criterion: Callable[[Network], Tensor], *, patience: int | None = None) -> None:
        self.criterion, self.patience = criterion, patience
        self.best: Tensor | None = None
        self.best_epoch: Tensor | None = None
        self._weights: list[Tensor] = []
        self._buffers: list[Tensor] = []

    def look(self, epoch: int, network: Network) -> Tensor | None:
        network.train_mode(False)
        with torch.no_grad():
            value = self.criterion(network).double().nan_to_num(nan=torch.inf)
        network.train_mode(True)
        if self.best is None or self.best_epoch is None:
            self.best, self.best_epoch = value.clone(), torch.full_like(value, epoch)
            self._weights = [p.values.detach().clone() for p in network.parameters]
            self._buffers = [b.detach().clone() for b in network.buffers]
            return value
        better = value < self.best - self.smallest_gain
        self.best = torch.where(better, value, self.best)
        self.best_epoch = torch.where(better, epoch, self.best_epoch)
        if value.device.type == "cpu" and not better.any():
            return value  # nothing to keep, and on a CPU that is known at once
        for kept, parameter in zip(self._weights, network.parameters):
            kept.copy_(torch.where(parameter.spread(better), parameter.values.detach(), kept))
        for kept, buffer in zip(self._buffers, network.buffers):  # of a single run
            kept.copy_(torch.where(better.all(), buffer, kept))
        return value

    def restore(self, network: Network) -> None:
        for kept, parameter in zip(self._weights, network.parameters):
            parameter.values.data.copy_(kept)
        for kept, buffer in zip(self._buffers, network.buffers):
            buffer.copy_(kept)

    def has_nothing(self) -> bool:
        return self.best is None

    def finished(self, epoch: int) -> bool:
        if self.patience is None or self.best_epoch is None:
            return False
        return epoch - int(self.best_epoch.max()) >= self.patience

    def state(self) -> dict[str, Tensor]:
        if self.best is None or self.best_epoch is None:
            return {}
        kept = {f"kept.{i}": weights for i, weights in enumerate(self._weights)}
        buffers = {f"buffer.{i}": b for i, b in enumerate(self._buffers)}
        return {"best": self.best, "best_epoch": self.best_epoch, **kept, **buffers}

    def load_state(self, state: dict[str, Tensor]) -> None:
        if state:
            self.best, self.best_epoch = state["best"], state["best_epoch"]
            self._weights = [state[f"kept.{i}"] for i in range(sum(k.startswith("kept.") for k in state))]
            self._buffers = [state[f"buffer.{i}"] for i in range(sum(k.startswith("buffer.") for k in state))]
