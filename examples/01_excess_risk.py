"""Does training on noisy labels reach the best possible risk, given enough rows?
==============================================================================

Labels flip with rates that differ from label to label and from side to side. A linear model is trained on n noisy rows
with the unbiased loss (Eq. (4) or (6)), with the plain loss on the same rows, and, for comparison, on the true labels;
what is shown is its risk above the Bayes risk, which is known exactly for this data.

Expect: the unbiased curve falls to zero, nearly as 1/n (Theorems 2 to 5), a constant factor above that of true labels.
The plain curve levels off at 0.075 (Hamming) and 0.28 (ranking): no number of rows helps.

Takes about a minute; --quick about five seconds. Draws docs/figures/excess_risk.png.
"""

# sphinx_gallery_thumbnail_path = "figures/excess_risk.png"

from __future__ import annotations

import numpy as np
import torch
from drawing import BLUE, GREY, ORANGE, arguments, pyplot, save
from known_posterior import PROBLEMS, Task, make_task

from ccmn import ClassConditionalNoise

NOISE = ClassConditionalNoise(rho_pos=[0.4, 0.1, 0.3, 0.0, 0.2], rho_neg=[0.0, 0.4, 0.1, 0.3, 0.2])
# Method: which labels it sees, which noise it believes in.
METHODS = {"plain": ("noisy", None), "unbiased": ("noisy", NOISE), "true labels": ("true", None)}
LOOKS = {
    "plain": {"color": ORANGE, "marker": "s"},
    "unbiased": {"color": BLUE, "marker": "o"},
    "true labels": {"color": GREY, "marker": "", "linestyle": "--"},
}


def measure(task: Task, sizes: list[int]) -> list[dict[str, object]]:
    """One row per loss, n and method: the excess risk over the training sets."""
    labels = {"true": task.Y, "noisy": torch.stack([NOISE.corrupt(Y, seed) for seed, Y in enumerate(task.Y)])}
    rows = []
    for name, problem in PROBLEMS.items():
        print(f"{name}: risk above the Bayes risk\n{'n':>8}", *(f"{method:>12}" for method in METHODS))
        for n in sizes:
            print(f"{n:8}", end="")
            for method, (seen, noise) in METHODS.items():
                found = [task.excess(problem, noise, X[:n], Y[:n]) for X, Y in zip(task.X, labels[seen])]
                low, mean, high = (f"{value:.6f}" for value in (min(found), np.mean(found), max(found)))
                rows.append({"loss": name, "method": method, "n": n, "mean": mean, "low": low, "high": high})
                print(f" {mean:>12}", end="", flush=True)
            print()
    return rows


def draw(plt, rows: list[dict[str, object]], sets: int):
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 4.0), layout="constrained")
    figure.suptitle("Unbiased training on noisy labels reaches the best possible risk; plain training does not")
    for axis, (name, problem) in zip(axes, PROBLEMS.items()):
        for method, look in LOOKS.items():
            curve = [row for row in rows if (row["loss"], row["method"]) == (name, method)]
            n, mean, low, high = ([float(row[key]) for row in curve] for key in ("n", "mean", "low", "high"))
            axis.plot(n, mean, markersize=4, label=method, **look)
            if method != "true labels":
                axis.fill_between(n, low, high, color=look["color"], alpha=0.18, linewidth=0)
        axis.set(title=problem.title, xscale="log", yscale="log", xlabel="training rows n")
    axes[0].set_ylabel("risk above the Bayes risk")
    axes[0].legend(title=f"mean and range of {sets} runs", alignment="left", loc="lower left")
    return figure


def main() -> None:
    options = arguments(__doc__)
    plt = pyplot()
    sets, new_rows = (3, 10_000) if options.quick else (10, 50_000)
    sizes = [64, 4096] if options.quick else [64, 256, 1024, 4096, 16_384, 65_536]
    rows = measure(make_task(sets, sizes[-1], new_rows), sizes)
    save(draw(plt, rows, sets), rows, options.out, "excess_risk")


if __name__ == "__main__":
    main()
