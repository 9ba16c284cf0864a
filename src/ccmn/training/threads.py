"""How many threads the linear algebra library gets: for small matrices one, since more wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_LITTLE = 2**31
"""Operations that one thread does in a fraction of a second."""


@contextmanager
def few_threads(X: Any) -> Iterator[None]:
    """One thread for numpy's and scipy's products while a problem with these features (n, d) is solved, if it is small.

    Their threads spin between products, beside torch's own: on two cores a small closed form then takes twice, L-BFGS
    ten times as long as with one.
    """
    n, d = X.shape
    if n * d * min(n, d) > _LITTLE:
        yield
        return
    with _pools().limit(limits=1, user_api="blas"):
        yield


@cache
def _pools() -> Any:
    return ThreadpoolController()
