"""Growth of processor time and memory with rows n, features d and labels q, as measured exponents.

    python benchmarks/scaling.py            (two minutes)
    python benchmarks/scaling.py --docs     (writes docs/figures/scaling.csv and .png and the table in docs/measured.md)
    python benchmarks/scaling.py --quick    (two numbers of rows, in less than 50 s of processor time)

Every call runs in a forked process with one thread, after the same call on 200 rows. Times are processor times;
memory is the peak beyond the data. An exponent is the slope of log time over log size, over the larger half of the
sizes. "logistic regression" (one per label) and "forest" (one of all labels) are scikit-learn's, with the folds, values
of C, trees and leaves of the default. Votes are five for every row; "paper" is ten epochs of the ranking loss with
known rates.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from harness import machine, parser
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegressionCV

from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier, audit_labels, infer_labels
from ccmn.training.default_settings import DEFAULTS

DOCS = Path(__file__).parents[1] / "docs"
MARKS = "<!-- written by benchmarks/scaling.py -->", "<!-- until here -->"
START = {"n": 1000, "d": 64, "q": 8}
SIZES = {"n": (500, 1000, 2000, 4000), "d": (32, 64, 128, 256), "q": (4, 8, 16, 32)}
QUICK = {"n": (500, 1000)}


def logistic_regression(X: np.ndarray, Y: np.ndarray, noise: object) -> None:
    settings = {"Cs": list(DEFAULTS.c_grid), "cv": DEFAULTS.n_folds, "scoring": "neg_log_loss", "max_iter": 1000}
    for y in Y.T:
        LogisticRegressionCV(**settings).fit(X, y)


def forest(X: np.ndarray, Y: np.ndarray, noise: object) -> None:
    RandomForestClassifier(DEFAULTS.n_trees, min_samples_leaf=DEFAULTS.min_samples_leaf, random_state=0).fit(X, Y)


def votes(X: np.ndarray, Y: np.ndarray, noise: ClassConditionalNoise) -> None:
    infer_labels(np.stack([noise.corrupt(Y, random_state=k) for k in range(5)], axis=1))


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, ClassConditionalNoise], object]] = {
    "default": lambda X, Y, noise: CorrectedClassifier(random_state=0).fit(X, Y),
    "audit": lambda X, Y, noise: audit_labels(X, Y),
    "paper": lambda X, Y, noise: CCMNClassifier(noise, lr=5e-3, epochs=10, random_state=0).fit(X, Y),
    "votes": votes,
    "logistic regression": logistic_regression,
    "forest": forest,
}
"""Calls on features, noisy labels and their rates."""


def task(n: int, d: int, q: int) -> tuple[np.ndarray, np.ndarray, ClassConditionalNoise]:
    """Return standard normal features, noisy labels of linear models with 30 % positives, and their rates."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    scores = 2 * X @ rng.normal(size=(d, q)) / np.sqrt(d) + rng.logistic(size=(n, q))
    noise = ClassConditionalNoise(0.2, 0.1, n_labels=q)
    return X, noise.corrupt((scores > 2).astype(np.uint8), random_state=0), noise


def cost_of(method: str, size: dict[str, int]) -> tuple[float, float]:
    """Return processor time and peak memory beyond the data of a call in a forked process, in seconds and MB."""
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        warnings.simplefilter("ignore")
        data = task(**size)
        METHODS[method](*task(200, 8, 2))
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        memory, start = status("VmRSS"), time.process_time()
        METHODS[method](*data)
        sender.send((time.process_time() - start, status("VmHWM") - memory))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    return receiver.recv()


def status(key: str) -> float:
    """Return a value of the status of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def measure(axis: str, sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return seconds and megabytes of every method and size of an axis."""
    rows: list[dict[str, object]] = []
    for method in METHODS:
        for size in sizes if (method, axis) != ("votes", "d") else ():
            seconds, megabytes = cost_of(method, {**START, axis: size})
            rows.append({"axis": axis, "method": method, "size": size, "seconds": seconds, "megabytes": megabytes})
            print(f"{axis} = {size}, {method}: {seconds:.2f} s, {megabytes:.0f} MB", file=sys.stderr)
    return rows


