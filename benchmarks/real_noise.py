"""Measure the audit on human labels for which better reference labels are known.

    python benchmarks/real_noise.py            20 draws of the verified rows, results/real_noise.csv (needs CCMN_DATA)
    python benchmarks/real_noise.py --quick    two draws on the smallest dataset

Data: ``CCMN_DATA/real``. Every NAME.npz has the better labels ``Y_true`` (n, q) and noisy variants; NAME.csv
has the column ``text``. The better labels are majorities of other annotators (cmc: of all three), and contain errors.
Entries on which these annotators are evenly split (``tied``) count neither as verified nor in any score.

Features: TF-IDF of words and word pairs (for German and Portuguese also of 2 to 4 characters), 150 SVD components, unit
variance. All scores use the same out-of-fold probabilities of the library's model of noisy labels; for ecg, which has
no features, those of network 0. Rows with verified labels are left out of the scores. Methods:

- "self-confidence": 1 - P(given label | x), the default score of cleanlab.
- "ccmn": ``find_label_issues`` with 0, 50 or 200 random verified rows; "ccmn, annotators" also with ``groups``.

Metrics: average precision of finding the wrong labels, and for verified rows the sum of ``p_wrong`` over the number of
wrong labels, and the share of wrong labels among those with ``p_wrong`` >= .5.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from harness import machine, parser, save
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score

from ccmn import audit_labels, find_label_issues

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "real_noise"
VARIANTS = {"cmc": ("Y_any", "Y_company1", "Y_company3"), "ecg": ("Y_medical_students",)}
"""Variants of a dataset, if not all. Company 2 of cmc is left out: .6 % of its labels differ from the majority."""
WITH_CHARACTERS = ("deu", "ptbr")
"""Datasets whose features include character sequences."""
N_TRUSTED = (50, 200)
METRICS = ("average_precision", "sum_ratio", "share_wrong")


class Task(NamedTuple):
    """Features (None for ecg), noisy labels and better labels."""

    X: np.ndarray | None
    noisy: np.ndarray
    true: np.ndarray


def data_folder() -> Path:
    folder = Path(os.environ.get("CCMN_DATA", "")) / "real"
    if "CCMN_DATA" not in os.environ or not folder.is_dir():
        sys.exit("This benchmark requires the folder CCMN_DATA/real")
    return folder


def read(name: str, *arrays: str) -> list[np.ndarray | None]:
    """Return arrays of a dataset, None where it does not have them."""
    with np.load(data_folder() / f"{name}.npz") as file:
        return [file[array] if array in file.files else None for array in arrays]


def variants(folder: Path) -> list[tuple[str, str]]:
    """Return all pairs (dataset, noisy variant)."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            names = [name for name in file.files if name.startswith("Y_") and name != "Y_true"]
        found += [(path.stem, name) for name in VARIANTS.get(path.stem, names)]
    return found


def stored(name: str, compute) -> np.ndarray:
    """Return an array that is computed once."""
    path = CACHE / f"{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, compute())
    return np.load(path)


def features(name: str) -> np.ndarray:
    """Return the features of a dataset."""

    def compute() -> np.ndarray:
        texts = pd.read_csv(data_folder() / f"{name}.csv", usecols=["text"]).text.fillna("").astype(str)
        parts = [TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True).fit_transform(texts)]
        if name in WITH_CHARACTERS:
            vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(2, 4), min_df=3, sublinear_tf=True)
            parts.append(vectorizer.fit_transform(texts))
        reduced = TruncatedSVD(150, random_state=0).fit_transform(scipy.sparse.hstack(parts).tocsr())
        return (reduced - reduced.mean(0)) / reduced.std(0)

    return stored(name, compute)


def load(name: str, variant: str) -> Task:
    noisy, true = read(name, variant, "Y_true")
    return Task(None if name == "ecg" else features(name), noisy.astype(np.float64), true.astype(np.float64))


def evaluate(name: str, variant: str, n_draws: int) -> Iterator[tuple[object, ...]]:
    """Yield draw, number of verified rows, method, metric and value."""
    X, noisy, true = load(name, variant)
    tied, groups, networks = read(name, "tied", "annotator", "scores")
    if networks is not None:
        P = networks[:, 0].astype(np.float64)
    else:
        P = stored(f"{name}-{variant}", lambda: audit_labels(X, noisy).pred_proba)
    true = np.where(np.zeros(true.shape) if tied is None else tied, np.nan, true)
    methods = {"ccmn": None} | ({"ccmn, annotators": groups} if variant == "Y_one_annotator" else {})
    for draw in range(n_draws):
        order = np.random.default_rng([draw, 1]).permutation(len(noisy))
        for k in (0, *N_TRUSTED) if draw == 0 else N_TRUSTED:
            rows, others = order[:k], order[k:]
            scored = ~np.isnan(true[others])
            wrong = (noisy != true)[others][scored]
            confidence = np.abs(noisy - P)[others][scored]
            yield draw, k, "self-confidence", "average_precision", average_precision_score(wrong, confidence)
            knowledge = {"trusted": (rows, true[rows]), "min_p_wrong": 0} if k else {}
            for method, annotators in methods.items():
                issues = find_label_issues(noisy, P, groups=annotators, **knowledge)
                scores = np.zeros(noisy.shape)
                scores[issues.row, issues.label] = issues.suspicion
                scores = scores[others][scored]
                yield draw, k, method, "average_precision", average_precision_score(wrong, scores)
                if k:
                    yield draw, k, method, "sum_ratio", scores.sum() / wrong.sum()
                    yield draw, k, method, "share_wrong", wrong[scores >= 0.5].mean()


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """Return means over the draws, and how many draws have a sum of p_wrong within .7 to 1.4 of the number wrong."""
    groups = table.groupby(["dataset", "variant", "trusted", "method", "metric"], sort=False).value
    means = groups.mean().unstack("metric").reindex(columns=list(METRICS))
    within = groups.agg(lambda v: ((v >= 0.7) & (v <= 1.4)).sum()).unstack("metric").sum_ratio
    return means.assign(draws_within=within.where(means.sum_ratio.notna())).round(3)


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--draws", type=int, default=20, help="number of draws of the verified rows")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")  # poorly identified rates are what is measured
    chosen = [("cmc", "Y_company3")] if options.quick else variants(data_folder())
    n_draws = 2 if options.quick else options.draws
    rows = [(*pair, *value) for pair in chosen for value in evaluate(*pair, n_draws)]
    table = pd.DataFrame(rows, columns=["dataset", "variant", "draw", "trusted", "method", "metric", "value"])
    if not options.quick:
        save(table.round({"value": 4}), ROOT / "results" / "real_noise.csv")
    summary = summarize(table)
    if options.json:
        print(
            json.dumps({"machine": machine(), "results": json.loads(summary.reset_index().to_json(orient="records"))})
        )
    else:
        print(summary.to_string())


if __name__ == "__main__":
    main()
