"""The host's part of the fused loss, on a CPU: Triton and its kernels are replaced, in a process of its own."""

from __future__ import annotations

from bare import run_bare

CODE = """
import itertools, sys, types
import torch

# Kernels are declared, and never run.
triton, language = types.ModuleType("triton"), types.ModuleType("triton.language")
triton.jit = lambda f=None, **options: f if f is not None else (lambda g: g)
triton.language, language.constexpr = language, object
sys.modules.update({"triton": triton, "triton.language": language})

from ccmn.losses import RankingLoss
from ccmn.losses.triton import dispatch
from ccmn.losses.triton import pair_methods
from ccmn.losses.pairs import pair_sum
from ccmn.noise import ClassConditionalNoise


class Eager:
    # What the kernels compute from a batch, by torch's own operations.
    calls = 0

    def of(self, batch, f):
        y = batch.labels.float().repeat(len(f) // len(batch.labels), 1)
        p = y if batch.scale is None else y * batch.scale - batch.offset
        n = 1 - p
        if batch.dummy:
            one = torch.ones(len(p), 1)
            p, n = torch.cat((one, p), 1), torch.cat((one, n), 1)
        return pair_sum(f, p, n, batch.surrogate)

    def values(self, batch):
        Eager.calls += 1
        return self.of(batch, batch.outputs), None

    def gradient(self, batch, kept, behind):
        with torch.enable_grad():
            f = batch.outputs.detach().requires_grad_()
            factor = behind.grad * behind.share
            return torch.autograd.grad(self.of(batch, f), f, factor if behind.by_row else factor.expand(len(f)))[0]


pair_methods._choose = lambda batch: Eager()


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
    found = []
    for fused in (True, False):
        dispatch.runs_kernels = lambda tensor: fused
        found.append(derivatives(loss, outputs, Y))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
print(Eager.calls)
"""


def test_reductions_shapes_and_second_derivatives_are_the_eager_ones():
    assert run_bare(CODE) == str(3 * 60)
