"""Memory that is used again by the next call, one piece per thread.

Fresh megabytes cost more than the arithmetic on them (every page is a fault), and a training step would ask for them
thousands of times.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

_kept = threading.local()


def workspace(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """At least ``size`` values, to be overwritten by the next call in this thread.

    Kept on a CPU only: accelerators have allocators of their own that keep memory.
    """
    if device.type != "cpu":
        return torch.empty(size, dtype=dtype, device=device)
    pieces: dict[torch.dtype, Tensor] = _kept.__dict__.setdefault("pieces", {})
    if dtype not in pieces or pieces[dtype].numel() < size:
        # Outlives the context it is made in: an inference tensor could not be written to in training.
        with torch.inference_mode(False):
            pieces[dtype] = torch.empty(size, dtype=dtype, device="cpu")
    return pieces[dtype][:size]
