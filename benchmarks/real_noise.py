"""Measure audit, noise rates and training on human labels for which better reference labels are known.

    python benchmarks/real_noise.py                    all parts, five splits, results/real_noise.csv (needs CCMN_DATA)
    python benchmarks/real_noise.py --quick              one split of one variant of the smallest dataset
    python benchmarks/real_noise.py --part audit --jobs 16 --csv audit.csv        one part in 16 processes
    python benchmarks/real_noise.py --part votes --csv results/real_noise_votes.csv

Data: ``CCMN_DATA/real``. Every NAME.npz contains the better labels ``Y_true`` (n, q) and one or more noisy variants
``Y_...`` (n, q); NAME.csv contains the column ``text``. Add a set by adding two such files. The better labels are
majorities of other annotators, so they contain errors as well.

Features: TF-IDF of words and word pairs (for German and Portuguese also of 2 to 4 characters), 150 SVD components, unit
variance. Parts:

- "audit": average precision of finding wrong labels among all labels (rows without trusted ones), and calibration of
  ``p_wrong``. All methods use the same out-of-fold probabilities of logistic regressions. "self-confidence" is
  1 - P(given label | x), the default score of cleanlab. "posterior at counted rates" uses the better labels.
- "texts": the same for "ccmn audit", which starts from the texts and uses its own probabilities, and for the posterior
  at the rates that it estimates.
- "rates": mean absolute error of both rates, and coverage and mean length of their 90 % intervals, on 80 % of the rows
  with 0 and 200 trusted ones. The reference are the rates counted against the better labels. Labels with fewer than 10
  true positives are left out.
- "training": Hamming loss, mean average precision of the labels, micro- and macro-F1 on the better labels of the other
  20 % of the rows.
- "votes": audit of the majority of 2 (ptbr) or 3 votes per row; a label is wrong if it differs from the majority of the
  hidden votes. "ccmn, votes" uses the share of dissenting votes; "infer_labels" is its error probability with features.

Each cell (part, dataset, variant, split) is computed once: values in the CSV file are not computed again, unless their
part is named by ``--rerun``. Features and probabilities are stored in ``build/real_noise``.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from harness import machine, parser
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import KFold

from ccmn import (
    ClassConditionalNoise,
    CorrectedClassifier,
    estimate_noise,
    find_label_issues,
    infer_labels,
)
from ccmn.audit import audit_labels
from ccmn.audit.error_model import p_wrong
from ccmn.data.columns import Columns

try:
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
except ImportError:
    find_multilabel_issues_per_class = None

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "real_noise"
RESULTS = ROOT / "results" / "real_noise.csv"
VARIANTS = {"cmc": ("Y_any", "Y_company1", "Y_company3")}
"""Variants of a dataset, if not all. Company 2 of cmc is left out: .6 % of its labels differ from the majority."""
WITH_CHARACTERS = ("deu", "ptbr")
"""Datasets whose features include character sequences."""
C_GRID = (0.001, 0.01, 0.1)
"""Inverse l2 penalties of logistic regressions; each label uses the one with the smallest out-of-fold log-loss."""
N_TRUSTED = (50, 200)
MIN_POSITIVES = 10
KEY = ["part", "dataset", "variant", "split"]
COLUMNS = [*KEY, "trusted", "method", "metric", "value"]


class Cell(NamedTuple):
    """Unit of work: one part on one split of one variant."""

    part: str
    dataset: str
    variant: str
    split: int


class Task(NamedTuple):
    """Features, noisy labels and better labels."""

    X: np.ndarray
    noisy: np.ndarray
    true: np.ndarray


Value = tuple[int, str, str, float]
"""Number of trusted rows, method, metric, value."""


def data_folder() -> Path:
    folder = Path(os.environ.get("CCMN_DATA", "")) / "real"
    if "CCMN_DATA" not in os.environ or not folder.is_dir():
        sys.exit("This benchmark requires the folder CCMN_DATA/real")
    return folder


def variants(folder: Path) -> list[tuple[str, str]]:
    """Return all pairs (dataset, noisy variant)."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            names = [name for name in file.files if name.startswith("Y_") and name != "Y_true"]
        found += [(path.stem, name) for name in VARIANTS.get(path.stem, names)]
    return found


