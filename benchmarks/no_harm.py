"""Measure whether the default keeps correct labels that the features hardly predict.

    python benchmarks/no_harm.py               ten draws of every task, results/no_harm.csv (needs CCMN_DATA)

Features that predict little look like noise. The score is the sum of the predicted probabilities of new rows, relative
to the observed labels: the mean over draws is to be within 25 %, and no draw outside .5 to 1.6. Tasks with 6 labels:

- "weak, 300 rows" and "weak, 150 rows": 20 normal features, P(label j) = sigmoid(.3 x_j - 1.5);
- "coins .2" and "coins .5": labels that do not depend on the features, 300 rows;
- "yeast, shuffled" and "scene, shuffled": 300 rows of a dataset after 90 % of its columns were permuted.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from harness import parser
from scipy.special import expit

from ccmn import CorrectedClassifier
from ccmn.data import load_dataset

RESULTS = Path(__file__).resolve().parents[1] / "results" / "no_harm.csv"
TASKS = ("weak, 300 rows", "weak, 150 rows", "coins .2", "coins .5", "yeast, shuffled", "scene, shuffled")
TEST_ROWS = 1000


def make_task(task: str, draw: int) -> tuple[np.ndarray, np.ndarray, int]:
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


def run(task: str, draw: int) -> dict[str, object]:
    X, Y, n = make_task(task, draw)
    P = CorrectedClassifier(random_state=draw).fit(X[:n], Y[:n]).predict_proba(X[n:])
    return {"task": task, "draw": draw, "ratio": P.mean() / Y[:n].mean()}


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    warnings.filterwarnings("ignore")
    draws, tasks = (2, TASKS[:4]) if options.quick else (10, TASKS)
    table = pd.DataFrame([run(task, draw) for task in tasks for draw in range(draws)])
    if not options.quick:
        table.to_csv(RESULTS, index=False, float_format="%.4f")
    if options.json:
        print(json.dumps(table.to_dict("records")))
    else:
        print(table.groupby("task", sort=False).ratio.agg(["mean", "min", "max"]).round(2).to_string())


if __name__ == "__main__":
    main()
