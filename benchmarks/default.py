"""Compare the default classifier with what a user would choose instead, over kinds of noise and datasets.

    python benchmarks/default.py               all cells that are not in results/default.csv, then the tables
    python benchmarks/default.py --timing      cost, against ``LogisticRegressionCV`` in the same run

Every cell is a dataset, a kind of noise (``harness.inject``; "human": labels of one annotator or coder,
CCMN_DATA/real) and a random split with up to 1,500 training and 1,500 test rows. Test labels are true labels; entries
on which the other annotators are evenly split are left out. All methods see the same noisy training labels. "logistic
regression" is one-vs-rest with l2 by 3-fold cross-validation of the log loss on standardized features.

Metrics are computed over all labels, and over the labels that the features predict (those without the flag
"unpredicted"). slashdot was used to choose nothing but the deviation of ``slope`` (DefaultSettings).
"""

from __future__ import annotations

import json
import os
import time
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import real_noise
import scipy.sparse
from harness import Result, cost_of, inject, parser, report, save
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import average_precision_score, label_ranking_average_precision_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from ccmn import ClassConditionalNoise, CorrectedClassifier, estimate_noise
from ccmn.data import load_dataset

RESULTS = Path(__file__).resolve().parents[1] / "results" / "default.csv"
DATASETS = ("yeast", "scene", "enron", "tmc", "mirflickr", "slashdot")
HUMAN = ("deu", "ptbr", "relex", "cmc")
KINDS = ("clean", "two-sided", "missing", "added", "human")
DECLARED = {"missing": "missing", "added": "partial"}
MAX_ROWS = 1500
MIN_POSITIVES = 10
METRICS = ("hamming_loss", "lrap", "mean_ap", "log_loss")
COMPARED = ("default", "logistic regression")
"""Methods that are also scored on the labels that the features predict."""
KEY = ["dataset", "kind", "seed"]


class Cell(NamedTuple):
    dataset: str
    kind: str
    seed: int


class Task(NamedTuple):
    """Training rows with noisy and true labels, test rows with true labels (NaN: not scored)."""

    X: object
    noisy: np.ndarray
    true: np.ndarray
    X_test: object
    Y_test: np.ndarray


@cache
def read(name: str) -> tuple[object, np.ndarray, np.ndarray | None]:
    """Return features, true labels (NaN: unknown) and, if there are any, noisy labels of people."""
    if name not in HUMAN:
        data = load_dataset(name)
        return data.X, np.asarray(data.Y).astype(float), None
    variant = next(v for n, v in real_noise.variants(real_noise.data_folder()) if n == name and v != "Y_any")
    X, noisy, true = real_noise.load(name, variant)
    with np.load(real_noise.data_folder() / f"{name}.npz") as file:
        if "tied" in file.files:
            true = np.where(file["tied"], np.nan, true)
    return X, true, noisy


def make_task(cell: Cell, max_rows: int = MAX_ROWS) -> Task:
    """Split a dataset and add noise to the training labels."""
    X, Y, noisy = read(cell.dataset)
    rng = np.random.default_rng([cell.seed, *map(ord, cell.dataset + cell.kind)])
    order = np.random.default_rng([cell.seed, *map(ord, cell.dataset)]).permutation(len(Y))
    size = min(max_rows, 2 * len(Y) // 3)
    train, test = np.sort(order[:size]), np.sort(order[size : size + max_rows])
    kept = np.nansum(Y[train], 0) >= MIN_POSITIVES
    if cell.kind == "human":
        kept &= noisy[train].sum(0) >= 3
        labels = noisy[train][:, kept].astype(int)
    else:
        labels = inject(cell.kind, X[train], np.nan_to_num(Y[train][:, kept]).astype(int), rng)
    return Task(X[train], labels, Y[train][:, kept], X[test], Y[test][:, kept])


# -- Methods


def scaled(X: object, X_test: object) -> tuple[object, object]:
    if scipy.sparse.issparse(X):
        return X, X_test
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test)


def one_vs_rest(model: object, X: object, Y: np.ndarray, X_test: object) -> np.ndarray:
    """Return P(label = 1) of test rows; a label with fewer than 3 ones or zeros gets its frequency."""
    P = np.tile((Y.sum(0) + 0.5) / (len(Y) + 1), (X_test.shape[0], 1))
    possible = np.minimum(Y.sum(0), len(Y) - Y.sum(0)) >= 3
    if possible.any():
        P[:, possible] = OneVsRestClassifier(model).fit(X, Y[:, possible]).predict_proba(X_test)
    return P