def features(name: str) -> np.ndarray:
    """Return the features of a dataset, computed once."""
    path = CACHE / f"{name}.npy"
    if not path.exists():
        texts = pd.read_csv(data_folder() / f"{name}.csv", usecols=["text"]).text.fillna("").astype(str)
        parts = [TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True).fit_transform(texts)]
        if name in WITH_CHARACTERS:
            vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(2, 4), min_df=3, sublinear_tf=True)
            parts.append(vectorizer.fit_transform(texts))
        reduced = TruncatedSVD(150, random_state=0).fit_transform(scipy.sparse.hstack(parts).tocsr())
        store(path, (reduced - reduced.mean(0)) / reduced.std(0))
    return np.load(path)


def store(path: Path, values: np.ndarray) -> None:
    """Write an array so that other processes see the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_suffix(f".{os.getpid()}.npy")
    np.save(own, values)
    own.replace(path)


def annotators_of(name: str) -> np.ndarray | None:
    with np.load(data_folder() / f"{name}.npz") as file:
        return file["annotator"] if "annotator" in file.files else None


def load(name: str, variant: str) -> Task:
    with np.load(data_folder() / f"{name}.npz") as file:
        return Task(features(name), file[variant].astype(np.float64), file["Y_true"].astype(np.float64))


def fit_predict(X: np.ndarray, Y: np.ndarray, X_test: np.ndarray, C: float) -> np.ndarray:
    """Return probabilities of logistic regressions of every label; the observed share if a label is constant."""
    P = np.empty((len(X_test), Y.shape[1]))
    for j, y in enumerate(Y.T):
        if y.min() == y.max():
            P[:, j] = (y.sum() + 0.5) / (y.size + 1)
        else:
            P[:, j] = LogisticRegression(C=C, max_iter=200, tol=1e-3).fit(X, y).predict_proba(X_test)[:, 1]
    return P


def log_loss(Y: np.ndarray, P: np.ndarray) -> np.ndarray:
    P = np.clip(P, 1e-6, 1 - 1e-6)
    return -(Y * np.log(P) + (1 - Y) * np.log(1 - P)).mean(0)


def out_of_fold(X: np.ndarray, Y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return five-fold out-of-fold probabilities at the best C of every label, and the position of C in its grid."""
    folds = list(KFold(5, shuffle=True, random_state=seed).split(X))
    P = np.empty((len(C_GRID), *Y.shape))
    for i, C in enumerate(C_GRID):
        for train, test in folds:
            P[i, test] = fit_predict(X[train], Y[train], X[test], C)
    best = np.stack([log_loss(Y, values) for values in P]).argmin(0)
    return np.take_along_axis(P, best[None, None], 0)[0], best


def logistic_regression(X: np.ndarray, Y: np.ndarray, X_test: np.ndarray) -> np.ndarray:
    """Return test probabilities of logistic regressions whose penalty is selected by cross-validation."""
    _, best = out_of_fold(X, Y, 0)
    fits = np.stack([fit_predict(X, Y, X_test, C) for C in C_GRID])
    return np.take_along_axis(fits, best[None, None], 0)[0]


def shared_probabilities(cell: Cell, task: Task) -> np.ndarray:
    path = CACHE / f"{cell.dataset}-{cell.variant}-{cell.split}.npy"
    if not path.exists():
        store(path, out_of_fold(task.X, task.noisy, cell.split)[0])
    return np.load(path)


def error_probabilities(issues: pd.DataFrame, shape: tuple[int, int]) -> np.ndarray:
    scores = np.full(shape, np.nan)
    scores[issues.row, issues.label] = issues.suspicion
    return scores


def audit_values(scores: np.ndarray, wrong: np.ndarray, *, calibrated: bool = True) -> Iterator[tuple[str, float]]:
    """Yield average precision and, for error probabilities, their calibration."""
    scores, wrong = scores.ravel(), wrong.ravel()
    yield "average_precision", average_precision_score(wrong, scores)
    if not calibrated:
        return
    listed = scores >= 0.5
    yield "listed", listed.sum()
    yield "share_wrong", wrong[listed].mean() if listed.any() else np.nan
    yield "mean_p_wrong", scores[listed].mean() if listed.any() else np.nan
    yield "brier", ((scores - wrong) ** 2).mean()
    yield "brier_of_base_rate", wrong.mean() * (1 - wrong.mean())


def sampled_rows(n: int, size: int, split: int) -> np.ndarray:
    """Return a random sample of rows; larger samples of a split contain the smaller ones."""
    return np.random.default_rng([split, 1]).permutation(n)[:size]