def points(rows: list[dict[str, object]], axis: str, method: str) -> tuple[np.ndarray, ...]:
    """Return sizes, seconds and megabytes of a method."""
    found = [(r["size"], r["seconds"], r["megabytes"]) for r in rows if (r["axis"], r["method"]) == (axis, method)]
    return tuple(np.array(found, dtype=float).reshape(-1, 3).T)


def exponent(sizes: np.ndarray, values: np.ndarray) -> float:
    """Return the slope of log value over log size."""
    half = len(sizes) // 2 - (len(sizes) < 4)
    return float(np.polyfit(np.log(sizes[half:]), np.log(np.maximum(values[half:], 1e-3)), 1)[0])


def table(rows: list[dict[str, object]]) -> list[str]:
    """Return the lines of a table of time and memory at the largest sizes, with the exponents of the time."""
    largest = {
        axis: max(r["size"] for r in rows if r["axis"] == axis) for axis in dict.fromkeys(r["axis"] for r in rows)
    }
    lines = [
        "| | "
        + " | ".join(f"{axis} = {size:,}" for axis, size in largest.items())
        + f" | exponents {', '.join(largest)} |"
    ]
    lines += ["| --- " * (len(largest) + 2) + "|"]
    for method in METHODS:
        found = {axis: points(rows, axis, method) for axis in largest}
        cells = [f"{s[-1]:.1f} s, {m[-1]:.0f} MB" if len(s) else "" for _, s, m in found.values()]
        slopes = [f"{exponent(sizes, seconds):.2f}" if len(sizes) else "-" for sizes, seconds, _ in found.values()]
        lines.append(f"| {method} | {' | '.join(cells)} | {', '.join(slopes)} |")
    return lines


def write_figure(rows: list[dict[str, object]], path: Path) -> None:
    """Write the values as CSV, and the times as a figure."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with open(f"{path}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["axis", "method", "size", "seconds", "megabytes"])
        writer.writerows(
            (r["axis"], r["method"], r["size"], f"{r['seconds']:.4g}", f"{r['megabytes']:.4g}") for r in rows
        )
    dark = dict.fromkeys(("figure.facecolor", "axes.facecolor"), "#131416")
    for ending, style in (("", "default"), ("-dark", ["dark_background", dark])):
        with plt.style.context(style):
            figure, panels = plt.subplots(1, len(SIZES), figsize=(11, 3.4), sharey=True, constrained_layout=True)
            for panel, axis in zip(panels, SIZES):
                for method in METHODS:
                    sizes, seconds, _ = points(rows, axis, method)
                    dashed = method in ("logistic regression", "forest")
                    panel.loglog(sizes, seconds, "--o" if dashed else "-o", ms=3, label=method)
                fixed = ", ".join(f"{name} = {value:,}" for name, value in START.items() if name != axis)
                panel.set_xlabel(f"{axis}   ({fixed})")
                panel.minorticks_off()
                panel.set_xticks(SIZES[axis], [f"{size:,}" for size in SIZES[axis]])
            panels[0].set_ylabel("seconds of one processor")
            panels[0].legend(fontsize=7)
            figure.savefig(f"{path}{ending}.png", dpi=110)


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--docs", action="store_true", help="write the figure and the table to docs/")
    options = arguments.parse_args()
    if options.docs and options.quick:
        arguments.error("--docs cannot be combined with --quick")
    torch.set_num_threads(1)
    rows = [row for axis, sizes in (QUICK if options.quick else SIZES).items() for row in measure(axis, sizes)]
    if options.docs:
        page = DOCS / "measured.md"
        before, after = (page.read_text().split(mark)[i] for mark, i in zip(MARKS, (0, 1)))
        page.write_text("\n".join([before + MARKS[0], *table(rows), MARKS[1] + after]))
        write_figure(rows, DOCS / "figures" / "scaling")
    if options.json:
        print(json.dumps({"machine": machine(), "threads": 1, "results": rows}))
    else:
        print(f"{machine()}; one thread", *table(rows), sep="\n")


if __name__ == "__main__":
    main()