def logistic_regression(X: object, Y: np.ndarray, X_test: object) -> np.ndarray:
    model = LogisticRegressionCV(Cs=6, cv=3, scoring="neg_log_loss", max_iter=200)
    features, test_features = scaled(X, X_test)
    return one_vs_rest(model, features, Y, test_features)


def counted(task: Task) -> ClassConditionalNoise:
    """Return the noise model with the observed shares of flips."""
    return ClassConditionalNoise.from_pairs(task.true, np.where(np.isnan(task.true), np.nan, task.noisy))


def run(cell: Cell) -> list[dict[str, object]]:
    """Return the metrics of all methods in a cell."""
    task, seed = make_task(cell), cell.seed

    def fit(noise: object) -> CorrectedClassifier:
        return CorrectedClassifier(noise=noise, random_state=seed).fit(task.X, task.noisy)

    default, seconds = timed(lambda: fit("both"))
    predictions = {
        "default": default.predict_proba(task.X_test),
        "without correction": fit(None).predict_proba(task.X_test),
        "known rates": fit(counted(task)).predict_proba(task.X_test),
        "logistic regression": logistic_regression(task.X, task.noisy, task.X_test),
    }
    if cell.kind in DECLARED:
        predictions["declared"] = fit(DECLARED[cell.kind]).predict_proba(task.X_test)
    unpredicted = default.rates_.labels_with("unpredicted")
    predicted = np.setdiff1d(np.arange(task.noisy.shape[1]), unpredicted)
    rows = []
    for labels, columns in (("all", slice(None)), ("predicted", predicted)):
        for method, P in predictions.items():
            if labels == "predicted" and (method not in COMPARED or not len(predicted)):
                continue
            scores = evaluate(task.Y_test[:, columns], P[:, columns])
            rows.append({**cell._asdict(), "labels": labels, "method": method, **scores})
    rows[0] |= {**rate_errors(task, default.rates_), "unpredicted": len(unpredicted), "seconds": seconds}
    return rows


def evaluate(Y: np.ndarray, P: np.ndarray) -> dict[str, float]:
    """Return the metrics of probabilities; labels that are NaN in Y are left out."""
    known, Y = ~np.isnan(Y), np.nan_to_num(Y)
    clipped = np.clip(P, 1e-6, 1 - 1e-6)
    whole = known.all(1) & Y.any(1)
    ranked = [j for j in range(Y.shape[1]) if Y[:, j].any()]
    precisions = [average_precision_score(Y[known[:, j], j], P[known[:, j], j]) for j in ranked]
    return {
        "hamming_loss": float(((P >= 0.5) != Y)[known].mean()),
        "lrap": label_ranking_average_precision_score(Y[whole], P[whole]),
        "mean_ap": float(np.mean(precisions)),
        "log_loss": float(-np.log(np.where(Y == 1, clipped, 1 - clipped))[known].mean()),
    }


def rate_errors(task: Task, rates: object) -> dict[str, float]:
    """Return the mean absolute errors of estimated rates."""
    true = counted(task)
    return {
        f"rho_{side}_error": float(np.abs(getattr(rates, f"rho_{side}") - getattr(true, f"rho_{side}")).mean())
        for side in ("pos", "neg")
    }


def print_tables(table: pd.DataFrame) -> None:
    """Print differences to logistic regression, and rate errors."""
    for labels, part in table.groupby("labels"):
        wide = part.set_index([*KEY, "method"])[list(METRICS)].unstack("method")
        for metric in METRICS:
            difference = wide[metric].sub(wide[metric]["logistic regression"], axis=0).groupby("kind")
            mean, error = difference.mean(), difference.sem()
            shown = mean.map("{:+.4f}".format) + error.map(" ({:.4f})".format)
            print(f"\n{metric} minus that of logistic regression, {labels} labels (standard error over cells)")
            print(shown.T.reindex(columns=[kind for kind in KINDS if kind in shown.index]).to_string())
    columns = ["rho_pos_error", "rho_neg_error", "unpredicted", "seconds"]
    print(f"\nmean absolute errors of the rates\n{table.groupby('kind')[columns].mean().round(3).to_string()}")


# -- Cost


