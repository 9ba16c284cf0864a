"""Coverage of the 90 % intervals of noise rates, and errors of the rates.

    python benchmarks/noise_rates.py           all settings, results/noise_rates.csv (needs CCMN_DATA)

Simulated tasks satisfy the assumptions: 1,000 rows with 6 normal features, 3 logistic labels with |w| = 3 and an offset
from -2 to 0, flips that depend on the label alone; 100 draws. "twice" and "four times" repeat every row.
Real tasks have labels of people and 200 random verified rows; the reference are the rates of the other rows, for labels
with at least 10 true positives there; ten draws.

A label is covered if the interval contains the true rate. "unpredicted" is the share of the labels with that flag.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from default import HUMAN, MIN_POSITIVES, read
from harness import parser, save
from scipy.special import expit

from ccmn import ClassConditionalNoise, estimate_noise
from ccmn.estimation import NoiseRates

RESULTS = Path(__file__).resolve().parents[1] / "results" / "noise_rates.csv"
RATES = {".2 / .2": (0.2, 0.2), ".3 / .3": (0.3, 0.3), ".4 / .4": (0.4, 0.4), ".4 / 0": (0.4, 0), "0 / .3": (0, 0.3)}
BARELY = {".48 / .48": (0.48, 0.48), "coin flips": (0.5, 0.5)}
COPIES = {"once": 1, "twice": 2, "four times": 4}
N_DRAWS = 100
N_VERIFIED = 200


def rows_of(rates: NoiseRates, pos: np.ndarray, neg: np.ndarray, labels: np.ndarray) -> list[dict[str, object]]:
    """Return errors, coverage and widths of the intervals of some labels."""
    flagged = np.isin(labels, rates.labels_with("unpredicted"))
    rows = []
    for j, flag in zip(labels, flagged):
        row: dict[str, object] = {"label": j, "unpredicted": int(flag)}
        for side, true in (("pos", pos[j]), ("neg", neg[j])):
            value, (low, high) = getattr(rates, f"rho_{side}")[j], getattr(rates, f"ci_{side}")[j]
            row |= {f"{side}_error": abs(value - true), f"{side}_covered": int(low <= true <= high)}
            row[f"{side}_width"] = high - low
        rows.append(row)
    return rows


def simulated(pair: tuple[float, float], copies: int, draw: int) -> list[dict[str, object]]:
    rng = np.random.default_rng([draw, *(int(100 * rate) for rate in pair)])
    X, W = rng.normal(size=(1000, 6)), rng.normal(size=(6, 3))
    Y = (rng.random((1000, 3)) < expit(3 * X @ W / np.linalg.norm(W, axis=0) + rng.uniform(-2, 0, 3))).astype(int)
    pos, neg = np.full((2, 3), np.array(pair)[:, None])
    noisy = np.where(Y == 1, rng.random(Y.shape) >= pos, rng.random(Y.shape) < neg).astype(int)
    rates = estimate_noise(np.tile(X, (copies, 1)), np.tile(noisy, (copies, 1)), random_state=draw)
    return rows_of(rates, pos, neg, np.arange(3))


def verified(name: str, draw: int) -> list[dict[str, object]]:
    X, true, noisy = read(name)
    noisy = noisy.astype(float)
    order = np.random.default_rng([draw, *map(ord, name)]).permutation(len(true))
    known, rest = order[:N_VERIFIED], order[N_VERIFIED:]
    kept = np.flatnonzero((np.nansum(true[rest], 0) >= MIN_POSITIVES) & (noisy.sum(0) > 0))
    noise = ClassConditionalNoise.from_pairs(
        true[rest][:, kept], np.where(np.isnan(true), np.nan, noisy)[rest][:, kept]
    )
    rates = estimate_noise(X, noisy[:, kept], trusted=(known, true[known][:, kept]), random_state=draw)
    return rows_of(rates, noise.rho_pos, noise.rho_neg, np.arange(len(kept)))


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--results", type=Path, default=RESULTS)
    options = arguments.parse_args()
    warnings.filterwarnings("ignore")
    draws = 2 if options.quick else N_DRAWS
    cells = [
        (setting, copies, draw)
        for draw in range(draws)
        for setting in (*RATES, *BARELY)
        for copies in COPIES
        if copies == "once" or setting in RATES
    ]
    if not options.quick:
        cells = [(name, f"{N_VERIFIED} verified rows", draw) for draw in range(10) for name in HUMAN] + cells
    rows = []
    for number, (setting, rows_are, draw) in enumerate(cells):
        if setting in HUMAN:
            found = verified(setting, draw)
        else:
            found = simulated({**RATES, **BARELY}[setting], COPIES[rows_are], draw)
        rows += [{"setting": setting, "rows": rows_are, "draw": draw, **row} for row in found]
        if number % 100 == 99 or number == len(cells) - 1:
            table = pd.DataFrame(rows)
            if not options.quick:
                save(table.round(4), options.results)
    means = table.groupby(["setting", "rows"], sort=False).mean().drop(columns=["draw", "label"]).round(3)
    if options.json:
        print(json.dumps(means.reset_index().to_dict("records")))
    else:
        print(means.to_string())


if __name__ == "__main__":
    main()
