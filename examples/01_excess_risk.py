"""Does the risk of a model trained on noisy labels converge to the Bayes risk?
============================================================================

Each label is flipped with its own false-negative and false-positive rate. A linear model is trained on n noisy rows
with the unbiased loss (Eq. (4) or (6)), on the same rows with the plain loss, and on the true labels. The figure shows
the excess risk, that is, the risk minus the Bayes risk, which is known exactly for these data.

Result: the excess risk of the unbiased loss decreases to zero, almost as 1/n (Theorems 2 to 5), a constant factor above
that of the true labels. The excess risk of the plain loss stays at 0.075 (Hamming) and 0.28 (ranking) for any n.

Run time: about one minute; about five seconds with --quick. Writes docs/figures/excess_risk.png.
"""

# sphinx_gallery_thumbnail_path = "figures/excess_risk.png"

from __future__ import annotations

import numpy as np
import torch
from drawing import BLUE, GRAY, ORANGE, arguments, save
from known_posterior import PROBLEMS, Task, make_task

from ccmn import ClassConditionalNoise

NOISE = ClassConditionalNoise(rho_pos=[0.4, 0.1, 0.3, 0.0, 0.2], rho_neg=[0.0, 0.4, 0.1, 0.3, 0.2])
# Method: labels that it is trained on, and noise model that it is corrected for.
METHODS = {"plain": ("noisy", None), "unbiased": ("noisy", NOISE), "true labels": ("true", None)}
STYLES = {
    "plain": {"color": ORANGE, "marker": "s"},
    "unbiased": {"color": BLUE, "marker": "o"},
    "true labels": {"color": GRAY, "marker": "", "linestyle": "--"},
}


def measure(task: Task, sizes: list[int]) -> list[dict[str, object]]:
    """Return one row per loss, n and method with the excess risk over the training sets."""
    labels = {"true": task.Y, "noisy": torch.stack([NOISE.corrupt(Y, seed) for seed, Y in enumerate(task.Y)])}
    rows = []
    for name, problem in PROBLEMS.items():
        print(f"{name}: excess risk\n{'n':>8}", *(f"{method:>12}" for method in METHODS))
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
    figure.suptitle("The excess risk of unbiased training converges to zero; that of plain training does not")
    for axis, (name, problem) in zip(axes, PROBLEMS.items()):
        for method, style in STYLES.items():
            curve = [row for row in rows if (row["loss"], row["method"]) == (name, method)]
            n, mean, low, high = ([float(row[key]) for row in curve] for key in ("n", "mean", "low", "high"))
            axis.plot(n, mean, markersize=4, label=method, **style)
            if method != "true labels":
                axis.fill_between(n, low, high, color=style["color"], alpha=0.18, linewidth=0)
        axis.set(title=problem.title, xscale="log", yscale="log", xlabel="training rows n")
    axes[0].set_ylabel("excess risk (risk - Bayes risk)")
    axes[0].legend(title=f"mean and range of {sets} runs", alignment="left", loc="lower left")
    return figure


def main() -> None:
    options = arguments(__doc__)
    sets, new_rows = (3, 10_000) if options.quick else (10, 50_000)
    sizes = [64, 4096] if options.quick else [64, 256, 1024, 4096, 16_384, 65_536]
    rows = measure(make_task(sets, sizes[-1], new_rows), sizes)
    save(lambda plt: draw(plt, rows, sets), rows, options.out, "excess_risk")


if __name__ == "__main__":
    main()
