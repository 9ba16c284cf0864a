"""Ablation of the default: every constant halved and doubled, or without what it controls.

    python benchmarks/ablation.py              all variants, results/ablation.csv (needs CCMN_DATA)

Each variant is fitted to the same draws as the default: splits of ``benchmarks/default.py`` with 300 training rows and
at most 8 labels, and tasks of ``benchmarks/no_harm.py``. "change" is the difference to the default, "se" its standard
error over draws; "ratio" is the sum of the predicted probabilities over that of the observed labels, where the features
predict little. The constants were chosen on yeast, scene, enron, tmc, deu, ptbr, relex and cmc ("chosen" in column
sets); slashdot was left out of every choice.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import no_harm
import numpy as np
import pandas as pd
from default import Cell, Task, evaluate, make_task
from harness import parser

from ccmn.estimation.estimate import model_posterior
from ccmn.estimation.posterior import corrected_curve
from ccmn.training.default_model import NoisyLabelModel
from ccmn.training.default_settings import DEFAULTS, DefaultSettings

RESULTS = Path(__file__).resolve().parents[1] / "results" / "ablation.csv"
N_ROWS = 300
N_LABELS = 8
METRICS = ("hamming_loss", "lrap", "mean_ap", "log_loss")
DRAWS = [
    *(
        Cell(name, kind, 10)
        for name in ("yeast", "tmc", "relex")
        for kind in ("clean", "two-sided", "missing", "added")
    ),
    *(Cell(name, "human", 10) for name in ("deu", "cmc")),
    *(Cell("slashdot", kind, seed) for seed in (10, 11) for kind in ("clean", "two-sided", "missing", "added")),
]
WEAK = [(task, draw) for task in no_harm.TASKS[:4] for draw in range(2)]
GRID = DEFAULTS.c_grid
VARIANTS: dict[str, dict[str, object]] = {
    "c_grid": {"every second value": GRID[::2], "one value": (1.0,)},
    "n_folds": {"2": 2, "6": 6},
    "n_trees": {"50": 50, "200": 200},
    "min_samples_leaf": {"2": 2, "10": 10},
    "max_rows": {"150": 150},
    "n_components": {"50": 50, "200": 200},
    "grid": {"halved": (0.025, 0.02), "doubled": (0.1, 0.08)},
    "coarse": {"one pair": ((0.0,), (0.0,)), "4 pairs": ((0.0, 0.4), (0.0, 0.6))},
    "slope": {"mean 0": (0.0, 0.5), "deviation halved": (0.2, 0.25), "deviation doubled": (0.2, 1.0)},
    "temperature": {"1": 1.0, "1.25": 1.25, "5": 5.0},
    "max_means": {"halved": (0.25, 0.25, 0.5), "larger": (0.9, 0.9, 0.95)},
    "concentrations": {"halved": (0.5, 2.0), "doubled": (2.0, 8.0), "2 to 50": (2.0, 50.0)},
    "rarity": {"0": 0.0, "0.5": 0.5, "2": 2.0},
}


def predict(task: Task, settings: DefaultSettings) -> np.ndarray:
    """Return the probabilities of test rows by the default with other constants."""
    Y = task.noisy.astype(np.float64)
    model = NoisyLabelModel(0, settings).fit(task.X, Y)
    return corrected_curve(model_posterior(model, Y, "both"))(model.log_odds(task.X_test))


def scores(settings: DefaultSettings, tasks: dict[object, Task]) -> pd.DataFrame:
    """Return the metrics of all draws; of those with weak features, only the ratio."""
    rows = {}
    for key, task in tasks.items():
        P = predict(task, settings)
        weak = not isinstance(key, Cell)
        rows[key] = {"ratio": P.mean() / task.noisy.mean()} if weak else evaluate(task.Y_test, P)
    return pd.DataFrame(rows).T


def read_tasks() -> dict[object, Task]:
    """Return all draws, with at most 8 labels."""
    tasks: dict[object, Task] = {}
    for cell in DRAWS:
        t = make_task(cell, N_ROWS)
        few = np.sort(np.random.default_rng(0).permutation(t.noisy.shape[1])[:N_LABELS])
        tasks[cell] = Task(t.X, t.noisy[:, few], t.true[:, few], t.X_test, t.Y_test[:, few], t.trusted)
    for name, draw in WEAK:
        X, Y, n = no_harm.make_task(name, draw)
        tasks[(name, draw)] = Task(X[:n], Y[:n], Y[:n], X[n:], Y[n:].astype(float), np.arange(0))
    return tasks


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    warnings.filterwarnings("ignore")
    tasks, variants = read_tasks(), dict(list(VARIANTS.items())[-2:]) if options.quick else VARIANTS
    tasks = dict(list(tasks.items())[:2]) if options.quick else tasks
    base, rows = scores(DEFAULTS, tasks), []
    slashdot = np.array([getattr(key, "dataset", "") == "slashdot" for key in tasks])
    for field, values in variants.items():
        for value, changed in values.items():
            found = scores(replace(DEFAULTS, **{field: changed}), tasks)
            for sets, chosen in (("chosen", ~slashdot), ("slashdot", slashdot)):
                row: dict[str, object] = {"field": field, "value": value, "sets": sets}
                for metric in METRICS:
                    change = (found[metric] - base[metric])[chosen].dropna()
                    row |= {f"{metric}_change": change.mean(), f"{metric}_se": change.sem()}
                rows.append(row | ({} if sets == "slashdot" or options.quick else {"ratio": found.ratio.mean()}))
            if not options.quick:
                pd.DataFrame(rows).to_csv(RESULTS, index=False, float_format="%.5f")
    print(json.dumps(rows) if options.json else pd.DataFrame(rows).round(4).to_string())


if __name__ == "__main__":
    main()
