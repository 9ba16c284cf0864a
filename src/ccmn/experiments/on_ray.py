"""Units as tasks of a Ray cluster: the driver alone writes, and a machine that is lost costs what it was running."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ccmn._version import __version__
from ccmn.experiments.cells import Column
from ccmn.experiments.ray_cluster import RETRIES, connected
from ccmn.experiments.runner import Finished, Tell, Unit, machine, remaining, run_unit, store_results
from ccmn.experiments.store import Result, ResultStore


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
    with connected(address) as ray:

        def run(waiting: list[Unit]) -> Finished:
            return _run_tasks(ray, waiting, store, device, retry_failed)

        store_results(units, store, run, retry_failed, tell)


def _run_tasks(ray: Any, units: list[Unit], store: ResultStore, device: str, retry_failed: bool) -> Finished:
    """All units at once: which machine takes which, and when, is Ray's to say."""
    gpus = 1 if torch.device(device).type == "cuda" else 0
    if gpus and not ray.cluster_resources().get("GPU"):
        warnings.warn("no machine of the Ray cluster has a GPU: tasks wait until one joins it", stacklevel=2)
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_run_one)
    # The data of a column go to the cluster once, however many units it has.
    columns = {id(unit.column): ray.put(unit.column) for unit in units}
    running: dict[Any, tuple[Unit, Unit]] = {}
    for unit in units:
        rest = remaining(unit, store, retry_failed)
        if rest is None:  # another process has stored it since
            yield unit, []
            continue
        reference = task.remote(columns[id(unit.column)], rest.methods, rest.repeats, device, __version__)
        running[reference] = unit, rest
    try:
        while running:
            (done,), _ = ray.wait(list(running), num_returns=1)
            unit, rest = running.pop(done)
            yield unit, _results(ray, done, rest, device)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _run_one(
    column: Column, methods: tuple[str, ...], repeats: tuple[int, ...], device: str, version: str
) -> list[Result]:
    """On a machine of the cluster."""
    if version != __version__:
        raise RuntimeError(f"a machine of the cluster has ccmn {__version__}, the driver {version}: install the same")
    torch.set_num_threads(1)
    return run_unit(Unit(column, methods, repeats), device)


def _results(ray: Any, reference: Any, unit: Unit, device: str) -> list[Result]:
    """What a task came to; one that was lost too often is a failure, to be tried again with ``retry_failed``."""
    try:
        found: list[Result] = ray.get(reference)
        return found
    except ray.exceptions.RayError as error:
        # What went wrong in a task is told by its cause; its own first line is where it ran.
        cause = getattr(error, "cause", None) or error
        message = f"{type(cause).__name__}: {str(cause).splitlines()[0]}"
        return [Result(cell, {}, message, 0.0, machine(device)) for cell in unit.cells]
