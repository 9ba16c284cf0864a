"""Host side of the fused ranking loss, without a GPU. The kernels are tested in tests/device."""

from __future__ import annotations

import torch

from ccmn.losses._fast.cuda import can_fuse
from helpers import run_bare


def test_triton_is_not_imported_on_a_cpu():
    assert not can_fuse(torch.zeros(2, 3), torch.zeros(2, 3))
    code = """
import sys, torch, ccmn
noise = ccmn.ClassConditionalNoise(0.1, 0.2, n_labels=3)
ccmn.RankingLoss(noise=noise)(torch.randn(4, 4, requires_grad=True), torch.ones(4, 3)).backward()
print([name for name in sys.modules if name.startswith(("triton", "ccmn.losses._fast.cuda_pairs"))])
"""
    assert run_bare(code) == "[]"
