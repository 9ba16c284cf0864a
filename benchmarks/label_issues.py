"""Measure how well injected label errors are found, and that correct labels are not accused.

    python benchmarks/label_issues.py            both parts, results/label_issues.csv (needs CCMN_DATA)
    python benchmarks/label_issues.py --quick    two draws of one dataset and of one kind of correct labels

- "injected": class-conditional noise with rates that sum to at most .6 for every label. All scores use the same
  out-of-fold probabilities: self-confidence, 1 - P(given label | x); the posterior at estimated rates (noise="both"),
  and at the true rates. Average precision over all labels; of the labels with ``p_wrong`` >= .5 the number, the mean of
  ``p_wrong`` and the share that is wrong.
- "correct": simulated labels without errors, features of which predict them well or weakly, that are nested (a parent
  holds if any child does, and children hold only if a gate holds), or absent in many rows. Values are the number of
  labels with any ``p_wrong`` if nothing is declared, and the share of labels with ``p_wrong`` >= .5 if noise="both" is.

For errors of people instead of injected noise, see real_noise.py.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from harness import machine, parser, save
from scipy.special import expit
from sklearn.metrics import average_precision_score

from ccmn import ClassConditionalNoise, audit_labels
from ccmn._containers import to_dense_array
from ccmn.data import load_dataset

RESULTS = Path(__file__).resolve().parent.parent / "results" / "label_issues.csv"
DATASETS = ("yeast", "scene", "enron", "mirflickr")
N_DRAWS, N_TASKS = 5, 20
Value = tuple[str, str, int, str, str, float]
"""Part, dataset or kind, draw, method, metric, value."""


def injected(name: str, draw: int) -> Iterator[Value]:
    """Yield the results of one draw of class-conditional noise."""
    data = load_dataset(name)
    Y = to_dense_array(data.Y).astype(np.float64)
    noise = ClassConditionalNoise.sample(Y.shape[1], max_sum=0.6, random_state=draw)
    noisy = noise.corrupt(Y, random_state=100 + draw)
    wrong, proba = (noisy != Y).ravel(), None
    for method, declared in (("self-confidence", None), ("estimated rates", "both"), ("known rates", noise)):
        least = None if declared is None else 0
        audit = audit_labels(data.X, noisy, declared, min_p_wrong=least, pred_proba=proba, random_state=draw)
        proba = audit.pred_proba
        scores = np.empty(Y.shape)
        scores[audit.issues.row, audit.issues.label] = audit.issues.suspicion
        scores = scores.ravel()
        yield "injected", name, draw, method, "average_precision", average_precision_score(wrong, scores)
        if declared is not None:
            listed = scores >= 0.5
            yield "injected", name, draw, method, "listed", listed.sum()
            yield "injected", name, draw, method, "mean_p_wrong", scores[listed].mean() if listed.any() else np.nan
            yield "injected", name, draw, method, "share_wrong", wrong[listed].mean() if listed.any() else np.nan


def correct_labels(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels without errors."""
    rng = np.random.default_rng([seed, *map(ord, kind)])
    n, q, slope, shift = {
        "weak": (300, 6, 0.3, -1.5),
        "5 labels": (1500, 5, 2.0, -1.0),
        "50 labels": (1500, 50, 2.0, -2.0),
        "rows without labels": (1500, 6, 2.0, -1.0),
        "gated and nested": (3000, 4, 0.7, 0.0),
    }[kind]
    X = rng.normal(size=(n, 20))
    score = X[:, :q] if q <= 20 else X @ rng.normal(size=(20, q)) / np.sqrt(20)
    Y = rng.random((n, q)) < expit(slope * score + shift)
    if kind == "rows without labels":
        Y &= rng.random((n, 1)) < 0.7
    if kind == "gated and nested":
        w, v = rng.normal(size=20), rng.normal(size=(20, q))
        children = (rng.random((n, 1)) < expit(1.2 * X @ w[:, None] - 1)) & (rng.random((n, q)) < expit(0.7 * X @ v))
        Y = np.column_stack([children, children.any(1)])
    return X, Y.astype(np.float64)


CORRECT = ("weak", "5 labels", "50 labels", "rows without labels", "gated and nested")


def correct(kind: str, seed: int) -> Iterator[Value]:
    """Yield what is claimed about correct labels."""
    X, Y = correct_labels(kind, seed)
    declared = audit_labels(X, Y, "both", random_state=seed)
    ranked = audit_labels(X, Y, pred_proba=declared.pred_proba)
    yield "correct", kind, seed, "nothing declared", "labels with p_wrong", ranked.issues.p_wrong.notna().sum()
    yield "correct", kind, seed, "both declared", "share with p_wrong >= .5", len(declared.issues) / Y.size


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")  # rates of some labels are poorly identified
    sets, n_draws = (DATASETS[:1], 2) if options.quick else (DATASETS, N_DRAWS)
    kinds, n_tasks = (CORRECT[:1], 2) if options.quick else (CORRECT, N_TASKS)
    rows = [row for kind in kinds for seed in range(n_tasks) for row in correct(kind, seed)]
    rows += [row for name in sets for draw in range(n_draws) for row in injected(name, draw)]
    table = pd.DataFrame(rows, columns=["part", "dataset", "draw", "method", "metric", "value"])
    if not options.quick:
        save(table.round({"value": 4}), RESULTS)
    summary = table.groupby(["part", "dataset", "method", "metric"], sort=False).value.agg(["mean", "max"]).round(4)
    if options.json:
        print(json.dumps({"machine": machine(), "results": summary.reset_index().to_dict("records")}))
    else:
        print(summary.to_string())


if __name__ == "__main__":
    main()
