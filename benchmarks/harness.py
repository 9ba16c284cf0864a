"""Shared parts of the benchmarks: timing against a baseline in the same run, peak memory, printed table, ``--json``."""

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
    """Time of ccmn and of a named baseline; ratio = baseline_seconds / seconds, above 1 if ccmn is faster."""

    name: str
    seconds: float
    baseline: str
    baseline_seconds: float
    ratio: float


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--quick", action="store_true", help="run fewer and smaller cases, in less than 50 s")
    arguments.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return arguments


def seconds_of(
    call: Callable[[], object],
    budget: float = 0.5,
    max_calls: int = 200,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median time of a call, over as many calls as fit into ``budget`` seconds (after one warm-up call)."""
    call()
    _synchronize()
    times: list[float] = []
    start = time.perf_counter()
    while not times or (time.perf_counter() - start < budget and len(times) < max_calls):
        t = clock()
        call()
        _synchronize()
        times.append(clock() - t)
    return statistics.median(times)


def _synchronize() -> None:
    """Wait for the kernels of the CUDA device, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compare(
    name: str, ours: Callable[[], object], baseline: str, theirs: Callable[[], object], budget: float
) -> Result:
    """Time two calls in turn, twice, so that other load affects both; the shorter time of each counts."""
    first, second = seconds_of(ours, budget / 4), seconds_of(theirs, budget / 4)
    mine, other = min(first, seconds_of(ours, budget / 4)), min(second, seconds_of(theirs, budget / 4))
    return Result(name, mine, baseline, other, other / mine)


def peak_extra_megabytes(code: str) -> float:
    """Return the peak of resident memory that code adds in a separate process.

    The measurement starts when ``code`` calls ``begin()``.
    """
    prelude = """
def _status(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))
def begin():
    global _before
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # reset the peak
    _before = _status("VmRSS")
"""
    finish = "\nprint(_status('VmHWM') - _before)\n"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-c", prelude + code + finish]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"The measured code failed:\n{done.stderr}")
    gc.collect()
    return float(done.stdout.strip().splitlines()[-1])


def machine() -> str:
    """Return a description of processor, device and torch version."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            name = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), name)
    except OSError:
        pass
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name}, {os.cpu_count()} cores{device}, torch {torch.__version__}"


def report(results: list[Result], notes: dict[str, object], as_json: bool) -> None:
    """Print a table or a JSON object with the overall ratio: total time of the baselines over total time of ccmn."""
    overall = sum(r.baseline_seconds for r in results) / sum(r.seconds for r in results)
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
    print(f"{'case':<44}{'ccmn ms':>11}{'base ms':>11}{'ratio':>9}  baseline")
    for r in results:
        print(f"{r.name:<44}{1e3 * r.seconds:>11.3f}{1e3 * r.baseline_seconds:>11.3f}{r.ratio:>9.2f}  {r.baseline}")
    print(f"overall ratio {overall:.1f} (total time of the baselines over total time of ccmn)")
    for name, value in notes.items():
        print(f"{name}: {value}")
