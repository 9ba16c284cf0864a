"""What every benchmark shares: timing against a rival in the same run, peak memory, the printed table, --json."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch


@dataclass(frozen=True)
class Result:
    """Our time beside a named rival's; ratio = rival_seconds / seconds, above 1 where we are faster."""

    name: str
    seconds: float
    rival: str
    rival_seconds: float
    ratio: float


def parser(description: str) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--quick", action="store_true", help="fewer and smaller cases, under 50 s")
    arguments.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return arguments


def seconds_of(
    call: Callable[[], object],
    budget: float = 0.5,
    most: int = 200,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median time of a call, over as many repeats as fit the budget (at least one, after a warm-up)."""
    call()
    _synchronise()
    times: list[float] = []
    start = time.perf_counter()
    while not times or (time.perf_counter() - start < budget and len(times) < most):
        t = clock()
        call()
        _synchronise()
        times.append(clock() - t)
    return statistics.median(times)


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compare(name: str, ours: Callable[[], object], rival: str, theirs: Callable[[], object], budget: float) -> Result:
    """Both in turn, twice, so that a neighbour's burst does not fall on one of them alone; the better half counts."""
    first, second = seconds_of(ours, budget / 4), seconds_of(theirs, budget / 4)
    mine, other = min(first, seconds_of(ours, budget / 4)), min(second, seconds_of(theirs, budget / 4))
    return Result(name, mine, rival, other, other / mine)


def peak_extra_megabytes(code: str) -> float:
    """Peak resident memory that a piece of code adds, in a process of its own.

    ``code`` prepares what it likes and then calls ``begin()``; what is counted is the peak after that.
    """
    prelude = """
import resource, ctypes
def _status(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))
def begin():
    global _before
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak
    _before = _status("VmRSS")
"""
    finish = "\nprint(_status('VmHWM') - _before)\n"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-c", prelude + code + finish], capture_output=True, text=True, check=True, env=environment
    )
    gc.collect()
    return float(done.stdout.strip().splitlines()[-1])


def machine() -> str:
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            name = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), name)
    except OSError:
        pass
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name}, {os.cpu_count()} cores{device}, torch {torch.__version__}"


def report(results: list[Result], notes: dict[str, object], as_json: bool) -> None:
    """The table (or the JSON object) with the overall ratio: total time of the rivals over ours."""
    overall = sum(r.rival_seconds for r in results) / sum(r.seconds for r in results)
    if as_json:
        printed = {
            "machine": machine(),
            "threads": torch.get_num_threads(),
            "results": [asdict(r) for r in results],
            "overall_ratio": overall,
            **notes,
        }
        print(json.dumps(printed))
        return
    print(f"{machine()}; {torch.get_num_threads()} threads")
    print(f"{'case':<44}{'ours ms':>11}{'rival ms':>11}{'ratio':>9}  rival")
    for r in results:
        print(f"{r.name:<44}{1e3 * r.seconds:>11.3f}{1e3 * r.rival_seconds:>11.3f}{r.ratio:>9.2f}  {r.rival}")
    print(f"overall ratio {overall:.1f} (total time of the rivals over ours)")
    for name, value in notes.items():
        print(f"{name}: {value}")
