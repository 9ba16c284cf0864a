"""Threads of the linear algebra library: one for small problems, the previous number afterwards."""

from __future__ import annotations

import torch
from threadpoolctl import threadpool_info, threadpool_limits

from ccmn._threads import limit_threads


def threads():
    return [torch.get_num_threads(), *(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")]


def test_one_thread_for_a_small_problem():
    before = threads()
    with limit_threads(1e5):
        assert set(threads()) <= {1}
    assert threads() == before


def test_large_problem_keeps_its_threads():
    before = threads()
    with limit_threads(1e10):
        assert threads() == before


def test_overlapping_limits_restore_the_number_of_threads():
    """Fits in several threads end in any order."""
    before = threads()
    torch.set_num_threads(2)
    with threadpool_limits(2, "blas"):
        first, second = limit_threads(1e5), limit_threads(1e5)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(threads()) <= {1}
        second.__exit__(None, None, None)
        assert set(threads()) <= {2}
    torch.set_num_threads(before[0])
    assert threads() == before
