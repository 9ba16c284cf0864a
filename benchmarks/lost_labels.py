"""Measure how accurately the missing-label rate can be estimated at best.

    python benchmarks/lost_labels.py           five draws on yeast, scene, mirflickr and enron (needs CCMN_DATA)
    python benchmarks/lost_labels.py --quick   one draw on yeast and scene

Mean errors of rho_pos, for the draws and labels of "missing" in noise_rates.py, of estimators with more information
than any real one has:

- "counted": all true labels of the training rows are known, and flips are counted.
- "informed": smallest error by the Cramer-Rao bound, given the mean and standard deviation of the rates and held-out
  log-odds f of a model fitted to the *true* labels, if P(noisy 1 | x) = (1 - rho_pos) sigma(a f + b) with unknown a, b.
- "constant": the estimate is the mean of the rates.

``top`` is the share of true positives among the rows with the highest f (a tenth as many as there are positives). Only
these rows identify rho_pos, because P(noisy 1 | x) <= 1 - rho_pos. The timing compares the fit to true labels with
"auto".
"""

from __future__ import annotations

import time

import numpy as np
import scipy.optimize
import scipy.special
from draws import DATASETS, Draw, estimate, make_draw, write_csv
from harness import Result, parser, report

from ccmn.estimation.likelihood import held_out_logits
from ccmn.estimation.out_of_fold import feature_maps, stratified_folds

RATES = np.array([0.1, 0.2, 0.3, 0.4])
"""Rates of the draws."""
MEAN_ABSOLUTE_DEVIATION = (2 / np.pi) ** 0.5
"""Mean absolute deviation of a normal variable in standard deviations."""


def clean_logits(draw: Draw) -> list[np.ndarray]:
    """Return held-out log-odds (n,) of every label by models of the true labels, given the other true labels."""
    Y = draw.Y.astype(np.float64)
    folds = stratified_folds(Y, 3, np.random.default_rng(draw.number))
    found = held_out_logits(feature_maps(draw.X, draw.number)[0], Y, [np.zeros((1, 2))] * Y.shape[1], folds)
    return [label[:, 0] for label in found]


def cramer_rao(f: np.ndarray, y: np.ndarray, rho_pos: float) -> float:
    """Return the Cramer-Rao bound of the standard error of rho_pos if slope and offset of f are unknown."""

    def loss(at: np.ndarray) -> float:
        z = np.exp(at[0]) * f + at[1]
        return float((np.logaddexp(0, z) - y * z).sum())

    slope, offset = scipy.optimize.minimize(loss, [0.0, 0.0]).x
    eta = np.clip(scipy.special.expit(np.exp(slope) * f + offset), 1e-9, 1 - 1e-9)
    g, slope_of_g = (1 - rho_pos) * eta, (1 - rho_pos) * eta * (1 - eta)
    gradients = np.stack([slope_of_g * f, slope_of_g, -eta], 1)
    return float(np.sqrt(np.linalg.inv((gradients / (g * (1 - g))[:, None]).T @ gradients)[2, 2]))


def share_at_top(f: np.ndarray, y: np.ndarray) -> float:
    """Return the share of true positives among the rows with the highest log-odds."""
    count = max(3, int(y.sum()) // 10)
    return float(y[np.argsort(-f, kind="stable")[:count]].mean())


def run(name: str, number: int) -> dict[str, object]:
    """Return the errors of one draw."""
    draw = make_draw(name, "missing", number)
    start = time.perf_counter()
    logits = clean_logits(draw)
    fitted = time.perf_counter()
    estimate(draw.evidence())
    done = time.perf_counter()
    kept, true = draw.counted, draw.noise.rho_pos[draw.counted]
    removed = ((draw.Y == 1) & (draw.noisy == 0)).sum(0)[kept]
    se = np.array([cramer_rao(logits[j], draw.Y[:, j], draw.noise.rho_pos[j]) for j in kept])
    values = {
        "counted": np.abs((removed + 0.5) / (draw.Y.sum(0)[kept] + 1) - true),
        "informed": MEAN_ABSOLUTE_DEVIATION * (RATES.std() ** -2 + se**-2) ** -0.5,
        "constant": np.abs(true - RATES.mean()),
        "top": [share_at_top(logits[j], draw.Y[:, j]) for j in kept],
    }
    means = {key: round(float(np.mean(value)), 4) for key, value in values.items()}
    return {"dataset": name, "draw": number} | means | {"seconds": fitted - start, "auto": done - fitted}


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", help="write the rows to this file")
    options = arguments.parse_args()
    names, draws = (("yeast", "scene"), 1) if options.quick else (DATASETS, 5)
    rows = [run(name, number) for name in names for number in range(draws)]
    results, notes = [], {}
    for name in names:
        mine = [row for row in rows if row["dataset"] == name]
        mean = {key: float(np.mean([row[key] for row in mine])) for key in rows[0] if key not in ("dataset", "draw")}
        seconds, auto = mean.pop("seconds"), mean.pop("auto")
        results.append(Result(f"fit to true labels: {name}", seconds, "auto", auto, auto / seconds))
        notes[name] = ", ".join(f"{key} {value:.3f}" for key, value in mean.items())
    if options.csv:
        write_csv(options.csv, [{k: v for k, v in row.items() if k not in ("seconds", "auto")} for row in rows])
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
