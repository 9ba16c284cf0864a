"""Several processes that train one network: who takes part, what part of a batch is whose, and what they add up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ccmn.training.batches import Batches
from ccmn.training.optimizer import StackedAdam


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
            whole = tensor.contiguous()  # nccl takes no other
            dist.all_reduce(whole)
            if whole is not tensor:
                tensor.copy_(whole)
        return tensor

    def mean(self, losses: Iterable[Tensor]) -> Tensor:
        """The mean over batches of losses, each weighed by this process' share of its batch, added up.

        They are summed as they come: an epoch of a stream may have millions of batches.
        """
        total, count = torch.zeros((), dtype=torch.float64), 0
        for loss in losses:
            total = total.to(loss.device) + loss.double() * self.share
            count += 1
        return self.add_up(total).to(loss.dtype) / count


class SharedBatches(Batches):
    """A share of every batch of some batches: every ``world``-th of its rows.

    A process that gets none of a small batch works on its first row with a share of 0.
    """

    def __init__(self, batches: Batches, ranks: Ranks) -> None:
        self._batches, self._ranks = batches, ranks

    def epoch(self, number: int) -> Iterator[Tensor]:
        for index in self._batches.epoch(number):
            own = index[:, self._ranks.rank :: self._ranks.world]
            self._ranks.share = own.shape[1] / index.shape[1]
            yield own if own.shape[1] else index[:, :1]

    def mean(self, losses: Iterable[Tensor]) -> Tensor:
        return self._ranks.mean(losses)


class SharedAdam(StackedAdam):
    """Adam on gradients added up over processes, each times its share of the batch: all take the same step."""

    can_be_captured = False  # the share changes from batch to batch

    def __init__(self, ranks: Ranks, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._ranks = ranks

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        for gradient in gradients:
            self._ranks.add_up(gradient.mul_(self._ranks.share))
        super().step(gradients)
