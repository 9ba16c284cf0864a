"""What the fused way takes, and what it is handed. The kernels themselves are tested in tests/device."""

from __future__ import annotations

import copy

import numpy as np
import torch

from bare import run_bare
from ccmn.losses import SURROGATES, RankingLoss
from ccmn.losses.triton.dispatch import _label_rows, can_fuse, constants_of
from ccmn.noise import ClassConditionalNoise

NOISE = ClassConditionalNoise([0.1, 0.2, 0.3], [0.3, 0.0, 0.2])


def test_a_cpu_takes_the_eager_way_and_never_imports_triton():
    assert not can_fuse(torch.zeros(2, 3), torch.zeros(2, 3), SURROGATES["sigmoid"])
    code = """
import sys, torch, ccmn
noise = ccmn.ClassConditionalNoise(0.1, 0.2, n_labels=3)
ccmn.RankingLoss(noise=noise)(torch.randn(4, 4, requires_grad=True), torch.ones(4, 3)).backward()
print([name for name in sys.modules if name.startswith(("triton", "ccmn.losses.triton.ways"))])
"""
    assert run_bare(code) == "[]"


def test_constants_are_the_debiasing():
    debias = RankingLoss(noise=NOISE).debias
    scale, offset = constants_of(debias)
    assert scale.dtype == offset.dtype == torch.float32
    for y in (torch.zeros(3), torch.ones(3), torch.full((3,), 0.4)):
        torch.testing.assert_close(scale * y - offset, debias(y))


def test_constants_are_kept_until_a_rate_changes():
    debias = RankingLoss(noise=NOISE).debias
    first = constants_of(debias)
    assert constants_of(debias)[0] is first[0]
    other = RankingLoss(noise=ClassConditionalNoise(0.4, 0.1, n_labels=3)).debias
    debias.load_state_dict(other.state_dict())
    torch.testing.assert_close(constants_of(debias), constants_of(other))
    twin = copy.deepcopy(debias)
    twin.rho_neg.mul_(2)
    assert not constants_of(twin)[1].equal(constants_of(debias)[1])


def test_labels_repeat_themselves_over_the_rows():
    outputs = torch.zeros(4, 5, 3)
    Y = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (4, 5, 2))).bool()
    for labels in (Y, Y[:1], Y[0], Y[:, :1], Y[0, 0]):
        rows = _label_rows(outputs, labels)
        assert rows.dtype == torch.uint8
        whole = labels.expand(4, 5, 2).reshape(20, 2)
        assert all(rows[i % len(rows)].bool().equal(whole[i]) for i in range(20))
