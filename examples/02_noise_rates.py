"""How does the excess risk depend on the noise rates and on their difference?
===========================================================================

The unbiased loss is trained on a fixed number of rows with one pair of rates for all labels: first equal rates that
increase together, then rates with the sum 0.4 and an increasing difference rho_neg - rho_pos. The paper remarks that
smaller rates help (after Theorem 2) and that a smaller difference helps (after Theorem 4), because mu is smaller. The
figure shows the measured excess risk, mu, and the mean variance of the debiased labels, E[Var(p_j | x)], relative to
their values without noise (left) or for equal rates (right).

Result: the first remark is confirmed, the second is not. From equal rates to the largest difference, mu increases by 40
%. The excess risk decreases by a quarter in one direction and is unchanged in the other, with at most about 10 % more
in between. mu is the range of the modified loss, which bounds the worst case. The excess risk of a trained model
follows the variance of the debiased labels. At the decision boundary, P(y_j = 1 | x) = 1/2, the variance is (1 -
difference^2) / (4 r^2), which decreases with the difference. The two directions differ because most labels in these
data are negative, so that flipped negatives are more frequent.

Run time: about two minutes; about ten seconds with --quick. Writes docs/figures/noise_rates.png.
"""

# sphinx_gallery_thumbnail_path = "figures/noise_rates.png"

from __future__ import annotations

import numpy as np
import torch
from drawing import BLUE, GRAY, ORANGE, arguments, save
from known_posterior import PREVALENCE, PROBLEMS, Task, make_task

from ccmn import ClassConditionalNoise
from ccmn.paper.theory import hamming_bound, ranking_bound

SUM = 0.4
BOUNDS = {"hamming": hamming_bound, "ranking": ranking_bound}
SWEEPS = {"rate": lambda rate: (rate, rate), "difference": lambda gap: ((SUM - gap) / 2, (SUM + gap) / 2)}
QUANTITIES = {
    "excess": {"label": "measured excess risk, ± 2 standard errors", "color": BLUE, "marker": "o"},
    "variance": {"label": "variance of the debiased labels", "color": GRAY, "linestyle": "--"},
    "mu": {"label": r"$\mu$ of the bound", "color": ORANGE, "marker": "s"},
}


def debiased_variance(task: Task, noise: ClassConditionalNoise) -> float:
    """Return the mean of Var(p_j | x) over rows and labels; eta is the probability that the noisy label is 1."""
    rho_pos, rho_neg = torch.tensor(noise.rho_pos), torch.tensor(noise.rho_neg)
    r = 1 - rho_pos - rho_neg
    eta = rho_neg + r * task.posterior_new
    return float((eta * (1 - eta) / r**2).mean())


def mu(loss: str, noise: ClassConditionalNoise, printed: bool = False) -> float:
    """Return the mu of the bound: its factor compared with no noise, without the Rademacher complexity."""
    clean = ClassConditionalNoise(0.0, 0.0, n_labels=noise.n_labels)
    given = {"theta": 1.0, "lipschitz": 1.0, "rademacher": 0.0, "printed": printed}
    return BOUNDS[loss](100, noise, **given) / BOUNDS[loss](100, clean, **given)


def measure(task: Task, points: dict[str, list[float]]) -> list[dict[str, object]]:
    """Return one row per loss, sweep and point."""
    rows = []
    for name, problem in PROBLEMS.items():
        print(f"{name}\n{'rho_pos':>8} {'rho_neg':>8} {'excess':>10} {'std. err.':>10} {'mu':>8} {'variance':>9}")
        for sweep, rates in SWEEPS.items():
            for at in points[sweep]:
                rho_pos, rho_neg = rates(at)
                noise = ClassConditionalNoise(rho_pos, rho_neg, n_labels=len(PREVALENCE))
                found = [
                    task.excess(problem, noise, X, noise.corrupt(Y, seed))
                    for seed, (X, Y) in enumerate(zip(task.X, task.Y))
                ]
                mean, error = np.mean(found), np.std(found, ddof=1) / np.sqrt(len(found))
                factor, variance = mu(name, noise), debiased_variance(task, noise)
                print(
                    f"{rho_pos:8.2f} {rho_neg:8.2f} {mean:10.6f} {error:10.6f} {factor:8.3f} {variance:9.4f}",
                    flush=True,
                )
                rows.append(
                    {
                        "loss": name,
                        "sweep": sweep,
                        "rho_pos": round(rho_pos, 4),
                        "rho_neg": round(rho_neg, 4),
                        "at": round(at, 4),
                        "excess": round(float(mean), 6),
                        "error": round(float(error), 6),
                        "mu": round(factor, 4),
                        "mu_printed": round(mu(name, noise, printed=True), 4),
                        "variance": round(variance, 6),
                    }
                )
    return rows


def draw(plt, rows: list[dict[str, object]], n: int):
    figure, axes = plt.subplots(2, 2, figsize=(8.6, 6.2), layout="constrained", sharex="col")
    figure.suptitle("The excess risk increases with the rates, as the bounds say, but not with their difference")
    for axis_row, (name, problem) in zip(axes, PROBLEMS.items()):
        for axis, sweep in zip(axis_row, SWEEPS):
            curve = [row for row in rows if (row["loss"], row["sweep"]) == (name, sweep)]
            at = np.array([row["at"] for row in curve])
            origin = int(np.abs(at).argmin())
            for quantity, style in QUANTITIES.items():
                values = np.array([row[quantity] for row in curve])
                axis.plot(at, values / values[origin], markersize=4, **style)
                if quantity == "excess":
                    error = 2 * np.array([row["error"] for row in curve])
                    low, high = (values - error) / values[origin], (values + error) / values[origin]
                    axis.fill_between(at, low, high, color=style["color"], alpha=0.18, linewidth=0)
        axis_row[0].set(yscale="log", ylabel=f"{problem.title}\nrelative to no noise")
        axis_row[1].set(ylabel="relative to equal rates", ylim=(0.5, 1.6))
        axis_row[1].axhline(1, color=GRAY, linewidth=0.6)
    axes[0, 0].set_title(f"equal rates, n = {n}")
    axes[0, 1].set_title(f"rates of sum {SUM}, n = {n}")
    axes[1, 0].set_xlabel(r"$\rho_{pos} = \rho_{neg}$")
    axes[1, 1].set_xlabel(r"difference $\rho_{neg} - \rho_{pos}$")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(QUANTITIES))
    return figure


def main() -> None:
    options = arguments(__doc__)
    sets, n = (10, 512) if options.quick else (60, 1024)
    steps = 3 if options.quick else 9
    points = {"rate": np.linspace(0, 0.4, steps).tolist(), "difference": np.linspace(-SUM, SUM, steps).tolist()}
    rows = measure(make_task(sets, n, 10_000 if options.quick else 50_000), points)
    save(lambda plt: draw(plt, rows, n), rows, options.out, "noise_rates")


if __name__ == "__main__":
    main()
