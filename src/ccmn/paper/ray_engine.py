"""Ray clusters: the engine "ray" of the tables, and a joblib backend for parameter searches of scikit-learn."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import joblib
import torch
from joblib.parallel import ThreadingBackend

from ccmn._version import __version__
from ccmn.paper.result_store import Result
from ccmn.paper.runner import CellGroup, Column, Finished, PendingPart, machine, run_group

MAX_RETRIES = 5
"""Number of times that a task is run again after its node was lost. Tasks are seeded and give the same result."""
_CONNECTION_TIMEOUT = 10.0
"""Seconds to wait for an answer of a cluster."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""Connection preface of an HTTP/2 client, followed by an empty SETTINGS frame."""
_SETTINGS_FRAME = 4
"""Type of the SETTINGS frame, with which an HTTP/2 server answers."""
_TASKS_PER_CPU = 2
"""Number of waiting tasks per processor, so that a task that ends is replaced at once and new nodes find work."""


# -- Connection


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """Connect to a Ray cluster and return the module ``ray``; an existing connection is used and kept.

    Parameters
    ----------
    address : str, optional
        HOST:PORT of the head of the cluster; by default the value of the environment variable RAY_ADDRESS, else a
        cluster that is started on this machine and ends with the context.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("the engine 'ray' requires Ray; install it with: pip install ray") from None
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_address(address)
    options = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **options)
    except (RuntimeError, ConnectionError) as error:  # for example, another version of Ray or Python
        raise OSError(f"cannot use the Ray cluster at {address}: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise ``OSError`` if no Ray cluster answers at an address; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit() or os.environ.get("RAY_USE_TLS") == "1":
        return  # a keyword of Ray ("auto", "local"), or an encrypted connection
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECTION_TIMEOUT) as connection:
            # Ray uses gRPC, whose servers answer an HTTP/2 client with their settings.
            connection.sendall(_HTTP2_PREFACE)
            head = connection.recv(9, socket.MSG_WAITALL)
        if len(head) != 9 or head[3] != _SETTINGS_FRAME:
            raise OSError("the server is not Ray")
    except (OSError, OverflowError) as error:
        raise OSError(f"no Ray cluster at {address} ({error}); expected HOST:PORT of the head node") from None


# -- Engine of the tables


def run_on_ray(groups: Sequence[CellGroup], pending_part: PendingPart, device: str, address: str | None) -> Finished:
    """Run groups as tasks of a Ray cluster.

    Only this process writes to the store. If a node is lost, its tasks are run again on other nodes.

    Parameters
    ----------
    groups : sequence of CellGroup
        Groups to run. All are submitted at once.
    pending_part : callable
        Group -> its part without results, or None.
    device : str
        Device of the training; each task has one GPU if it is "cuda".
    address : str or None
        HOST:PORT of the cluster, see :func:`connected`.

    Yields
    ------
    tuple of CellGroup and list of Result
        Finished groups, in the order in which they finish.
    """
    with connected(address) as ray:
        n_gpus = 1 if torch.device(device).type == "cuda" else 0
        if n_gpus and not ray.cluster_resources().get("GPU"):
            warnings.warn("no node of the Ray cluster has a GPU; tasks wait until one joins", stacklevel=2)
        task = ray.remote(num_cpus=1, num_gpus=n_gpus, max_retries=MAX_RETRIES)(_run_task)
        # The data of a column are sent to the cluster once, not with every group.
        columns = {id(group.column): ray.put(group.column) for group in groups}
        running: dict[Any, tuple[CellGroup, CellGroup]] = {}
        try:
            for group in groups:
                part = pending_part(group)
                if part is None:
                    yield group, []
                    continue
                reference = task.remote(columns[id(group.column)], part.methods, part.repeats, device, __version__)
                running[reference] = group, part
            while running:
                (done,), _ = ray.wait(list(running), num_returns=1)
                group, part = running.pop(done)
                yield group, _results(ray, done, part, device)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _run_task(
    column: Column, methods: tuple[str, ...], repeats: tuple[int, ...], device: str, version: str
) -> list[Result]:
    """Run a group on a node of the cluster."""
    if version != __version__:
        raise RuntimeError(
            f"a node of the Ray cluster has ccmn {__version__}, the driver has {version}; install the same version"
        )
    torch.set_num_threads(1)
    return run_group(CellGroup(column, methods, repeats), device)


def _results(ray: Any, reference: Any, group: CellGroup, device: str) -> list[Result]:
    """Return the results of a task; a task that was lost too often is a failure."""
    try:
        results: list[Result] = ray.get(reference)
        return results
    except ray.exceptions.RayError as error:
        # The cause of a failed task is more useful than the first line of Ray's own message.
        cause = getattr(error, "cause", None) or error
        message = f"{type(cause).__name__}: {str(cause).splitlines()[0]}"
        return [Result(cell, {}, message, 0.0, machine(device)) for cell in group.cells]


# -- Parameter searches


@contextmanager
def search_on_ray(address: str | None = None) -> Iterator[None]:
    """Run the parallel work of scikit-learn on a Ray cluster, with one processor per fit.

    Within the context, ``GridSearchCV``, ``RandomizedSearchCV``, ``cross_validate`` and similar functions send their
    fits to the cluster; leave ``n_jobs`` at its default. The data are sent once per call. A fit whose node is lost is
    run again; with a seeded estimator it gives the same result. The joblib backend of Ray itself keeps a pool of actors
    that are not replaced, and a search never ends after a node was lost.

    Parameters
    ----------
    address : str, optional
        HOST:PORT of the head of the cluster; by default the value of the environment variable RAY_ADDRESS, else a
        cluster that is started on this machine.
    """
    with connected(address) as ray, joblib.parallel_config(_RayBackend(ray), n_jobs=-1):
        yield


class _RayBackend(ThreadingBackend):  # type: ignore[misc]
    """joblib backend whose threads each send a call to the cluster and wait for it."""

    uses_threads = supports_sharedmem = False

    def __init__(self, ray: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self._ray, self._task = ray, ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(_call)
        # Keeping a reference to each object guarantees that its id is not reused.
        self._sent: dict[int, tuple[Any, Any]] = {}

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        return max(1, _TASKS_PER_CPU * int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Submit a batch of calls of joblib."""
        calls = copy(func)
        calls.items = [(f, tuple(map(self._send, args)), options) for f, args, options in func.items]
        return super().submit(lambda: self._ray.get(self._task.remote(calls)), callback)

    def _send(self, argument: Any) -> Any:
        """Send an array to the cluster once; return other arguments unchanged."""
        if not hasattr(argument, "shape"):
            return argument
        if id(argument) not in self._sent:
            self._sent[id(argument)] = argument, self._ray.put(argument)
        return self._sent[id(argument)][1]

    def terminate(self) -> None:
        super().terminate()
        self._sent.clear()


def _call(calls: Any) -> Any:
    """Run a batch of calls on a node of the cluster."""
    import ray

    def received(argument: Any) -> Any:
        return ray.get(argument) if isinstance(argument, ray.ObjectRef) else argument

    calls.items = [(f, tuple(map(received, args)), options) for f, args, options in calls.items]
    return calls()
