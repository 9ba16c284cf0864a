"""From a table's cells to stored results: stacks of runs one after the other, each stored before the next begins."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context

import numpy as np
import torch

from ccmn._version import __version__
from ccmn.experiments.cells import Cell, Column
from ccmn.experiments.fleet import Outcome, run_fleet, stacks
from ccmn.experiments.methods import METHODS
from ccmn.experiments.protocols import make_repeat
from ccmn.experiments.rivals import RIVALS, run_rival
from ccmn.experiments.store import Result, ResultStore
from ccmn.noise import ClassConditionalNoise


@dataclass(frozen=True)
class Unit:
    """Cells that are run together: a stack of a fleet, or one fit of a rival."""

    column: Column
    methods: tuple[str, ...]
    repeats: tuple[int, ...]

    @property
    def cells(self) -> list[Cell]:
        """What it brings results for."""
        return [self.column.cell(m, r) for m in self.methods for r in self.repeats]

    @property
    def weight(self) -> float:
        """Roughly proportional to the time it takes: what a progress bar goes by."""
        data, many = self.column.data, len(self.column.protocol.learning_rates)
        work = self.column.protocol.epochs * data.n * (data.d + data.q) * data.q
        return float(len(self.cells) * many * (work + 1e7))


@dataclass(frozen=True)
class Done:
    """Told after each unit."""

    unit: Unit
    failed: int
    weight: float
    """Of all units done so far, those stored before included."""
    total: float


Tell = Callable[[Done], None]
Finished = Iterator[tuple[Unit, list[Result]]]


def plan(columns: Sequence[Column], methods: Sequence[str] | None = None, *, device: str = "cpu") -> list[Unit]:
    """The units of all cells. It depends on the cells and the device alone, never on what is stored already: a stack
    that is run again after an interruption is the same stack, and comes to the same values."""
    return [unit for column in columns for unit in _units(column, tuple(methods or column.table.methods), device)]


def _units(column: Column, methods: tuple[str, ...], device: str) -> Iterator[Unit]:
    repeats = tuple(range(column.table.repeats))
    trained = [METHODS[m] for m in methods if m in METHODS]
    many = len(repeats) * len(column.protocol.learning_rates)
    for stack in stacks(trained, column.data, many, device):
        yield Unit(column, tuple(m.name for m in stack), repeats)
    for name in methods:
        if name not in METHODS:
            yield from (Unit(column, (RIVALS[name].name,), (r,)) for r in repeats)


def run_units(
    units: Sequence[Unit],
    store: ResultStore,
    *,
    device: str = "cpu",
    jobs: int = 1,
    retry_failed: bool = False,
    tell: Tell | None = None,
) -> None:
    """Run what has no result yet, on this machine; ``jobs`` processes at once, of which this one alone writes."""
    run = _run_here if jobs == 1 else _run_in_processes
    store_results(units, store, lambda waiting: run(waiting, store, device, jobs, retry_failed), retry_failed, tell)


def store_results(
    units: Sequence[Unit],
    store: ResultStore,
    run: Callable[[list[Unit]], Finished],
    retry_failed: bool,
    tell: Tell | None,
) -> None:
    """Have those units run that have no result yet, and store what comes, each before the next is looked at."""
    total = sum(unit.weight for unit in units)
    before = [(unit, remaining(unit, store, retry_failed)) for unit in units]
    weight = sum(unit.weight for unit, rest in before if rest is None)
    for unit, results in run([unit for unit, rest in before if rest is not None]):
        store.append(results)
        weight += unit.weight
        if tell is not None:
            tell(Done(unit, sum(r.failed for r in results), weight, total))


def remaining(unit: Unit, store: ResultStore, retry_failed: bool) -> Unit | None:
    """What of the unit has no result yet: all of it, unless other methods or repeats were asked for before."""
    missing = store.missing(unit.cells, retry_failed=retry_failed)
    if not missing:
        return None
    methods, repeats = {cell.method for cell in missing}, {cell.repeat for cell in missing}
    return replace(
        unit,
        methods=tuple(m for m in unit.methods if m in methods),
        repeats=tuple(r for r in unit.repeats if r in repeats),
    )


def _run_here(units: Sequence[Unit], store: ResultStore, device: str, jobs: int, retry_failed: bool) -> Finished:
    for unit in units:
        # Another process may have stored it since.
        rest = remaining(unit, store, retry_failed)
        yield unit, [] if rest is None else run_unit(rest, device)


def _run_in_processes(
    units: Sequence[Unit], store: ResultStore, device: str, jobs: int, retry_failed: bool
) -> Finished:
    threads = max(1, torch.get_num_threads() // jobs)
    waiting = iter(units)
    running: dict[Future[list[Result]], Unit] = {}
    with ProcessPoolExecutor(
        jobs, get_context("spawn"), initializer=torch.set_num_threads, initargs=(threads,)
    ) as pool:
        try:
            while True:
                while len(running) < jobs and (unit := next(waiting, None)) is not None:
                    rest = remaining(unit, store, retry_failed)
                    if rest is not None:
                        running[pool.submit(run_unit, rest, device)] = unit
                    else:
                        yield unit, []
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def run_unit(unit: Unit, device: str = "cpu") -> list[Result]:
    """Results of all the unit's cells; an error makes each of them a failure with its message."""
    start = time.perf_counter()
    try:
        outcomes = {(o.method, o.repeat): o for o in _outcomes(unit, device)}
        error = ""
    except Exception as failure:
        outcomes, error = {}, f"{type(failure).__name__}: {failure}"
    seconds = (time.perf_counter() - start) / len(unit.cells)
    return [
        Result(cell, _record(outcomes.get((cell.method, cell.repeat))), error, seconds, machine(device))
        for cell in unit.cells
    ]


def _record(outcome: Outcome | None) -> dict[str, object]:
    if outcome is None:
        return {}
    return {name: value for name, value in asdict(outcome).items() if name not in ("method", "repeat")}


def _outcomes(unit: Unit, device: str) -> Iterator[Outcome]:
    column = unit.column
    repeats = [make_repeat(column.data, column.protocol, r, column.seed) for r in unit.repeats]
    data = column.data
    if unit.methods[0] not in METHODS:
        for repeat in repeats:
            yield run_rival(RIVALS[unit.methods[0]], data, repeat, column.table.metrics, refit=column.protocol.refit)
        return
    needs_rates = any(METHODS[m].rates == "estimated" for m in unit.methods)
    estimated = {r.number: _estimated(column, r.number) for r in repeats} if needs_rates else None
    yield from run_fleet(
        data, repeats, unit.methods, column.settings, estimated=estimated, device=device, runs_at_once=1 << 30
    )


@lru_cache(maxsize=64)
def _estimated(column: Column, number: int) -> ClassConditionalNoise:
    """The rates as a user would estimate them: from the training rows and their noisy labels, the side declared where
    it is known that labels were only added."""
    from ccmn.estimation import estimate_noise

    repeat = make_repeat(column.data, column.protocol, number, column.seed)
    sides = "both" if column.protocol.draw == "both_ways" else "partial"
    X, Y, method = column.data.X[repeat.train], repeat.noisy[repeat.train], column.protocol.estimator
    return estimate_noise(X, Y, method, sides=sides, random_state=column.seed).noise


def machine(device: str) -> dict[str, str]:
    """What a result was computed on and with."""
    kind = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else platform.machine()
    return {
        "device": kind,
        "ccmn": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