def run_audit(cell: Cell) -> Iterator[Value]:
    task = load(cell.dataset, cell.variant)
    noisy, wrong, n = task.noisy, task.noisy != task.true, len(task.X)
    P = shared_probabilities(cell, task)
    confidence = np.where(noisy == 1, 1 - P, P)
    scores = error_probabilities(find_label_issues(noisy, P), noisy.shape)
    yield 0, "base rate", "share_wrong", wrong.mean()
    yield from ((0, "self-confidence", *value) for value in audit_values(confidence, wrong))
    yield from ((0, "ccmn", *value) for value in audit_values(scores, wrong, calibrated=False))
    posterior = p_wrong(noisy, P, *limited_rates(*flip_rates(noisy, task.true)))
    yield from ((0, "posterior at counted rates", *value) for value in audit_values(posterior, wrong))
    for k in N_TRUSTED:
        rows = sampled_rows(n, k, cell.split)
        others = np.setdiff1d(np.arange(n), rows)
        issues = find_label_issues(noisy, P, trusted=(rows, task.true[rows]), min_p_wrong=0)
        learned = error_probabilities(issues, noisy.shape)
        yield from ((k, "ccmn", *value) for value in audit_values(learned[others], wrong[others]))
        if (annotators := annotators_of(cell.dataset)) is not None:
            settings = {"trusted": (rows, task.true[rows]), "groups": annotators, "min_p_wrong": 0}
            learned = error_probabilities(find_label_issues(noisy, P, **settings), noisy.shape)
            yield from ((k, "ccmn, annotators", *value) for value in audit_values(learned[others], wrong[others]))
        same_rows = audit_values(confidence[others], wrong[others], calibrated=False)
        yield from ((k, "self-confidence", *value) for value in same_rows)


def run_texts(cell: Cell) -> Iterator[Value]:
    """Yield the results of ``ccmn audit NAME.csv --text text`` on the labels of the variant."""
    task = load(cell.dataset, cell.variant)
    wrong = task.noisy != task.true
    _, data = Columns.from_training_data(data_folder() / f"{cell.dataset}.csv", "label_*", "text")
    found = audit_labels(data.X, task.noisy, random_state=cell.split)
    own = error_probabilities(found.issues, wrong.shape)
    declared = audit_labels(
        data.X, task.noisy, "both", min_p_wrong=0, pred_proba=found.pred_proba, random_state=cell.split
    )
    posterior = error_probabilities(declared.issues, wrong.shape)
    yield from ((0, "ccmn audit", *value) for value in audit_values(own, wrong, calibrated=False))
    yield from ((0, "posterior at its rates", *value) for value in audit_values(posterior, wrong))


