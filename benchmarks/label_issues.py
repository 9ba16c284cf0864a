"""Finding flipped labels: average precision and time of find_label_issues, against cleanlab's multi-label scores.

    python benchmarks/label_issues.py            five draws of noise on four data sets (needs CCMN_DATA and cleanlab)
    python benchmarks/label_issues.py --quick    two draws of each, no rates estimated from features
    python benchmarks/label_issues.py --csv results/label_issues.csv

Rates of every label are drawn from 0.1 to 0.5, pairs with a sum of at most 0.6, and labels flipped. Everyone gets the
same noisy labels and the same out-of-fold probabilities of them, linear models', and ranks all entries; a flipped one
found is a hit. Ours are given the true rates ("known rates"), estimate them from features and noisy labels ("rates from
features"; "as ccmn audit" puts the probabilities right by them, too), or from just these probabilities ("estimated
rates"; "at their word" takes upper bounds for rates). Of the entries that ours list (p_wrong of 0.5 or more), the share
that is wrong stands beside the mean of p_wrong, and so it does of those with 0.95 or more (``surest``). The timings are
for 20,000 rows and 50 labels.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from harness import Result, compare, parser, report
from sklearn.metrics import average_precision_score

from ccmn import ClassConditionalNoise, estimate_noise, find_label_issues
from ccmn._containers import to_dense_array
from ccmn.audit import within_noise
from ccmn.data import load_dataset
from ccmn.estimation import out_of_fold_scores

try:
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
    from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
except ImportError:
    sys.exit("this benchmark compares with cleanlab, which is not installed here: pip install 'ccmn[bench]'")

DATASETS = ("yeast", "scene", "enron", "mirflickr")
CLEANLAB = {
    "cleanlab self-confidence": {"method": "self_confidence"},
    "cleanlab normalized margin": {"method": "normalized_margin"},
    "cleanlab entropy": {"method": "confidence_weighted_entropy"},
    "cleanlab self-confidence, adjusted": {"method": "self_confidence", "adjust_pred_probs": True},
}
FROM_FEATURES = "rates from features"
AS_AUDIT = "as ccmn audit"
OURS = ("known rates", FROM_FEATURES, AS_AUDIT, "estimated rates")


def label_lists(Y: np.ndarray) -> list[list[int]]:
    """Labels as cleanlab takes them."""
    return [np.flatnonzero(row).tolist() for row in Y]


def suspicion(Y: np.ndarray, P: np.ndarray, noise: object) -> np.ndarray:
    """p_wrong of every entry, in its place."""
    found = find_label_issues(Y, P, noise, min_p_wrong=0)
    scores = np.empty(Y.shape)
    scores[found.row, found.label] = found.p_wrong
    return scores


def precisions(name: str, draws: int, *, from_features: bool) -> Iterator[dict[str, object]]:
    """A row per draw and method."""
    data = load_dataset(name)
    Y = to_dense_array(data.Y).astype(np.float64)
    n, q = Y.shape
    for draw in range(draws):
        noise = ClassConditionalNoise.sample(q, max_sum=0.6, random_state=draw)
        noisy = noise.corrupt(Y, random_state=100 + draw)
        P = out_of_fold_scores(data.X, noisy, seed=draw)
        rates = estimate_noise(Y_noisy=noisy, pred_proba=P)
        believed = {"known rates": noise, "estimated rates": rates, "estimated rates at their word": rates.noise}
        if from_features:
            believed[FROM_FEATURES] = estimate_noise(data.X, noisy, random_state=draw)
        scores = {method: suspicion(noisy, P, known) for method, known in believed.items()}
        if from_features:
            known = believed[FROM_FEATURES]
            scores[AS_AUDIT] = suspicion(noisy, within_noise(noisy, P, known.rho_pos, known.rho_neg), known)
        lists = label_lists(noisy)
        for method, settings in CLEANLAB.items():
            scores[method] = -np.asarray(get_label_quality_scores_per_class(lists, P, **settings))
        wrong = (noisy != Y).ravel()
        place = {"dataset": name, "n": n, "q": q, "draw": draw, "wrong": round(wrong.mean(), 4)}
        for method, values in scores.items():
            found = {"average_precision": average_precision_score(wrong, values.ravel())}
            if method not in CLEANLAB:
                listed, surest = values.ravel() >= 0.5, values.ravel() >= 0.95
                found |= {"listed": listed.sum(), "share_wrong": wrong[listed].mean()}
                found["mean_p_wrong"] = values.ravel()[listed].mean()
                found |= {"surest": surest.sum(), "surest_wrong": wrong[surest].mean()}
                found["surest_p_wrong"] = values.ravel()[surest].mean()
            yield {**place, "method": method, **{name: round(value, 4) for name, value in found.items()}}


def timings(quick: bool) -> list[Result]:
    """The same job for both: which entries are wrong, and all of them in order."""
    rng = np.random.default_rng(0)
    noise = ClassConditionalNoise.sample(50, max_sum=0.6, random_state=0)
    clean = rng.beta(0.4, 1.6, size=(20_000, 50))
    Y = noise.corrupt((rng.random(clean.shape) < clean).astype(np.int64), random_state=1)
    P = noise.rho_neg + (1 - noise.rho_pos - noise.rho_neg) * clean
    lists, ranked = label_lists(Y), {"return_indices_ranked_by": "self_confidence"}
    budget = 1.0 if quick else 12.0
    return [
        compare(
            "issues, n = 20,000, q = 50",
            lambda: find_label_issues(Y, P, noise),
            "cleanlab find_multilabel_issues_per_class",
            lambda: find_multilabel_issues_per_class(lists, P, n_jobs=1),
            budget,
        ),
        compare(
            "every entry in order, n = 20,000, q = 50",
            lambda: find_label_issues(Y, P, noise, min_p_wrong=0),
            "the same, each label's issues in order",
            lambda: find_multilabel_issues_per_class(lists, P, n_jobs=1, **ranked),
            budget,
        ),
    ]


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", type=Path, help="write the average precision of every draw here")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # estimated rates are upper bounds: what this benchmark is about
    draws, whole = (2, False) if options.quick else (5, True)
    rows = [row for name in DATASETS for row in precisions(name, draws, from_features=whole)]
    table = pd.DataFrame(rows)
    if options.csv is not None:
        table.astype({"listed": "Int64", "surest": "Int64"}).to_csv(options.csv, index=False)
    means = table.groupby(["dataset", "method"], sort=False).average_precision.mean().unstack("method").round(4)
    best = means[list(CLEANLAB)].max(axis=1)
    notes: dict[str, object] = {f"average precision, {name}": row.to_dict() for name, row in means.iterrows()}
    shares = ["share_wrong", "mean_p_wrong", "surest_wrong", "surest_p_wrong"]
    listed = table.dropna(subset="listed").groupby(["dataset", "method"], sort=False)[shares]
    notes |= {f"listed, {name}, {method}": row.to_dict() for (name, method), row in listed.mean().round(3).iterrows()}
    notes |= {f"ahead on every set, {ours}": bool((means[ours] > best).all()) for ours in OURS if ours in means}
    report(timings(options.quick), notes, options.json)


if __name__ == "__main__":
    main()
