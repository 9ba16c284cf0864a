"""Where Triton's kernels can be launched."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def runs_kernels(tensor: Tensor) -> bool:
    """On the current CUDA device, where there is Triton. Elsewhere Triton is never imported."""
    return tensor.is_cuda and _has_triton() and tensor.get_device() == torch.cuda.current_device()


@cache
def _has_triton() -> bool:
    """Triton comes with builds of torch for CUDA."""
    return find_spec("triton") is not None
