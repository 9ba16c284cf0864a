"""Several processes that train one network: who takes part, what part of a batch is whose, and what they add up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ccmn.training.batches import Batches
from ccmn.training.optimiser import StackedAdam


class Ranks:
    """The processes of a training, and this one among them.

    A batch is defined for all of them together, so that its rows do not depend on how many there are; each process
    works on a share of its rows. Losses and gradients are means over the whole batch: sums of the processes' own means,
    each times its share.
    """

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world
        self.share = 1.0
        """The part of the current batch that this process works on."""

    @classmethod
    def current(cls) -> Ranks:
        """Those of the process group, where torch.distributed has one; else this process alone."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def writes(self) -> bool:
        """Does this process write files? One does."""
        return self.rank == 0

    def add_up(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Until all processes have come here."""
        if self.world > 1:
            dist.barrier()


class SharedBatches(Batches):
    """A share of every batch of some batches: every ``world``-th of its rows.

    A process that gets none of a small batch works on its first row with a share of 0.
    """

    def __init__(self, batches: Batches, ranks: Ranks) -> None:
        self._batches, self._ranks = batches, ranks
        self._shares: list[float] = []

    def epoch(self, number: int) -> Iterator[Tensor]:
        self._shares = []
        for index in self._batches.epoch(number):
            own = index[:, self._ranks.rank :: self._ranks.world]
            self._ranks.share = own.shape[1] / index.shape[1]
            self._shares.append(self._ranks.share)
            yield own if own.shape[1] else index[:, :1]

    def mean(self, losses: Sequence[Tensor]) -> Tensor:
        return shared_mean(losses, self._shares, self._ranks)


def shared_mean(losses: Sequence[Tensor], shares: Sequence[float], ranks: Ranks) -> Tensor:
    """The mean over batches of losses that every process knows its share of."""
    own = torch.stack(list(losses))
    parts = torch.tensor(list(shares), dtype=own.dtype, device=own.device).view(-1, *[1] * (own.ndim - 1))
    return ranks.add_up(own * parts).mean(0)


class SharedAdam(StackedAdam):
    """Adam on gradients added up over processes, each times its share of the batch: all take the same step."""

    def __init__(self, ranks: Ranks, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._ranks = ranks

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        for gradient in gradients:
            self._ranks.add_up(gradient.mul_(self._ranks.share))
        super().step(gradients)
