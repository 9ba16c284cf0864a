"""Ablation of the default: every constant halved and doubled, or without what it controls.

    python benchmarks/ablation.py              all variants, results/ablation.csv (needs CCMN_DATA)
    python benchmarks/ablation.py --no-harm    ten draws of tasks whose features predict little, results/no_harm.csv

Each variant is fitted to the same draws as the default: splits of ``benchmarks/default.py`` with 300 training rows and
at most 8 labels, and correct labels that the features hardly predict. "change" is the difference to the default, "se"
its standard error over draws; "ratio" is the sum of the predicted probabilities over that of the observed labels, where
the features predict little. The constants were chosen on yeast, scene, enron, tmc, deu, ptbr, relex and cmc ("chosen"
in column sets); slashdot was left out of every choice but that of the deviation of ``slope``.

Features that predict little look like noise. Tasks with 6 labels and few rows:

- "weak, 300 rows" and "weak, 150 rows": 20 normal features, P(label j) = sigmoid(.3 x_j - 1.5);
- "coins .2" and "coins .5": labels that do not depend on the features, 300 rows;
- "yeast, shuffled" and "scene, shuffled": 300 rows of a dataset after 90 % of its columns were permuted.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from default import Cell, Task, evaluate, make_task
from harness import parser, save
from scipy.special import expit

from ccmn import CorrectedClassifier
from ccmn.data import load_dataset
from ccmn.estimation.estimate import model_posterior
from ccmn.estimation.posterior import corrected_curve
from ccmn.training.default_model import NoisyLabelModel
from ccmn.training.default_settings import DEFAULTS, DefaultSettings

RESULTS = Path(__file__).resolve().parents[1] / "results" / "ablation.csv"
NO_HARM = RESULTS.with_name("no_harm.csv")
TASKS = ("weak, 300 rows", "weak, 150 rows", "coins .2", "coins .5", "yeast, shuffled", "scene, shuffled")
TEST_ROWS = 1000
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
WEAK = [(task, draw) for task in TASKS[:4] for draw in range(2)]
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
    "slope": {"mean 0": (0.0, 1.0), "deviation halved": (0.2, 0.5), "deviation doubled": (0.2, 2.0)},
    "temperature": {"1": 1.0, "1.25": 1.25, "5": 5.0},
    "max_means": {"halved": (0.25, 0.25, 0.5), "larger": (0.9, 0.9, 0.95)},
    "concentrations": {"halved": (0.5, 2.0), "doubled": (2.0, 8.0), "2 to 50": (2.0, 50.0)},
    "rarity": {"0": 0.0, "0.5": 0.5, "2": 2.0},
}


def make_weak(task: str, draw: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return features, correct labels and the number of training rows, which come first."""
    rng = np.random.default_rng([draw, *map(ord, task)])
    if task.endswith("shuffled"):
        data, n = load_dataset(task.split(",")[0]), 300
        rows = rng.permutation(len(data.Y))[: n + TEST_ROWS]
        X, Y = np.array(data.X[rows]), np.asarray(data.Y)[rows].astype(int)
        for column in rng.permutation(X.shape[1])[: int(0.9 * X.shape[1])]:
            X[:, column] = rng.permutation(X[:, column])
        return X, Y[:, Y[:n].sum(0) >= 10], n
    n = 150 if "150" in task else 300
    X = rng.normal(size=(n + TEST_ROWS, 20))
    P = expit(0.3 * X[:, :6] - 1.5) if task.startswith("weak") else np.full((len(X), 6), float(task.split()[1]))
    return X, (rng.random(P.shape) < P).astype(int), n


def ratio(task: str, draw: int) -> dict[str, object]:
    X, Y, n = make_weak(task, draw)
    P = CorrectedClassifier(random_state=draw).fit(X[:n], Y[:n]).predict_proba(X[n:])
    return {"task": task, "draw": draw, "ratio": P.mean() / Y[:n].mean()}


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
        tasks[cell] = Task(t.X, t.noisy[:, few], t.true[:, few], t.X_test, t.Y_test[:, few])
    for name, draw in WEAK:
        X, Y, n = make_weak(name, draw)
        tasks[(name, draw)] = Task(X[:n], Y[:n], Y[:n], X[n:], Y[n:].astype(float))
    return tasks


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--no-harm", action="store_true", help="measure predicted over observed labels only")
    options = arguments.parse_args()
    warnings.filterwarnings("ignore")
    if options.no_harm:
        draws, names = (2, TASKS[:4]) if options.quick else (10, TASKS)
        table = pd.DataFrame([ratio(task, draw) for task in names for draw in range(draws)])
        if not options.quick:
            save(table.round(4), NO_HARM)
        print(
            json.dumps(table.to_dict("records")) if options.json else table.groupby("task", sort=False).ratio.describe()
        )
        return
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
                save(pd.DataFrame(rows).round(5), RESULTS)
    print(json.dumps(rows) if options.json else pd.DataFrame(rows).round(4).to_string())


if __name__ == "__main__":
    main()