def timings() -> list[Result]:
    """Return CPU times of fits and estimates against LogisticRegressionCV on yeast and on sparse text."""
    results = []
    yeast = load_dataset("yeast")
    text, labels = make_text()
    many = np.repeat(np.asarray(yeast.Y).astype(int), 8, 1)[:, :100]
    for name, X, Y in (
        ("yeast", yeast.X, np.asarray(yeast.Y).astype(int)),
        ("text", text, labels),
        ("100 labels", yeast.X, many),
    ):
        noisy = inject("two-sided", X, Y, np.random.default_rng(0))
        model, features = OneVsRestClassifier(LogisticRegressionCV(Cs=6, cv=3)), scaled(X, X)[0]
        baseline = timed(lambda model=model, X=features, Y=noisy: model.fit(X, Y))[1]
        calls = {"default": lambda X=X, Y=noisy: CorrectedClassifier(random_state=0).fit(X, Y)}
        calls["estimate_noise"] = lambda X=X, Y=noisy: estimate_noise(X, Y)
        for label, call in calls.items():
            seconds = timed(call)[1]
            results.append(Result(f"{name}: {label}", seconds, "LogisticRegressionCV", baseline, baseline / seconds))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 100)).astype(np.float32)
    Y = (X @ rng.normal(size=(100, 20)) + 5 * rng.normal(size=(300_000, 20)) > 5).astype(int)
    noisy = inject("two-sided", X, Y, rng)
    seconds = timed(lambda: CorrectedClassifier(random_state=0).fit(X, noisy))[1]
    results.append(Result("300,000 x 100 x 20: default", seconds, "limit of 60 s", 60.0, 60 / seconds))
    return results


MEMORY = """
import numpy as np
from ccmn import CorrectedClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 2000)).astype(np.float32)
Y = (X[:, :10] + rng.normal(size=(2000, 10)) > 1).astype(int)
CorrectedClassifier(random_state=0).fit(X[:200, :50], Y[:200])
begin()
CorrectedClassifier(random_state=0).fit(X, Y)
"""
"""Code whose peak of memory over the data is measured."""


def make_text(n: int = 3000, d: int = 8000, q: int = 20) -> tuple[object, np.ndarray]:
    """Return TF-IDF features of random texts with two topics each, word frequencies following Zipf's law."""
    from sklearn.feature_extraction.text import TfidfTransformer

    rng = np.random.default_rng(0)
    words = np.exp(0.9 * rng.normal(size=(q, d))) / np.arange(1, d + 1) ** 0.9
    words /= words.sum(1, keepdims=True)
    topics, lengths = rng.integers(0, q, (n, 2)), rng.integers(40, 160, n)
    columns = [rng.choice(d, size, p=words[pair].mean(0)) for size, pair in zip(lengths, topics)]
    rows = np.repeat(np.arange(n), lengths)
    counts = scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, np.concatenate(columns))), shape=(n, d))
    Y = np.zeros((n, q), dtype=int)
    Y[np.arange(n)[:, None], topics] = 1
    return TfidfTransformer(sublinear_tf=True).fit_transform(counts).tocsr(), Y


def timed(call: object) -> tuple[object, float]:
    """Return the result of a call and its CPU time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        return call(), time.process_time() - start


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--timing", action="store_true", help="measure the cost only")
    arguments.add_argument("--seeds", type=int, default=2)
    arguments.add_argument("--results", type=Path, default=RESULTS)
    options = arguments.parse_args()
    warnings.filterwarnings("ignore")
    if options.timing:
        report(timings(), {"MB over the data at d = 2,000": round(cost_of(MEMORY)[1])}, options.json)
        return
    cells = [
        Cell(name, kind, seed)
        for seed in range(options.seeds)
        for kind in KINDS
        for name in (HUMAN if kind == "human" else (*DATASETS, *HUMAN))
    ]
    if options.quick:
        cells, options.results = [Cell("yeast", kind, 0) for kind in ("clean", "added")], Path(os.devnull)
    stored = options.results.is_file() and options.results.stat().st_size > 0
    table = pd.read_csv(options.results) if stored else pd.DataFrame(columns=KEY)
    finished = set(table[KEY].itertuples(index=False, name=None))
    for cell in cells:
        if cell not in finished:
            table = pd.concat([table, pd.DataFrame(run(cell))]).sort_values([*KEY, "labels", "method"])
            if not options.quick:
                save(table.round(5), options.results)
    if options.json:
        print(json.dumps(json.loads(table.to_json(orient="records"))))
    else:
        print_tables(table)


if __name__ == "__main__":
    main()
