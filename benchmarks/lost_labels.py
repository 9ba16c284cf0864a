"""How well could the rate of lost labels be known at all, where labels are only lost?

    python benchmarks/lost_labels.py           five draws on yeast, scene, mirflickr and enron (needs CCMN_DATA)
    python benchmarks/lost_labels.py --quick   one draw on yeast and scene

Mean errors of rho_pos, same draws and labels as "missing" of noise_rates.py, by somebody who knows more than any
estimator may: all true labels of the training rows, and counts ("counted"); held-out log-odds f of a model fitted to
the *true* labels, and that P(noisy 1 | x) = (1 - rho_pos) sigma(a f + b) holds exactly, and the mean and deviation of
the rates that were drawn ("informed": the least error by the Cramer-Rao bound, a and b unknown); the mean of the rates
that were drawn, and nothing else ("constant"). ``top``: of the rows with the highest f, a tenth as many as there are
true positives, the share that is positive; rho_pos is seen there or nowhere, as P(noisy 1 | x) <= 1 - rho_pos. The
timing: the fit to true labels against "auto".
"""

from __future__ import annotations

import time

import numpy as np
import scipy.optimize
import scipy.special
from draws import DATASETS, Draw, estimate, make_draw, write_csv
from harness import Result, parser, report

from ccmn.estimation.out_of_fold import feature_maps, stratified_folds
from ccmn.estimation.likelihood import held_out_logits

RATES = np.array([0.1, 0.2, 0.3, 0.4])
"""What the rates of the draws are drawn from."""
ABSOLUTE = (2 / np.pi) ** 0.5
"""Mean absolute deviation of a normal variable, in standard deviations."""


def clean_logits(draw: Draw) -> list[np.ndarray]:
    """Held-out log-odds (n,) of every true label, from models fitted to true labels that see the other true ones."""
    Y = draw.Y.astype(np.float64)
    folds = stratified_folds(Y, 3, np.random.default_rng(draw.number))
    found = held_out_logits(feature_maps(draw.X, draw.number)[0], Y, [np.zeros((1, 2))] * Y.shape[1], folds)
    return [label[:, 0] for label in found]


def cramer_rao(f: np.ndarray, y: np.ndarray, rho_pos: float) -> float:
    """The least standard error of rho_pos where slope and offset of f, best for the true labels, are unknown, too."""

    def loss(at: np.ndarray) -> float:
        z = np.exp(at[0]) * f + at[1]
        return float((np.logaddexp(0, z) - y * z).sum())

    slope, offset = scipy.optimize.minimize(loss, [0.0, 0.0]).x
    eta = np.clip(scipy.special.expit(np.exp(slope) * f + offset), 1e-9, 1 - 1e-9)
    g, steep = (1 - rho_pos) * eta, (1 - rho_pos) * eta * (1 - eta)
    slopes = np.stack([steep * f, steep, -eta], 1)
    return float(np.sqrt(np.linalg.inv((slopes / (g * (1 - g))[:, None]).T @ slopes)[2, 2]))


def purity(f: np.ndarray, y: np.ndarray) -> float:
    many = max(3, int(y.sum()) // 10)
    return float(y[np.argsort(-f, kind="stable")[:many]].mean())


def run(name: str, number: int) -> dict[str, object]:
    draw = make_draw(name, "missing", number)
    start = time.perf_counter()
    logits = clean_logits(draw)
    fitted = time.perf_counter()
    estimate(draw.evidence())
    done = time.perf_counter()
    kept, true = draw.counted, draw.noise.rho_pos[draw.counted]
    lost = ((draw.Y == 1) & (draw.noisy == 0)).sum(0)[kept]
    se = np.array([cramer_rao(logits[j], draw.Y[:, j], draw.noise.rho_pos[j]) for j in kept])
    values = {
        "counted": np.abs((lost + 0.5) / (draw.Y.sum(0)[kept] + 1) - true),
        "informed": ABSOLUTE * (RATES.std() ** -2 + se**-2) ** -0.5,
        "constant": np.abs(true - RATES.mean()),
        "top": [purity(logits[j], draw.Y[:, j]) for j in kept],
    }
    means = {key: round(float(np.mean(value)), 4) for key, value in values.items()}
    return {"dataset": name, "draw": number} | means | {"seconds": fitted - start, "auto": done - fitted}


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", help="write the rows there")
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
