"""Host side of the fused ranking loss, without a GPU. The kernels are tested in tests/device."""

from __future__ import annotations

import numpy as np
import torch

from ccmn.losses._fast.cuda import _label_rows, can_fuse
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


def test_label_rows_repeat_over_the_rows_of_the_outputs():
    outputs = torch.zeros(4, 5, 3)
    Y = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (4, 5, 2))).bool()
    for labels in (Y, Y[:1], Y[0], Y[:, :1], Y[0, 0]):
        rows = _label_rows(outputs, labels)
        assert rows.dtype == torch.uint8
        expanded = labels.expand(4, 5, 2).reshape(20, 2)
        assert all(rows[i % len(rows)].bool().equal(expanded[i]) for i in range(20))
