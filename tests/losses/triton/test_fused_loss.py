"""Host side of the fused ranking loss, without a GPU. The kernels are tested in tests/device."""

from __future__ import annotations

import numpy as np
import torch

from ccmn.losses import SURROGATES
from ccmn.losses.triton.dispatch import _label_rows, can_fuse
from helpers import run_bare


def test_triton_is_not_imported_on_a_cpu():
    assert not can_fuse(torch.zeros(2, 3), torch.zeros(2, 3), SURROGATES["sigmoid"])
    code = """
import sys, torch, ccmn
noise = ccmn.ClassConditionalNoise(0.1, 0.2, n_labels=3)
ccmn.RankingLoss(noise=noise)(torch.randn(4, 4, requires_grad=True), torch.ones(4, 3)).backward()
print([name for name in sys.modules if name.startswith(("triton", "ccmn.losses.triton.pair_methods"))])
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


# Runs in its own process, because it replaces Triton. The kernels are replaced by eager operations.
WITHOUT_KERNELS = """
import itertools, sys, types
import torch

triton, language = types.ModuleType("triton"), types.ModuleType("triton.language")
triton.jit = lambda f=None, **options: f if f is not None else (lambda g: g)
triton.language, language.constexpr = language, object
sys.modules.update({"triton": triton, "triton.language": language})

from ccmn.losses import RankingLoss
from ccmn.losses.pairs import pair_sum
from ccmn.losses.triton import dispatch, pair_methods
from ccmn.noise import ClassConditionalNoise


class EagerMethod:
    calls = 0

    def loss(self, batch, f):
        y = batch.labels.float().repeat(len(f) // len(batch.labels), 1)
        p = y if batch.scale is None else y * batch.scale - batch.offset
        n = 1 - p
        if batch.dummy:
            one = torch.ones(len(p), 1)
            p, n = torch.cat((one, p), 1), torch.cat((one, n), 1)
        return pair_sum(f, p, n, batch.surrogate)

    def values(self, batch):
        EagerMethod.calls += 1
        return self.loss(batch, batch.outputs), None

    def gradient(self, batch, saved, grad_output):
        with torch.enable_grad():
            f = batch.outputs.detach().requires_grad_()
            factor = grad_output.grad * grad_output.row_factor
            factor = factor if grad_output.by_row else factor.expand(len(f))
            return torch.autograd.grad(self.loss(batch, f), f, factor)[0]


pair_methods._select_method = lambda batch: EagerMethod()


def derivatives(loss, outputs, Y):
    f = outputs.clone().requires_grad_()
    value = loss(f, Y).sum()
    (gradient,) = torch.autograd.grad(value, f, create_graph=True)
    (second,) = torch.autograd.grad((gradient * outputs).sum(), f)
    g = outputs.clone().requires_grad_()
    loss(g, Y).sum().backward()
    return loss(outputs, Y), gradient.detach(), second, g.grad


torch.manual_seed(0)
shapes = [((5,), (5,)), ((4, 5), (5,)), ((4, 5), (4, 5)), ((4, 5), (4, 1)), ((), ())]
noises = None, ClassConditionalNoise([0.1, 0.2, 0.3], [0.3, 0, 0.2])
cases = itertools.product(("mean", "sum", "none"), (True, False), shapes, noises)
for reduction, dummy, (rows, label_rows), noise in cases:
    loss = RankingLoss("logistic", noise, reduction, dummy=dummy)
    outputs, Y = torch.randn(*rows, 3 + dummy), torch.rand(*label_rows, 3) < 0.5
    results = []
    for fused in (True, False):
        dispatch.can_run_kernels = lambda tensor: fused
        results.append(derivatives(loss, outputs, Y))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
print(EagerMethod.calls)
"""


def test_fused_loss_equals_the_eager_loss_in_all_reductions_and_shapes():
    assert run_bare(WITHOUT_KERNELS) == str(3 * 60)
