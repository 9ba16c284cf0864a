"""A parameter search on a Ray cluster: scikit-learn's own, its fits as tasks that are run again when a machine is lost.

Ray's own backend for joblib keeps a pool of actors, which do not come back: with a machine lost, a search never ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import joblib
from joblib.parallel import ThreadingBackend

from ccmn.experiments.ray_cluster import RETRIES, connected

_TASKS_PER_PROCESSOR = 2
"""The next task is at hand when one ends, and a machine that joins finds some to run."""


@contextmanager
def search_on_ray(address: str | None = None) -> Iterator[None]:
    """Within it, what scikit-learn runs in parallel runs on a Ray cluster, one processor a fit.

    For ``GridSearchCV``, ``RandomizedSearchCV``, ``cross_validate`` and the like, with ``n_jobs`` left alone. Data go
    to the cluster once for each call. A fit whose machine is lost is run again; with a seeded estimator it comes to
    the same.

    Parameters
    ----------
    address : HOST:PORT of a cluster's head, optional
        Without it the one RAY_ADDRESS names, or one that is started here.
    """
    with connected(address) as ray, joblib.parallel_config(_RayTasks(ray), n_jobs=-1):
        yield


class _RayTasks(ThreadingBackend):  # type: ignore[misc]
    """joblib's threads, each of which hands its call to the cluster and waits for it."""

    uses_threads = supports_sharedmem = False

    def __init__(self, ray: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self._ray, self._task = ray, ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        # Keeping the objects keeps their ids theirs.
        self._sent: dict[int, tuple[Any, Any]] = {}

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        return max(1, _TASKS_PER_PROCESSOR * int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, func: Any, callback: Any = None) -> Any:
        """``func`` is joblib's: calls that are made together."""
        calls = copy(func)
        calls.items = [(f, tuple(map(self._send, args)), options) for f, args, options in func.items]
        return super().submit(lambda: self._ray.get(self._task.remote(calls)), callback)

    def _send(self, argument: Any) -> Any:
        """What has a shape is data, and goes to the cluster once."""
        if not hasattr(argument, "shape"):
            return argument
        if id(argument) not in self._sent:
            self._sent[id(argument)] = argument, self._ray.put(argument)
        return self._sent[id(argument)][1]

    def terminate(self) -> None:
        super().terminate()
        self._sent.clear()


def _call(calls: Any) -> Any:
    """On a machine of the cluster."""
    import ray

    def received(argument: Any) -> Any:
        return ray.get(argument) if isinstance(argument, ray.ObjectRef) else argument

    calls.items = [(f, tuple(map(received, args)), options) for f, args, options in calls.items]
    return calls()
