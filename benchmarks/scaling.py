"""Growth of training time with rows, features, labels and runs, as measured exponents.

    python benchmarks/scaling.py            (two minutes on an idle machine)
    python benchmarks/scaling.py --docs     (writes docs/figures/scaling.csv and .png and the table in docs/scaling.md)
    python benchmarks/scaling.py --quick    (fewer and smaller sizes)

Times are processor times of one thread, so that other processes count only through the caches. The baseline of each
axis is the time of the smallest size, extrapolated linearly. The exponent is the slope of log time over log size, over
the larger half of the sizes.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from harness import Result, machine, parser, report, seconds_of

from ccmn.losses import RankingLoss
from ccmn.training.batches import Features, Rows
from ccmn.training.loop import Objective, train
from ccmn.training.networks import StackedLinear
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import KeepLast

DOCS = Path(__file__).parents[1] / "docs"
MARKS = "<!-- written by benchmarks/scaling.py -->", "<!-- until here -->"
ROUNDS = 5
AXES = {
    "rows n": ([2_000, 4_000, 8_000, 16_000, 32_000], "one epoch, d = 64, q = 32, batch 100"),
    "features d": ([64, 256, 1024, 4096, 16_384, 65_536], "one step, q = 64, batch 100"),
    "labels q": ([1024, 2048, 4096, 8192, 16_384, 32_768], "one step, d = 64, batch 64"),
    "runs R": ([1, 4, 16, 64, 256], "one step of all runs, d = 100, q = 14, batch 100"),
}


def training(n: int, d: int, q: int, batch: int, runs: int = 1) -> Callable[[], object]:
    """Return a function that trains one epoch of the sigmoid ranking loss on n rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    p = torch.from_numpy(((rng.random((n, q)) < 0.1) * 1.3 - 0.1).astype(np.float32))
    network = StackedLinear(d, q + 1, [list(range(runs))])
    optimizer = StackedAdam(network.parameters, torch.full((1, runs), 1e-3), torch.zeros(1, runs))
    features, rows = Features(X), Rows([np.arange(n)], batch, [0])
    objective = Objective.of(RankingLoss("sigmoid"))
    return lambda: train(network, objective, features, p, rows, optimizer, KeepLast(), epochs=1)


CASES: dict[str, Callable[[int], Callable[[], object]]] = {
    "rows n": lambda n: training(n, 64, 32, 100),
    "features d": lambda d: training(100, d, 64, 100),
    "labels q": lambda q: training(64, 64, q, 64),
    "runs R": lambda runs: training(100, 100, 14, 100, runs),
}


def measure(axis: str, quick: bool) -> list[tuple[int, float]]:
    """Return the minimum time of every size over several rounds, so that other load affects all sizes."""
    sizes = AXES[axis][0][:3] if quick else AXES[axis][0]
    cases = [CASES[axis](size) for size in sizes]
    budget = 0.1 if quick else 0.4
    rounds = [[seconds_of(case, budget, clock=time.process_time) for case in cases] for _ in range(ROUNDS)]
    return list(zip(sizes, np.min(rounds, axis=0).tolist()))


def exponent(points: list[tuple[int, float]]) -> float:
    """Return the slope of log time over log size."""
    sizes, times = np.log(np.array(points[len(points) // 2 - (len(points) < 4) :])).T
    return float(np.polyfit(sizes, times, 1)[0])


def write_table(found: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Write the table of exponents between the two marks of a document."""
    before, after = (path.read_text().split(mark)[i] for mark, i in zip(MARKS, (0, 1)))
    lines = ["| size | exponent | what was timed |", "| --- | --- | --- |"]
    lines += [f"| {a} | {exponent(p):.2f} | {AXES[a][1]}, {a[-1]} to {p[-1][0]:,} |" for a, p in found.items()]
    lines += ["", f"{machine()}; one thread, processor time; load average {os.getloadavg()[0]:.1f}."]
    path.write_text("\n".join([before + MARKS[0], *lines, MARKS[1] + after]))


def write_figure(found: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Write the measured times as CSV and as a figure."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with open(f"{path}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["axis", "size", "seconds"])
        writer.writerows((axis, size, f"{seconds:.6g}") for axis, points in found.items() for size, seconds in points)
    dark = dict.fromkeys(("figure.facecolor", "axes.facecolor"), "#131416")
    for ending, style, color in (("", "default", "#0072B2"), ("-dark", ["dark_background", dark], "#56B4E9")):
        with plt.style.context(style):
            figure, panels = plt.subplots(1, len(found), figsize=(13, 3.2), constrained_layout=True)
            for panel, (axis, points) in zip(panels, found.items()):
                sizes, times = zip(*points)
                panel.loglog(sizes, times, "o-", color=color, label=f"measured, exponent {exponent(points):.2f}")
                panel.loglog(sizes, [times[0] * s / sizes[0] for s in sizes], ":", color="gray", label="linear")
                panel.set_title(f"{axis}: {AXES[axis][1]}", fontsize=7)
                panel.set_xlabel(axis)
                panel.minorticks_off()
                panel.legend(fontsize=7)
            panels[0].set_ylabel("seconds")
            figure.savefig(f"{path}{ending}.png", dpi=110)


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--docs", action="store_true", help="write the figure and the table to docs/")
    options = arguments.parse_args()
    if options.docs and options.quick:
        arguments.error("--docs cannot be combined with --quick")
    torch.set_num_threads(1)
    found = {axis: measure(axis, options.quick) for axis in AXES}
    results = []
    for axis, points in found.items():
        (small, first), (large, last) = points[0], points[-1]
        linear = first * large / small
        results.append(
            Result(f"{axis} = {large}: {AXES[axis][1]}", last, f"{axis} = {small}, linear", linear, linear / last)
        )
    if options.docs:
        write_figure(found, DOCS / "figures" / "scaling")
        write_table(found, DOCS / "scaling.md")
    report(results, {"exponents": {axis: round(exponent(points), 2) for axis, points in found.items()}}, options.json)


if __name__ == "__main__":
    main()
