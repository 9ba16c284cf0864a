"""Measure false alarms and power of the test for confused labels, which needs no trusted rows.

    python benchmarks/diagnosis.py            six kinds of noise on six datasets (needs CCMN_DATA)
    python benchmarks/diagnosis.py --quick    two datasets

Each draw takes 70 % of the rows of a dataset at random (at most 3,000) and injects one kind of noise of ``harness.py``.
A flag under confusions counts as power; any flag on clean labels and under class-conditional noise is a false alarm.
The limits were selected on other draws of yeast, enron and tmc. On "synthetic", labels are independent given the
features. Every fit is written to results/diagnosis.csv.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from harness import CLASS_CONDITIONAL, inject, parser, save

from ccmn import diagnose_noise
from ccmn._containers import to_dense_array
from ccmn.data import load_dataset, make_noisy_multilabel

RESULTS = Path(__file__).resolve().parent.parent / "results" / "diagnosis.csv"
DATASETS = ("yeast", "synthetic", "scene", "mirflickr", "enron", "slashdot")
KINDS = (*CLASS_CONDITIONAL, "confusion")
MAX_ROWS = 3000
FIRST_DRAW = 20
"""First seed of the reported draws; the limits of the tests were selected on draws 0 to 14."""


def make_data(name: str, draw: int) -> tuple[object, np.ndarray, np.random.Generator]:
    """Return features and true labels of a random subset of the rows, and the generator of the noise."""
    rng = np.random.default_rng([draw, sum(map(ord, name))])
    if name == "synthetic":
        task = make_noisy_multilabel(3000, 20, 10, strength=4.0, random_state=draw)
        return task.X, np.asarray(task.Y).astype(int), rng
    data = load_dataset(name)
    Y = to_dense_array(data.Y).astype(int)
    rows = np.sort(rng.permutation(len(Y))[: min(int(0.7 * len(Y)), MAX_ROWS)])
    return data.X[rows], Y[rows], rng


def evaluate(name: str, kind: str, draw: int) -> dict[str, object]:
    """Return whether labels are called confused in one fit."""
    X, Y, rng = make_data(name, draw)
    noisy = inject(kind, X, Y, rng).astype(np.float64)
    flagged = bool(diagnose_noise(X, noisy, random_state=draw).flags)
    return {"dataset": name, "n": len(Y), "q": Y.shape[1], "kind": kind, "draw": draw, "flagged": int(flagged)}


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    names, n_draws = (DATASETS[:2], 1) if options.quick else (DATASETS, 1)
    draws = range(FIRST_DRAW, FIRST_DRAW + n_draws)
    table = pd.DataFrame([evaluate(name, kind, draw) for name in names for kind in KINDS for draw in draws])
    if not options.quick:
        save(table, RESULTS)
    counts = table.groupby(["dataset", "kind"], sort=False).flagged.sum().unstack("kind")
    print(json.dumps(counts.to_dict("index")) if options.json else f"flagged fits of {n_draws}\n{counts.to_string()}")


if __name__ == "__main__":
    main()
