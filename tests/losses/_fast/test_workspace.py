"""Pair sums compute in memory that every thread reuses."""

from __future__ import annotations

import threading

import torch

from ccmn.losses import ranking_loss


def test_threads_have_separate_memory():
    """Parallel threads give the results of a single thread."""
    torch.manual_seed(0)
    rows = [torch.randn(2, 8, 300) for _ in range(6)]
    expected = [ranking_loss(*r) for r in rows]
    wrong = []

    def work(i):
        results = [ranking_loss(*rows[i]) for _ in range(30)]
        wrong.extend(i for result in results if not torch.equal(result, expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_from_inference_mode_is_usable_in_training():
    f, p = torch.randn(2, 5, 2000)
    with torch.inference_mode():
        ranking_loss(f, p)
    leaf = f.clone().requires_grad_()
    ranking_loss(leaf, p).sum().backward()
    assert leaf.grad.isfinite().all()
