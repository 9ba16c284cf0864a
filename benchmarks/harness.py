"""Shared parts of the benchmarks: noise, timing against a baseline in the same run, results, ``--json``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.sparse import issparse
from sklearn.linear_model import LogisticRegression

from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise


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


def cost_of(code: str) -> tuple[float, float]:
    """Return processor time and the peak of resident memory that code adds in a separate process, in seconds and MB.

    The measurement starts when ``code`` calls ``begin()``.
    """
    prelude = """
import time
def _status(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))
def begin():
    global _before, _start
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # reset the peak
    _before, _start = _status("VmRSS"), time.process_time()
"""
    finish = "\nprint(time.process_time() - _start, _status('VmHWM') - _before)\n"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-c", prelude + code + finish]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"The measured code failed:\n{done.stderr}")
    seconds, megabytes = done.stdout.strip().splitlines()[-1].split()
    return float(seconds), float(megabytes)


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


def save(table: pd.DataFrame, path: Path) -> None:
    """Write a table of results, and the commit of the code into ``commits.json`` of the same folder."""
    table.to_csv(path, index=False)
    git = ["git", "-C", str(path.parent), "describe", "--always", "--dirty", "--exclude=*"]
    commits = path.parent / "commits.json"
    known = json.loads(commits.read_text()) if commits.exists() else {}
    known[path.name] = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    commits.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


# -- Nine kinds of injected label noise: five class-conditional ones and four that violate that model

CLASS_CONDITIONAL = ("clean", "two-sided", "missing", "added", "asymmetric")
VIOLATIONS = ("boundary", "feature", "confusion", "empty")
KINDS = CLASS_CONDITIONAL + VIOLATIONS


def inject(kind: str, X: object, Y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return noisy labels of true labels Y (n, q).

    two-sided: rates .1 to .5 with sums up to .6; missing and added: rates .1 to .5; asymmetric: 30 to 50 % of the
    positives missing and 2 or 5 % of the negatives added; boundary: flip probability .5 (1 - |2 eta - 1|) for an
    estimated P(y = 1 | x) = eta; feature: positives are lost with a probability that grows from 0 to .6 along a random
    direction, negatives added with a fifth of it; confusion: 35 % of the positives of a label are moved to the next
    label; empty: 10 % of the rows lose all labels.
    """
    n, q = Y.shape
    if kind == "clean":
        return Y.copy()
    if kind in CLASS_CONDITIONAL:
        noise = {
            "two-sided": lambda: ClassConditionalNoise.sample(q, max_sum=0.6, random_state=rng),
            "missing": lambda: MissingNoise(rng.choice([0.1, 0.2, 0.3, 0.4, 0.5], q)),
            "added": lambda: PartialNoise(rng.choice([0.1, 0.2, 0.3, 0.4, 0.5], q)),
            "asymmetric": lambda: ClassConditionalNoise(rng.choice([0.3, 0.4, 0.5], q), rng.choice([0.02, 0.05], q)),
        }[kind]()
        return np.asarray(noise.corrupt(Y, random_state=rng))
    draw = rng.random(Y.shape)
    if kind == "boundary":
        return np.where(draw < 0.5 * (1 - np.abs(2 * posterior(X, Y) - 1)), 1 - Y, Y)
    if kind == "feature":
        direction = np.asarray(X @ rng.standard_normal(X.shape[1])).ravel()
        rate = 0.6 * np.argsort(np.argsort(direction))[:, None] / n
        return np.where(Y == 1, draw >= rate, draw < rate / 5).astype(Y.dtype)
    noisy = Y.copy()
    if kind == "confusion":
        for label in range(q):
            other = (label + 1) % q
            moved = (Y[:, label] == 1) & (Y[:, other] == 0) & (draw[:, label] < 0.35)
            noisy[moved, label], noisy[moved, other] = 0, 1
        return noisy
    if kind == "empty":
        noisy[rng.random(n) < 0.1] = 0
        return noisy
    raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")


def posterior(X: object, Y: np.ndarray) -> np.ndarray:
    """Return P(y = 1 | x), (n, q), of logistic regressions on features scaled to unit mean row norm."""
    norms = np.sqrt(np.asarray(X.multiply(X).sum(1)).ravel() if issparse(X) else np.square(X).sum(1))
    scaled = X * (1 / max(norms.mean(), 1e-12))
    result = np.empty(Y.shape)
    for label, target in enumerate(Y.T):
        if target.min() == target.max():
            result[:, label] = target[0]
        else:
            result[:, label] = LogisticRegression(C=10.0, max_iter=300).fit(scaled, target).predict_proba(scaled)[:, 1]
    return result