def train_and_test(cell: Cell, n: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng([cell.split, 2]).permutation(n)
    return order[n // 5 :], order[: n // 5]


def run_rates(cell: Cell) -> Iterator[Value]:
    task = load(cell.dataset, cell.variant)
    train, _ = train_and_test(cell, len(task.X))
    X, noisy, true = (part[train] for part in task)
    counted = flip_rates(noisy, true)
    used = (true.sum(0) >= MIN_POSITIVES) & ((1 - true).sum(0) >= MIN_POSITIVES)
    for k in (0, max(N_TRUSTED)):
        rows = sampled_rows(len(X), k, cell.split)
        rates = estimate_noise(X, noisy, trusted=(rows, true[rows]) if k else None, random_state=cell.split)
        for name, value, interval, reference in zip(
            ("rho_pos", "rho_neg"), (rates.rho_pos, rates.rho_neg), (rates.ci_pos, rates.ci_neg), counted
        ):
            covered = (interval[:, 0] <= reference) & (reference <= interval[:, 1])
            yield k, "estimate_noise", f"error_{name}", np.abs(value - reference)[used].mean()
            yield k, "estimate_noise", f"bias_{name}", (value - reference)[used].mean()
            yield k, "estimate_noise", f"coverage_{name}", covered[used].mean()
            yield k, "estimate_noise", f"length_{name}", np.diff(interval)[used].mean()


def flip_rates(noisy: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of true ones that are missing and of true zeros that are added."""
    missing, added = ((true == 1) & (noisy == 0)).sum(0), ((true == 0) & (noisy == 1)).sum(0)
    return missing / np.maximum(true.sum(0), 1), added / np.maximum((1 - true).sum(0), 1)


def limited_rates(rho_pos: np.ndarray, rho_neg: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rates scaled so that no sum exceeds .95: one company of cmc never uses some labels."""
    scale = np.minimum(1, 0.95 / np.maximum(rho_pos + rho_neg, 1e-9))
    return rho_pos * scale, rho_neg * scale


def run_training(cell: Cell) -> Iterator[Value]:
    task = load(cell.dataset, cell.variant)
    train, test = train_and_test(cell, len(task.X))
    X, noisy, true = (part[train] for part in task)
    X_test, Y_test = task.X[test], task.true[test]

    def classifier(noise: object, k: int = 0) -> tuple[np.ndarray, np.ndarray]:
        rows = sampled_rows(len(X), k, cell.split)
        model = CorrectedClassifier(noise=noise, random_state=cell.split)
        model.fit(X, noisy, trusted=(rows, true[rows]) if k else None)
        return model.decision_function(X_test), model.predict(X_test)

    def regression(Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        P = logistic_regression(X, Y, X_test)
        return P, P >= 0.5

    methods: list[tuple[int, str, Callable[[], tuple[np.ndarray, np.ndarray]]]] = [
        (0, "logistic regression", lambda: regression(noisy)),
        (0, "better labels", lambda: regression(true)),
        (0, "ccmn without correction", lambda: classifier(None)),
        (0, "ccmn", lambda: classifier("both")),
        *((k, "ccmn", lambda k=k: classifier("both", k)) for k in N_TRUSTED),
        (0, "ccmn, counted rates", lambda: classifier(ClassConditionalNoise.from_pairs(true, noisy))),
    ]
    if find_multilabel_issues_per_class is not None:
        methods.append((0, "cleanlab flips", lambda: regression(cleanlab_flips(X, noisy, cell.split))))
    for k, method, predict in methods:
        scores, predicted = predict()
        yield from ((k, method, *value) for value in test_values(Y_test, scores, np.asarray(predicted, dtype=int)))


def cleanlab_flips(X: np.ndarray, noisy: np.ndarray, seed: int) -> np.ndarray:
    """Return the labels with every label flipped that cleanlab reports as an issue."""
    lists = [np.flatnonzero(row).tolist() for row in noisy]
    issues = find_multilabel_issues_per_class(lists, out_of_fold(X, noisy, seed)[0], n_jobs=1)
    return np.where(np.asarray(issues), 1 - noisy, noisy)


def test_values(Y: np.ndarray, scores: np.ndarray, predicted: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yield the metrics of scores and predictions on the better labels."""
    used = (Y.sum(0) > 0) & (Y.sum(0) < len(Y))
    yield "hamming_loss", (predicted != Y).mean()
    yield "mean_ap", average_precision_score(Y[:, used], scores[:, used], average="macro")
    yield "micro_f1", f1_score(Y, predicted, average="micro", zero_division=0)
    yield "macro_f1", f1_score(Y[:, used], predicted[:, used], average="macro", zero_division=0)


def run_votes(cell: Cell) -> Iterator[Value]:
    with np.load(data_folder() / f"{cell.dataset}.npz") as file:
        if "votes" not in file.files:
            return
        all_votes = np.where(file["votes"] < 0, np.nan, file["votes"]).astype(np.float64)
    rng = np.random.default_rng([cell.split, 4])
    # Annotators of a row in random order; those who did not vote come last.
    order = np.argsort(np.where(np.isnan(all_votes[:, :, 0]), np.inf, rng.random(all_votes.shape[:2])), axis=1)
    shown = 2 if cell.dataset == "ptbr" else 3
    is_shown = np.zeros(all_votes.shape[:2], dtype=bool)
    np.put_along_axis(is_shown, order[:, :shown], True, 1)
    votes = np.where(is_shown[:, :, None], all_votes, np.nan)
    noisy = (np.nanmean(votes, 1) > 0.5).astype(np.float64)
    true = (np.nanmean(np.where(is_shown[:, :, None], np.nan, all_votes), 1) > 0.5).astype(np.float64)
    X, wrong, n = features(cell.dataset), noisy != true, len(noisy)
    P = out_of_fold(X, noisy, cell.split)[0]
    inferred = infer_labels(votes, X, cell.split).proba
    for k in N_TRUSTED:
        rows = sampled_rows(n, k, cell.split)
        others = np.setdiff1d(np.arange(n), rows)
        for method, known in (("ccmn", None), ("ccmn, votes", votes)):
            issues = find_label_issues(noisy, P, trusted=(rows, true[rows]), min_p_wrong=0, votes=known)
            scores = error_probabilities(issues, noisy.shape)[others]
            yield from ((k, method, *value) for value in audit_values(scores, wrong[others]))
        for method, proba in (("self-confidence", P), ("infer_labels", inferred)):
            scores = np.where(noisy == 1, 1 - proba, proba)[others]
            yield from ((k, method, *value) for value in audit_values(scores, wrong[others]))


PARTS: dict[str, Callable[[Cell], Iterator[Value]]] = {
    "audit": run_audit,
    "texts": run_texts,
    "rates": run_rates,
    "training": run_training,
    "votes": run_votes,
}


def run(cell: Cell) -> pd.DataFrame:
    """Return all values of a cell; called in worker processes."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # poorly identified rates are what is measured
    rows = [(*cell, *value) for value in PARTS[cell.part](cell)]
    return pd.DataFrame(rows, columns=COLUMNS).round({"value": 5})


def finished(path: Path, rerun: list[str]) -> pd.DataFrame:
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    table = pd.read_csv(path)
    return table[~table.part.isin(rerun)]


def run_all(cells: list[Cell], done: pd.DataFrame, path: Path | None, jobs: int) -> pd.DataFrame:
    """Run cells in parallel processes and write the table after each of them."""
    known = set(done[KEY].itertuples(index=False, name=None))
    tables = [done] if len(done) else []
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pending = {pool.submit(run, cell): cell for cell in cells if tuple(cell) not in known}
        for i, future in enumerate(as_completed(pending), 1):
            tables.append(future.result())
            print(f"{i}/{len(pending)} {' '.join(map(str, pending[future]))}", file=sys.stderr, flush=True)
            if path is not None:
                own = path.with_suffix(".partial")
                sort(pd.concat(tables)).to_csv(own, index=False)
                own.replace(path)
    return sort(pd.concat(tables))


def sort(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(KEY, kind="stable", ignore_index=True)


def summarize(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return mean and standard error over the splits: one entry per part, metric and method."""
    groups = table.groupby(["part", "metric", "trusted", "method", "dataset", "variant"], sort=False).value
    text = groups.agg(lambda v: f"{v.mean():.3f} ({v.std(ddof=1) / np.sqrt(v.count()) if v.count() > 1 else 0:.3f})")
    summary: dict[str, dict[str, str]] = {}
    for (part, metric, trusted, method, dataset, variant), value in text.items():
        name = f"{part}, {metric}: {method}" + (f", {trusted} trusted rows" if trusted else "")
        summary.setdefault(name, {})[f"{dataset} {variant.removeprefix('Y_')}"] = value
    return dict(sorted(summary.items()))


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--part", action="append", choices=tuple(PARTS), help="run this part; default: all")
    arguments.add_argument("--rerun", action="append", default=[], choices=tuple(PARTS), help="discard stored values")
    arguments.add_argument("--dataset", action="append", help="use this dataset; default: all")
    arguments.add_argument("--splits", type=int, default=5, help="number of splits")
    arguments.add_argument("--jobs", type=int, default=1, help="number of processes")
    arguments.add_argument("--csv", type=Path, default=RESULTS, metavar="FILE", help="table to complete")
    options = arguments.parse_args()
    chosen = [pair for pair in variants(data_folder()) if not options.dataset or pair[0] in options.dataset]
    parts, splits, path = options.part or list(PARTS), options.splits, options.csv
    if options.quick:
        chosen, splits, path = [("cmc", "Y_company3")], 1, None
        parts = options.part or ["audit"]
    if find_multilabel_issues_per_class is None:
        print("cleanlab is not installed: the rows 'cleanlab flips' are left out", file=sys.stderr)
    for name in sorted({name for name, _ in chosen}):
        features(name)
    cells = [Cell(part, *pair, split) for split in range(splits) for part in parts for pair in chosen]
    done = finished(path, options.rerun) if path is not None else pd.DataFrame(columns=COLUMNS)
    summary = summarize(run_all(cells, done, path, options.jobs))
    if options.json:
        print(json.dumps({"machine": machine(), "threads": 1, **summary}))
        return
    print(f"{machine()}; mean (standard error) over splits")
    for name, values in summary.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in values.items()))


if __name__ == "__main__":
    main()
