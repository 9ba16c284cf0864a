"""Number of threads of the numerical libraries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

MAX_SINGLE_THREAD_OPERATIONS = 2**31
"""Problems with at most this number of operations are solved by one thread in a fraction of a second."""


@contextmanager
def limit_threads(operations: float) -> Iterator[None]:
    """Use one thread for numpy, scipy and torch while a problem with few operations is solved.

    Idle threads of one library compete with the threads of the other. On two busy cores, Newton steps on 2,000 rows
    took seven times as long with two threads, the estimation of noise rates eight times.
    """
    if operations > MAX_SINGLE_THREAD_OPERATIONS:
        yield
        return
    with _limit_lock:
        if not _limits:
            _limits.append((_thread_pools().limit(limits=1, user_api="blas"), torch.get_num_threads()))
            torch.set_num_threads(1)
        else:
            _limits.append(None)
    try:
        yield
    finally:
        with _limit_lock:
            limit = _limits.pop()
            if limit is not None:
                limit[0].restore_original_limits()
                torch.set_num_threads(limit[1])


_limit_lock = threading.Lock()
_limits: list[Any] = []
"""Limit of the threads and previous number of threads of torch, followed by None for every other fit that runs at the
same time; the last fit restores them."""

_thread_pools = cache(ThreadpoolController)
"""Return the controller of the thread pools, created at the first call: finding the loaded libraries takes time."""
