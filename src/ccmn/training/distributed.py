"""Training of one network by several ranks of a ``torch.distributed`` process group.

A batch is defined for all ranks together, so that its rows do not depend on the world size. Every rank works on a share
of its rows. Losses and gradients are means over the whole batch: the sum over ranks of the rank's mean times its share.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class ProcessGroup:
    """Processes that train one network together, and the number of this process among them.

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


ALONE = ProcessGroup()
"""This process alone."""
