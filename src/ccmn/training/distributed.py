"""Training of one network by several ranks of a ``torch.distributed`` process group.

A batch is defined for all ranks together, so that its rows do not depend on the world size. Every rank works on a share
of its rows. Losses and gradients are means over the whole batch: the sum over ranks of the rank's mean times its share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from ccmn.training.batches import Batch, Batches


@dataclass(frozen=True)
class ProcessGroup:
    """Ranks that train one network together, and this rank among them.

    Parameters
    ----------
    rank : int, default=0
        Number of this process.
    world_size : int, default=1
        Number of processes.

    Examples
    --------
    >>> ProcessGroup.current()
    ProcessGroup(rank=0, world_size=1)
    """

    rank: int = 0
    world_size: int = 1

    @classmethod
    def current(cls) -> ProcessGroup:
        """Return the default process group of ``torch.distributed``, or a group of this process alone."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0. Only rank 0 writes files, prints progress and warns."""
        return self.rank == 0

    @property
    def is_distributed(self) -> bool:
        """Whether losses and gradients have to be summed over ranks."""
        return self.world_size > 1

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks, in place, and return it."""
        if self.is_distributed:
            contiguous = tensor.contiguous()  # required by NCCL
            dist.all_reduce(contiguous)
            if contiguous is not tensor:
                tensor.copy_(contiguous)
        return tensor


class SharedBatches(Batches):
    """Share of every batch that one rank works on: every ``world_size``-th row.

    A rank that gets no row of a small batch works on its first row with a weight of 0.

    Parameters
    ----------
    batches : Batches
        Batches of all ranks together.
    group : ProcessGroup
        Process group.
    """

    def __init__(self, batches: Batches, group: ProcessGroup) -> None:
        self._batches, self._group = batches, group

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield this rank's share of the batches of an epoch."""
        for index, _ in self._batches.epoch(number):
            share = index[:, self._group.rank :: self._group.world_size]
            yield Batch(share if share.shape[1] else index[:, :1], share.shape[1] / index.shape[1])
