"""Host side of the fused ranking loss, without a GPU. The kernels are tested in tests/device."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
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


# Runs in its own process, because it replaces Triton. The kernels are replaced by eager operations.
WITHOUT_KERNELS = """
import itertools, sys, types
import torch
from ccmn.losses import SURROGATES, HammingLoss, RankingLoss
from ccmn.losses._fast import cuda as dispatch
from ccmn.noise import ClassConditionalNoise

triton, language = types.ModuleType("triton"), types.ModuleType("triton.language")
triton.jit = lambda f=None, **options: f if f is not None else (lambda g: g)
triton.language, language.constexpr = language, object
sys.modules.update({"triton": triton, "triton.language": language})

from ccmn.losses._fast import cuda_pairs as pair_methods

for name in ("triton", "triton.language"):  # torch.compile looks for Triton, too
    del sys.modules[name]


SLOPES = {
    "hinge": lambda t: -(t < 1).float(),
    "sigmoid": lambda t: -torch.sigmoid(t) * torch.sigmoid(-t),
    "logistic": lambda t: -torch.sigmoid(-t),
}


class EagerMethod:
    \"\"\"Same interface as the methods with kernels: the factor of a mean is part of value and gradient.\"\"\"

    calls = 0

    def __init__(self, batch):
        self.batch = batch

    def parts(self, f, labels, scale, offset):
        EagerMethod.calls += 1
        batch = self.batch
        phi, slope = (table[batch.options.surrogate] for table in (SURROGATES, SLOPES))
        y = labels.float().repeat(len(f) // len(labels), 1)
        p = y if scale is None else y * scale - offset
        assert batch.debias == (scale is not None)
        n, f = 1 - p, f.float()
        if batch.options.loss == "hamming":
            rows = (p * phi.phi(f) + n * phi.phi(-f)).sum(1)
            gradient = p * slope(f) - n * slope(-f)
        else:
            if batch.options.dummy:
                one = torch.ones(len(p), 1)
                p, n = torch.cat((one, p), 1), torch.cat((one, n), 1)
            weights = p.unsqueeze(2) * n.unsqueeze(1) * (1 - torch.eye(f.shape[1]))
            t = f.unsqueeze(2) - f.unsqueeze(1)
            rows, slopes = (weights * phi.phi(t)).sum((1, 2)), weights * slope(t)
            gradient = slopes.sum(2) - slopes.sum(1)
        method = dispatch.select_method(batch.options.loss, batch.options.surrogate, *f.shape)
        n_parts = 1 if method == "series" else -(-f.shape[1] // dispatch.block_size(method, f.shape[1]))
        parts = torch.cat((rows.unsqueeze(1) * batch.row_factor, torch.zeros(len(f), n_parts - 1)), 1)
        return parts, gradient * batch.row_factor if batch.options.needs_gradient else None


class WithGradient(EagerMethod):
    def gradient(self, outputs, labels, scale, offset, saved, grad):
        return dispatch.scale_gradient(saved, grad, outputs.dtype)


class WithRecords(EagerMethod):  # like SeriesMethod: the gradient needs the tensors of the forward pass
    def parts(self, outputs, *others):
        parts, gradient = super().parts(outputs, *others)
        record = dispatch.RECORD_HEADER + 2 * dispatch.largest_table_order(self.batch.options.surrogate)
        return parts, None if gradient is None else torch.zeros(len(outputs), record)

    def gradient(self, outputs, labels, scale, offset, saved, grad):
        _, gradient = EagerMethod.parts(self, outputs, labels, scale, offset)
        return dispatch.scale_gradient(gradient, grad, outputs.dtype)


pair_methods.METHODS.update(dict.fromkeys(("labels", "direct"), WithGradient), series=WithRecords)
torch.manual_seed(0)


def gradient_of(loss, outputs, Y):
    f = outputs.clone().requires_grad_()
    value = loss(f, Y)
    (gradient,) = torch.autograd.grad(value.sum(), f)
    return value.detach(), gradient


def derivatives(loss, outputs, Y):
    f = outputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(f, Y).sum(), f, create_graph=True)
    (second,) = torch.autograd.grad((gradient * outputs).sum(), f)
    return loss(outputs, Y), gradient.detach(), second, *gradient_of(loss, outputs, Y)


def fused_and_not(compute):
    results = []
    for fused in (True, False):
        dispatch.can_run_kernels = lambda tensor: fused
        results.append(compute())
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


NOISE = ClassConditionalNoise([0.1, 0.2, 0.3], [0.3, 0, 0.2])
"""

EAGER = """
shapes = [((5,), (5,)), ((4, 5), (5,)), ((4, 5), (4, 5)), ((4, 5), (4, 1)), ((), ())]
makes = HammingLoss, RankingLoss, lambda *a, **k: RankingLoss(*a, dummy=False, **k)
cases = itertools.product(makes, ("mean", "sum", "none"), shapes, (None, NOISE), ("sum", "mean"))
for make, reduction, (rows, label_rows), noise, over_labels in cases:
    loss = make("logistic", noise, reduction, label_reduction=over_labels)
    outputs, Y = torch.randn(*rows, loss.n_outputs(3)), torch.rand(*label_rows, 3) < 0.5
    fused_and_not(lambda: derivatives(loss, outputs, Y))
print(EagerMethod.calls)
"""

COMPILED = """
# Two rows have more than MAX_DIRECT_PAIRS pairs below, so that the sigmoid uses the series.
dispatch.MAX_DIRECT_COLUMNS, dispatch.MAX_DIRECT_PAIRS = 2, 20
for surrogate, reduction, dummy in (("hinge", "mean", True), ("sigmoid", "none", False), ("sigmoid", "mean", True)):
    loss = RankingLoss(surrogate, NOISE, reduction, dummy=dummy, label_reduction="mean")
    outputs, Y = torch.randn(4, 5, 3 + dummy), torch.rand(4, 5, 3) < 0.5
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    dispatch.can_run_kernels = lambda tensor: True
    results = gradient_of(compiled, outputs, Y), gradient_of(loss, outputs, Y)
    torch.testing.assert_close(*results)
    with torch.no_grad():
        torch.testing.assert_close(compiled(outputs, Y), loss(outputs, Y))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = gradient_of(compiled, outputs.bfloat16(), Y), gradient_of(loss, outputs.bfloat16(), Y)
    torch.testing.assert_close(*results)
op = torch.ops.ccmn.fused_loss.default
for surrogate, reduction in (("hinge", "mean"), ("logistic", "none")):
    options = "ranking", surrogate, False, reduction, 0.5, True
    f, Y = torch.randn(5, 3), torch.randint(0, 2, (5, 3))
    torch.library.opcheck(op, (f, Y, torch.ones(3), torch.zeros(3), *options))
    torch.library.opcheck(op, (f, Y, None, None, *options))
    torch.library.opcheck(op, (f.bfloat16(), Y, None, None, *options[:-1], False))
print(EagerMethod.calls > 0)
"""


def test_fused_loss_equals_the_eager_loss_in_all_reductions_and_shapes():
    assert run_bare(WITHOUT_KERNELS + EAGER) == str(3 * 3 * 60)  # three calls for each loss and case


@pytest.mark.slow
def test_compiled_fused_loss_equals_the_eager_one():
    command = [sys.executable, "-c", WITHOUT_KERNELS + COMPILED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr
