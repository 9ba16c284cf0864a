"""Units as tasks of a Ray cluster: the driver alone writes, and a machine that is lost costs what it was running."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ccmn.experiments.cells import Column
from ccmn.experiments.runner import Finished, Tell, Unit, machine, remaining, run_unit, store_results
from ccmn.experiments.store import Result, ResultStore

RETRIES = 5
"""How often a task is run again whose machine was lost; it repeats itself, since its seed is its own."""
_PATIENCE = 10.0


def run_units_on_ray(
    units: Sequence[Unit],
    store: ResultStore,
    *,
    device: str = "cpu",
    address: str | None = None,
    retry_failed: bool = False,
    tell: Tell | None = None,
) -> None:
    """Run what has no result yet, on a Ray cluster; without an address on one of this machine's own."""
    with _connected(address) as ray:

        def run(waiting: list[Unit]) -> Finished:
            return _run_tasks(ray, waiting, store, device, retry_failed)

        store_results(units, store, run, retry_failed, tell)


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Ray, connected; a connection that was there before is used, and kept."""
    try:
        import ray
    except ImportError:
        raise ImportError("engine 'ray' needs Ray: pip install 'ccmn[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    _check_answers(address)
    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    ray.init(address=address, include_dashboard=None if address else False, **quiet)
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str | None) -> None:
    """Ray itself would wait for minutes where nothing answers."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # none, or a word of Ray's own ("auto")
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise OSError(f"there is no Ray cluster at {address} ({error}): give its head's HOST:PORT") from None


def _run_tasks(ray: Any, units: list[Unit], store: ResultStore, device: str, retry_failed: bool) -> Finished:
    """All units at once: which machine takes which, and when, is Ray's to say."""
    gpus = 1 if torch.device(device).type == "cuda" else 0
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_run_one)
    # The data of a column go to the cluster once, however many units it has.
    columns = {id(unit.column): ray.put(unit.column) for unit in units}
    running: dict[Any, tuple[Unit, Unit]] = {}
    for unit in units:
        rest = remaining(unit, store, retry_failed)
        if rest is None:  # another process has stored it since
            yield unit, []
            continue
        running[task.remote(columns[id(unit.column)], rest.methods, rest.repeats, device)] = unit, rest
    try:
        while running:
            (done,), _ = ray.wait(list(running), num_returns=1)
            unit, rest = running.pop(done)
            yield unit, _results(ray, done, rest, device)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _run_one(column: Column, methods: tuple[str, ...], repeats: tuple[int, ...], device: str) -> list[Result]:
    """On a machine of the cluster."""
    torch.set_num_threads(1)
    return run_unit(Unit(column, methods, repeats), device)


def _results(ray: Any, reference: Any, unit: Unit, device: str) -> list[Result]:
    """What a task came to; one that was lost too often is a failure, to be tried again with ``retry_failed``."""
    try:
        found: list[Result] = ray.get(reference)
        return found
    except ray.exceptions.RayError as error:
        message = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return [Result(cell, {}, message, 0.0, machine(device)) for cell in unit.cells]
