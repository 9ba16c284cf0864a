"""``torchrun -m ccmn fit``: several processes as one command, of which one speaks and writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccmn.training import Ranks

_PATIENCE = timedelta(minutes=10)
"""How long a process waits for the others before it gives up (and torchrun may start all anew)."""


@contextmanager
def taking_part(device: str | None) -> Iterator[tuple[Ranks, str | None]]:
    """The processes that torchrun started, and the device of this one; without torchrun this process alone."""
    from ccmn.training import Ranks

    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks(), device
        return
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available() if device in (None, "auto") else str(device).startswith("cuda")
    if cuda:
        device = _own_gpu(torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=_PATIENCE)
    try:
        yield Ranks.current(), device
    finally:
        dist.destroy_process_group()


def _own_gpu(count: int) -> str:
    """A GPU for each process of this machine: nccl does not share one."""
    number, processes = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if processes > count:
        raise ValueError(
            f"torchrun started {processes} processes here, and there are {count} GPUs: "
            f"give --nproc-per-node {count}, or --device cpu"
        )
    return f"cuda:{number}"
