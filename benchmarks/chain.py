"""Command line from raw tickets to a model: CPU time of all commands over that of the longest one.

    python benchmarks/chain.py            2,000 tickets with 12 tags, of which 25 % are lost and 5 % added
    python benchmarks/chain.py --quick    500 tickets

The commands are ``ccmn noise estimate``, ``audit``, ``review`` (until its page can be opened) and ``fit``, each in a
process of its own, with one folder of results (``--cache``). Every command starts with the imports of torch and
scikit-learn, which are measured apart and left out of the second ratio.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import machine, parser

TAGS, WORDS, WORDS_PER_TAG, WORDS_PER_TEXT = 12, 4000, 15, 40
"""Size of the task."""
LOST, ADDED = 0.25, 0.05
"""Noise rates of the tags."""
OPTIONS = ("--tags", "tags", "--text", "text", "--id", "id", "--cache", "results")


def write_tickets(path: Path, n: int) -> None:
    """Write tickets whose texts contain some words of each of their tags among common words."""
    rng = np.random.default_rng(0)
    true = rng.random((n, TAGS)) < rng.uniform(0.05, 0.3, TAGS)
    noisy = np.where(true, rng.random(true.shape) > LOST, rng.random(true.shape) < ADDED)
    common = 1 / np.arange(1, WORDS + 1)
    common /= common.sum()
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(("id", "text", "tags"))
        for row in range(n):
            words = [f"word{i}" for i in rng.choice(WORDS, WORDS_PER_TEXT, p=common)]
            for tag in np.flatnonzero(true[row]):
                words += [f"topic{tag}x{i}" for i in rng.choice(WORDS_PER_TAG, 3)]
            rng.shuffle(words)
            table.writerow((f"T{row:05}", " ".join(words), ";".join(f"tag{j}" for j in np.flatnonzero(noisy[row]))))


def cpu_seconds(arguments: list[str], folder: Path, *, serves: bool = False, module: bool = True) -> float:
    """Return the CPU time of a command (or of Python); a server is stopped when it prints its address."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *(("-m", "ccmn") if module else ()), *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        if serves:
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
        process.communicate()
    if process.returncode and not serves:
        raise RuntimeError(f"ccmn {' '.join(arguments)} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    n = 500 if options.quick else 2000
    commands = {
        "noise estimate": ["noise", "estimate", "tickets.csv", *OPTIONS, "--out", "rates.json"],
        "audit": ["audit", "tickets.csv", *OPTIONS, "--noise", "rates.json", "--out", "issues.csv"],
        "review": ["review", "tickets.csv", *OPTIONS, "--json"],
        "fit": ["fit", "tickets.csv", *OPTIONS, "--out", "model.ccmn"],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tickets(folder / "tickets.csv", n)
        times = {step: cpu_seconds(command, folder, serves=step == "review") for step, command in commands.items()}
        imports = cpu_seconds(["-c", "import ccmn.audit, ccmn.models, ccmn.app.review"], folder, module=False)
    ratio = sum(times.values()) / max(times.values())
    work = [max(seconds - imports, 0.0) for seconds in times.values()]
    without = sum(work) / max(work)
    if options.json:
        ratios = {"ratio": ratio, "ratio_without_imports": without}
        print(json.dumps({"machine": machine(), "rows": n, "cpu_seconds": times, "imports": imports, **ratios}))
        return
    print(f"{machine()}; {n} tickets")
    for step, seconds in times.items():
        print(f"ccmn {step:<16}{seconds:>8.1f} s CPU")
    print(f"imports of a command {imports:.1f} s CPU")
    print(f"ratio {ratio:.2f}, without imports {without:.2f} (CPU time of all commands over that of the longest one)")


if __name__ == "__main__":
    main()
