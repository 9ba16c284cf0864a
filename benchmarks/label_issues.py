"""Compare find_label_issues with the multi-label scores of cleanlab: average precision and time.

    python benchmarks/label_issues.py            five draws of noise on four datasets (needs CCMN_DATA and cleanlab)
    python benchmarks/label_issues.py --quick    two draws per dataset, without rates estimated from features
    python benchmarks/label_issues.py --speed    timings only
    python benchmarks/label_issues.py --kinds results/label_issue_kinds.csv    nine kinds of noise on six datasets
    python benchmarks/label_issues.py --csv results/label_issues.csv    also writes every value

The noise rates of every label are sampled from 0.1 to 0.5 with a sum of at most 0.6. All methods receive the same noisy
labels and the same out-of-fold probabilities of a linear model, and rank all labels; flipped labels are the positive
class. ccmn uses

- the true rates ("known rates"),
- rates estimated from features and noisy labels ("rates from features", as in ccmn audit),
- labels and probabilities alone ("no rates").

For human annotation errors instead of injected noise, see real_noise.py.

For labels with an error probability of at least 0.5 and of at least 0.95, the fraction that is wrong is compared with
the mean error probability. Timings are for 20,000 rows and 50 labels.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from harness import KINDS, Result, compare, inject, parser, report
from scipy.special import expit
from sklearn.metrics import average_precision_score

from ccmn import ClassConditionalNoise, estimate_noise, find_label_issues
from ccmn._containers import to_dense_array
from ccmn.data import load_dataset
from ccmn.training.default_model import NoisyLabelModel

try:
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
    from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
except ImportError:
    sys.exit("This benchmark requires cleanlab: pip install cleanlab")

DATASETS = ("yeast", "scene", "enron", "mirflickr")
KIND_DATASETS = (*DATASETS, "tmc", "slashdot")
DECLARED = {"missing": "missing", "added": "partial"}
CLEANLAB = {
    "cleanlab self-confidence": {"method": "self_confidence"},
    "cleanlab normalized margin": {"method": "normalized_margin"},
    "cleanlab entropy": {"method": "confidence_weighted_entropy"},
    "cleanlab self-confidence, adjusted": {"method": "self_confidence", "adjust_pred_probs": True},
}
N_VERIFIED, N_SAMPLES = 200, 3
"""Number of verified rows of the comparison of kinds of noise, and number of random samples of them."""
FROM_FEATURES = "rates from features"
CCMN = ("known rates", FROM_FEATURES, "no rates")


def label_lists(Y: np.ndarray) -> list[list[int]]:
    """Return labels in the format of cleanlab."""
    return [np.flatnonzero(row).tolist() for row in Y]


def suspicions(Y: np.ndarray, pred_proba: np.ndarray, noise: object, trusted: object = None) -> np.ndarray:
    """Return the matrix of suspicions: error probabilities if the noise is known."""
    issues = find_label_issues(Y, pred_proba, noise, trusted, min_p_wrong=None if noise is trusted is None else 0)
    scores = np.empty(Y.shape)
    scores[issues.row, issues.label] = issues.suspicion
    return scores


def evaluate(name: str, n_draws: int, *, from_features: bool) -> Iterator[dict[str, object]]:
    """Yield one result per draw and method."""
    data = load_dataset(name)
    Y = to_dense_array(data.Y).astype(np.float64)
    n, q = Y.shape
    for draw in range(n_draws):
        noise = ClassConditionalNoise.sample(q, max_sum=0.6, random_state=draw)
        noisy = noise.corrupt(Y, random_state=100 + draw)
        P = expit(NoisyLabelModel(draw).fit(data.X, noisy).out_of_fold_log_odds(data.X))
        noises = {"known rates": noise, "no rates": None}
        if from_features:
            noises[FROM_FEATURES] = estimate_noise(data.X, noisy, random_state=draw)
        scores = {method: suspicions(noisy, P, used) for method, used in noises.items()}
        lists = label_lists(noisy)
        for method, settings in CLEANLAB.items():
            scores[method] = -np.asarray(get_label_quality_scores_per_class(lists, P, **settings))
        wrong = (noisy != Y).ravel()
        case = {"dataset": name, "n": n, "q": q, "draw": draw, "wrong": round(wrong.mean(), 4)}
        for method, matrix in scores.items():
            values = matrix.ravel()
            result = {"average_precision": average_precision_score(wrong, values)}
            if method not in CLEANLAB and noises[method] is not None:
                for threshold, suffix in ((0.5, ""), (0.95, "_95")):
                    listed = values >= threshold
                    result[f"listed{suffix}"] = listed.sum()
                    result[f"share_wrong{suffix}"] = wrong[listed].mean()
                    result[f"mean_p_wrong{suffix}"] = values[listed].mean()
            yield {**case, "method": method, **{name: round(value, 4) for name, value in result.items()}}


def evaluate_kinds(n_rows: int = 2500) -> Iterator[dict[str, object]]:
    """Yield one result per dataset, kind of noise and method, on a random sample of rows."""
    for name in KIND_DATASETS:
        data = load_dataset(name)
        for number, kind in enumerate(KINDS):
            rng = np.random.default_rng([number, 1])
            rows = rng.permutation(data.X.shape[0])[:n_rows]
            X, Y = data.X[rows], to_dense_array(data.Y)[rows].astype(np.float64)
            Y = Y[:, (Y.sum(0) >= 10) & ((1 - Y).sum(0) >= 10)]
            noisy = inject(kind, X, Y, rng).astype(np.float64)
            P = expit(NoisyLabelModel(0).fit(X, noisy).out_of_fold_log_odds(X))
            scores = {
                "self-confidence": suspicions(noisy, P, None),
            }
            if kind in DECLARED:
                rates = estimate_noise(X, noisy, noise_type=DECLARED[kind])
                scores["declared type"] = suspicions(noisy, P, rates)
            case = {"dataset": name, "kind": kind, "wrong": round((noisy != Y).mean(), 4)}
            for method, matrix in scores.items():
                yield {**case, "method": method, "sample": 0, **calibration(matrix, noisy != Y)}
            for sample in range(N_SAMPLES):
                verified = np.random.default_rng([number, 2, sample]).permutation(len(Y))[:N_VERIFIED]
                others = np.setdiff1d(np.arange(len(Y)), verified)
                learned = suspicions(noisy, P, None, (verified, Y[verified]))
                values = calibration(learned[others], (noisy != Y)[others])
                yield {**case, "method": f"{N_VERIFIED} verified rows", "sample": sample, **values}


def calibration(scores: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Return average precision and calibration of error probabilities."""
    scores, wrong = scores.ravel(), wrong.ravel()
    listed = scores >= 0.5
    result = {
        "average_precision": average_precision_score(wrong, scores) if wrong.any() else np.nan,
        "listed": listed.sum(),
        "share_wrong": wrong[listed].mean() if listed.any() else np.nan,
        "mean_p_wrong": scores[listed].mean() if listed.any() else np.nan,
        "brier": ((scores - wrong) ** 2).mean(),
        "brier_of_base_rate": wrong.mean() * (1 - wrong.mean()),
    }
    return {key: round(value, 4) for key, value in result.items()}


