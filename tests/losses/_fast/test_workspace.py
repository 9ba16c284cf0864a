"""Checks of the reused workspace of the pair sums."""

from __future__ import annotations

import threading

import torch

from ccmn.losses._fast import pair_sum
from ccmn.losses._fast.direct import workspace
from ccmn.losses.surrogates import SURROGATES

CPU = torch.device("cpu")


def test_memory_is_reused_and_grows():
    a, b = workspace(100, torch.float32, CPU), workspace(50, torch.float32, CPU)
    assert a.data_ptr() == b.data_ptr()
    assert len(b) == 50
    assert len(workspace(10**6, torch.float32, CPU)) == 10**6


def test_threads_have_separate_workspaces():
    """Parallel threads give the results of a single thread."""
    torch.manual_seed(0)
    rows = [torch.randn(3, 8, 120) for _ in range(6)]
    expected = [pair_sum(*r, SURROGATES["sigmoid"]) for r in rows]
    wrong = []

    def work(i):
        results = [pair_sum(*rows[i], SURROGATES["sigmoid"]) for _ in range(30)]
        wrong.extend(i for result in results if not torch.equal(result, expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_are_not_in_the_workspace():
    f, p, n = torch.randn(3, 4, 30)
    leaf = f.clone().requires_grad_()
    first = pair_sum(leaf, p, n, SURROGATES["hinge"])
    (gradient,) = torch.autograd.grad(first.sum(), leaf, retain_graph=True)
    kept = first.detach().clone(), gradient.clone()
    pair_sum(torch.randn(4, 30), p, n, SURROGATES["hinge"])
    assert torch.equal(first, kept[0])
    assert torch.equal(torch.autograd.grad(first.sum(), leaf)[0], kept[1])


def test_workspace_from_inference_mode_is_usable_in_training():
    f, p, n = torch.randn(3, 5, 77)
    with torch.inference_mode(), torch.device("meta"):
        workspace(10**7, torch.float32, CPU)
    leaf = f.clone().requires_grad_()
    pair_sum(leaf, p, n, SURROGATES["sigmoid"]).sum().backward()
    assert leaf.grad.isfinite().all()