def report_kinds(path: Path, as_json: bool) -> None:
    """Write the results of all kinds of noise; print average precisions and the calibration over all datasets.

    "largest_error" is the largest absolute difference of mean_p_wrong and share_wrong over the datasets, each pooled
    over the samples of verified rows; "brier_ratio" the largest ratio of the Brier score to that of the base rate.
    """
    table = pd.DataFrame(evaluate_kinds())
    table.to_csv(path, index=False)
    weighted = table.assign(hits=table.listed * table.share_wrong, sums=table.listed * table.mean_p_wrong)
    groups = weighted.groupby(["kind", "method"], sort=False)
    totals = groups[["listed", "hits", "sums"]].sum()
    summary = pd.DataFrame(
        {
            "average_precision": groups.average_precision.mean(),
            "listed": totals.listed,
            "share_wrong": totals.hits / totals.listed,
            "mean_p_wrong": totals.sums / totals.listed,
        }
    )
    by_set = weighted.groupby(["kind", "method", "dataset"], sort=False)
    sums, means = by_set[["listed", "hits", "sums"]].sum(), by_set[["brier", "brier_of_base_rate"]].mean()
    errors = ((sums.sums - sums.hits).abs() / sums.listed).groupby(level=[0, 1]).max()
    ratios = (means.brier / means.brier_of_base_rate).groupby(level=[0, 1]).max()
    summary = summary.assign(largest_error=errors, brier_ratio=ratios).round(3)
    print(summary.reset_index().to_json(orient="records") if as_json else summary.to_string())


def timings(quick: bool) -> list[Result]:
    """Compare the times for listing issues and for ranking all labels."""
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
            "all labels ranked, n = 20,000, q = 50",
            lambda: find_label_issues(Y, P),
            "cleanlab, issues of each label ranked",
            lambda: find_multilabel_issues_per_class(lists, P, n_jobs=1, **ranked),
            budget,
        ),
    ]


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", type=Path, metavar="FILE", help="write the results of every draw to this file")
    arguments.add_argument("--speed", action="store_true", help="measure the time only")
    arguments.add_argument("--kinds", type=Path, metavar="FILE", help="measure nine kinds of noise only; write to FILE")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.kinds is not None:
        warnings.simplefilter("ignore")  # rates of some labels are poorly identified
        report_kinds(options.kinds, options.json)
        return
    if options.speed:
        report(timings(options.quick), {}, options.json)
        return
    warnings.simplefilter("ignore")  # rates of some labels are poorly identified
    n_draws, from_features = (2, False) if options.quick else (5, True)
    rows = [row for name in DATASETS for row in evaluate(name, n_draws, from_features=from_features)]
    table = pd.DataFrame(rows)
    if options.csv is not None:
        table.astype({"listed": "Int64", "listed_95": "Int64"}).to_csv(options.csv, index=False)
    means = table.groupby(["dataset", "method"], sort=False).average_precision.mean().unstack("method").round(4)
    best = means[list(CLEANLAB)].max(axis=1)
    notes: dict[str, object] = {f"average precision, {name}": row.to_dict() for name, row in means.iterrows()}
    shares = ["share_wrong", "mean_p_wrong", "share_wrong_95", "mean_p_wrong_95"]
    listed = table.dropna(subset="listed").groupby(["dataset", "method"], sort=False)[shares]
    notes |= {f"listed, {name}, {method}": row.to_dict() for (name, method), row in listed.mean().round(3).iterrows()}
    notes |= {f"better than cleanlab on all data, {m}": bool((means[m] > best).all()) for m in CCMN if m in means}
    report(timings(options.quick), notes, options.json)


if __name__ == "__main__":
    main()
