"""Compare the default classifier with what a user would choose instead, over noise scenarios and datasets.

``--timing`` measures the cost against ``LogisticRegressionCV`` in the same run.

Every cell is a dataset, a noise scenario (benchmarks/harness.py, and "real": human labels from one annotator or
coder, CCMN_DATA/real) and a random split with up to 1,500 training and 1,500 test rows. Test labels are true labels.
All methods see the same noisy training labels. "logistic regression" is one-vs-rest with l2 by 3-fold cross-validation
of the log-loss on standardized features. Corrected learners and other losses use the rates that the default has
estimated.

The design was developed on yeast, enron, tmc, deu and cmc. scene, slashdot, mirflickr, relex and ptbr count as unseen;
an early prototype was also compared on scene.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import real_noise
import scipy.sparse
import torch
from harness import KINDS, Result, inject, parser, report
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import average_precision_score, f1_score, label_ranking_average_precision_score, label_ranking_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ccmn import CCMNClassifier, CorrectedClassifier, estimate_noise
from ccmn.data import load_dataset

RESULTS = Path(__file__).resolve().parents[1] / "results" / "default.csv"
CHOSEN_ON = ("yeast", "enron", "tmc", "deu", "cmc")
UNSEEN = ("scene", "slashdot", "mirflickr", "relex", "ptbr")
REAL = ("deu", "cmc", "relex", "ptbr")
MAX_ROWS = 1500
MIN_POSITIVES = 10
N_TRUSTED = 200
METRICS = ("average_precision", "mean_ap", "hamming_loss", "ranking_loss", "micro_f1", "ece", "seconds")
KEY = ["dataset", "kind", "seed"]
PARTS = {"main": "ccmn", "losses": "forward loss"}
"""Parts of the comparison, and a method by which a finished cell of the part is known."""
OWN = ("ccmn", "ccmn without correction", "ccmn, linear", "trusted: ccmn", "rates")
"""Methods that ``--update`` computes again in all stored cells."""


class Cell(NamedTuple):
    dataset: str
    kind: str
    seed: int


class Task(NamedTuple):
    X: object
    noisy: np.ndarray
    true: np.ndarray
    X_test: object
    Y_test: np.ndarray
    trusted: np.ndarray


@cache
def read(name: str) -> tuple[object, np.ndarray, np.ndarray | None]:
    """Return features, true labels and, if there are any, noisy human labels."""
    if name in REAL:
        variant = next(v for n, v in real_noise.variants(real_noise.data_folder()) if n == name and v != "Y_any")
        task = real_noise.load(name, variant)
        return task.X, task.true.astype(int), task.noisy.astype(int)
    data = load_dataset(name)
    return data.X, np.asarray(data.Y).astype(int), None


def make_task(cell: Cell) -> Task:
    """Split a dataset and add noise to the training labels."""
    X, Y, noisy = read(cell.dataset)
    rng = np.random.default_rng([cell.seed, *map(ord, cell.dataset + cell.kind)])
    order = np.random.default_rng([cell.seed, *map(ord, cell.dataset)]).permutation(len(Y))
    size = min(MAX_ROWS, 2 * len(Y) // 3)
    train, test = np.sort(order[:size]), np.sort(order[size : size + MAX_ROWS])
    kept = Y[train].sum(0) >= MIN_POSITIVES
    if cell.kind == "real":
        kept &= noisy[train].sum(0) >= 3
        labels = noisy[train][:, kept]
    else:
        labels = inject(cell.kind, X[train], Y[train][:, kept], rng)
    trusted = rng.permutation(size)[:N_TRUSTED]
    return Task(X[train], labels, Y[train][:, kept], X[test], Y[test][:, kept], trusted)


# -- Methods


def scaled(X: object, X_test: object) -> tuple[object, object]:
    if scipy.sparse.issparse(X):
        return X, X_test
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test)


def reduced(X: object, X_test: object) -> tuple[np.ndarray, np.ndarray]:
    """Return dense features for trees."""
    if not scipy.sparse.issparse(X):
        return X, X_test
    svd = TruncatedSVD(min(150, min(X.shape) - 1), random_state=0).fit(X)
    return svd.transform(X), svd.transform(X_test)


def one_vs_rest(model: object, X: object, Y: np.ndarray, X_test: object) -> np.ndarray:
    """Return P(label = 1) of test rows; a label with fewer than 3 ones or zeros gets its frequency."""
    P = np.tile((Y.sum(0) + 0.5) / (len(Y) + 1), (X_test.shape[0], 1))
    possible = np.minimum(Y.sum(0), len(Y) - Y.sum(0)) >= 3
    if possible.any():
        P[:, possible] = OneVsRestClassifier(model).fit(X, Y[:, possible]).predict_proba(X_test)
    return P


def logistic_regression(X: object, Y: np.ndarray, X_test: object) -> np.ndarray:
    model = LogisticRegressionCV(Cs=6, cv=3, scoring="neg_log_loss", max_iter=200)
    return one_vs_rest(model, *(lambda a, b: (a, Y, b))(*scaled(X, X_test)))


def forest(X: object, Y: np.ndarray, X_test: object, seed: int) -> np.ndarray:
    model = RandomForestClassifier(100, min_samples_leaf=5, random_state=seed)
    features, test_features = reduced(X, X_test)
    return one_vs_rest(model, features, Y, test_features)


def boosting(X: object, Y: np.ndarray, X_test: object, seed: int) -> np.ndarray:
    model = HistGradientBoostingClassifier(max_iter=60, learning_rate=0.1, max_leaf_nodes=15, random_state=seed)
    features, test_features = reduced(X, X_test)
    return one_vs_rest(model, features, Y, test_features)


def corrected(P: np.ndarray, noise: object) -> np.ndarray:
    return np.clip((P - noise.rho_neg) / (1 - noise.rho_pos - noise.rho_neg), 0, 1)


def classifier(task: Task, seed: int, noise: object, trusted: object = None, **params: object) -> np.ndarray:
    make = CCMNClassifier if params else CorrectedClassifier
    clf = make(noise=noise, random_state=seed, **params)
    clf.fit(task.X, task.noisy, trusted=trusted)
    return clf.predict_proba(task.X_test)


def run(cell: Cell, part: str) -> pd.DataFrame:
    """Return the metrics of all methods of a part in a cell."""
    warnings.filterwarnings("ignore")
    threadpool_limits(1)  # cells run in parallel
    torch.set_num_threads(1)
    task, seed = make_task(cell), cell.seed
    rows: list[dict[str, object]] = []

    def add(method: str, call: object) -> np.ndarray:
        start = time.process_time()
        P = call()
        seconds = time.process_time() - start
        rows.append({**cell._asdict(), "method": method, **evaluate(task.Y_test, P), "seconds": seconds})
        return P

    start = time.process_time()
    rates = estimate_noise(task.X, task.noisy, random_state=seed)
    noise, seconds = rates.noise, time.process_time() - start
    if part == "losses":
        boosted = boosting(task.X, task.noisy, task.X_test, seed)
        add("corrected boosting", lambda: corrected(boosted, noise))
        add("ranking loss", lambda: classifier(task, seed, noise, loss="ranking", model="linear", epochs=100))
        return pd.DataFrame(rows)
    rows.append({**cell._asdict(), "method": "rates", **rate_errors(task, rates), "seconds": seconds})
    add("ccmn", lambda: classifier(task, seed, "both"))
    add("ccmn without correction", lambda: classifier(task, seed, None))
    add("trusted: ccmn", lambda: classifier(task, seed, "both", (task.trusted, task.true[task.trusted])))
    if part == "update":
        return pd.DataFrame(rows)
    plain = add("logistic regression", lambda: logistic_regression(task.X, task.noisy, task.X_test))
    trees = add("random forest", lambda: forest(task.X, task.noisy, task.X_test, seed))
    add("average without correction", lambda: (plain + trees) / 2)
    add("corrected logistic regression", lambda: corrected(plain, noise))
    add("corrected random forest", lambda: corrected(trees, noise))
    add("Hamming loss", lambda: classifier(task, seed, noise, loss="hamming", model="linear"))
    add("ccmn, true rates", lambda: classifier(task, seed, counted(task)))
    replaced = task.noisy.copy()
    replaced[task.trusted] = task.true[task.trusted]
    few = task.X[task.trusted], task.true[task.trusted]
    add("trusted: all rows", lambda: logistic_regression(task.X, replaced, task.X_test))
    add("trusted: alone", lambda: logistic_regression(*few, task.X_test))
    return pd.DataFrame(rows)


def counted(task: Task) -> object:
    """Return the noise model with the observed shares of flips."""
    from ccmn import ClassConditionalNoise

    return ClassConditionalNoise.from_pairs(task.true, task.noisy)


def evaluate(Y: np.ndarray, P: np.ndarray) -> dict[str, float]:
    """Return the metrics of probabilities."""
    counted = Y.sum(0) > 0
    some = Y.any(1)
    bins = np.minimum((P.ravel() * 10).astype(int), 9)
    sums = [np.bincount(bins, weights=values.ravel(), minlength=10) for values in (Y, P)]
    precisions = [average_precision_score(Y[:, j], P[:, j]) for j in np.flatnonzero(counted)]
    return {
        "average_precision": label_ranking_average_precision_score(Y[some], P[some]),
        "mean_ap": float(np.mean(precisions)),
        "hamming_loss": float(((P >= 0.5) != Y).mean()),
        "ranking_loss": label_ranking_loss(Y[some], P[some]),
        "micro_f1": f1_score(Y, P >= 0.5, average="micro", zero_division=0),
        "ece": float(np.abs(sums[0] - sums[1]).sum() / Y.size),
    }


def rate_errors(task: Task, rates: object) -> dict[str, float]:
    """Return mean estimated rates and their mean absolute errors, in the columns of other figures."""
    true = counted(task)
    return {
        "rho_pos": float(rates.rho_pos.mean()),
        "rho_neg": float(rates.rho_neg.mean()),
        "rho_pos_error": float(np.abs(rates.rho_pos - true.rho_pos).mean()),
        "rho_neg_error": float(np.abs(rates.rho_neg - true.rho_neg).mean()),
        "used_rho_pos": float(rates.noise.rho_pos.mean()),
    }


# -- Tables


def summarize(table: pd.DataFrame, sets: tuple[str, ...]) -> pd.DataFrame:
    """Return mean differences to logistic regression and their standard errors over datasets, per kind and method."""
    table = table[table.dataset.isin(sets) & (table.method != "rates")]
    means = table.groupby(["kind", "dataset", "method"])[list(METRICS)].mean().reset_index()
    base = means[means.method == "logistic regression"].set_index(["kind", "dataset"])[list(METRICS)]
    rows = means.set_index(["kind", "dataset"])
    rows[list(METRICS)] -= base.reindex(rows.index)
    return rows.reset_index().groupby(["kind", "method"])[list(METRICS)].agg(["mean", "sem"])


def print_tables(table: pd.DataFrame) -> None:
    """Print differences to logistic regression on unseen datasets and on all, mean ranks and rate errors."""
    kinds = [kind for kind in (*KINDS, "real") if kind in set(table.kind)]
    for title, sets in (("unseen", UNSEEN), ("all", CHOSEN_ON + UNSEEN)):
        if not table.dataset.isin(sets).any():
            continue
        summary = summarize(table, sets)
        for metric in ("average_precision", "mean_ap", "hamming_loss", "ece"):
            pivot = summary[metric].unstack("kind")
            print(f"\n{metric} minus that of logistic regression, {title} datasets (standard error over datasets)")
            shown = {
                kind: [f"{m:+.3f} ({s:.3f})" for m, s in zip(pivot["mean"][kind], pivot["sem"][kind])] for kind in kinds
            }
            print(pd.DataFrame(shown, index=pivot.index).to_string())
        kinds_of_sets = table[table.dataset.isin(sets) & ~table.method.str.contains("trusted|true rates|rates")]
        keyed = kinds_of_sets.set_index([*KEY, "method"])
        values = pd.concat(
            [
                sign * keyed[metric].unstack("method")
                for metric, sign in (("hamming_loss", 1), ("ranking_loss", 1), ("average_precision", -1))
            ]
        )
        complete = values.dropna()
        print(f"\nmean rank over Hamming loss, ranking loss and average precision, {title} datasets")
        print(values.dropna(axis=1).rank(axis=1).mean().sort_values().round(2).to_string())
        if 0 < len(complete) < len(values):
            print(f"\nthe same for all methods, in the {len(complete) // 3} cells with all of them")
            print(complete.rank(axis=1).mean().sort_values().round(2).to_string())
        rates = table[table.dataset.isin(sets) & (table.method == "rates")]
        columns = ["rho_pos", "rho_neg", "rho_pos_error", "rho_neg_error", "used_rho_pos", "seconds"]
        print(f"\nestimated rates, {title} datasets")
        print(rates.groupby("kind")[columns].mean().reindex(kinds).round(3).to_string())


# -- Cost


def timings() -> list[Result]:
    """Return CPU times of fits and estimates against LogisticRegressionCV on yeast and on sparse text."""
    results = []
    yeast = load_dataset("yeast")
    text, labels = make_text()
    for name, X, Y in (("yeast", yeast.X, np.asarray(yeast.Y).astype(int)), ("text", text, labels)):
        noisy = inject("two-sided", X, Y, np.random.default_rng(0))
        features = scaled(X, X)[0]
        baseline = cpu(lambda a=features, b=noisy: OneVsRestClassifier(LogisticRegressionCV(Cs=6, cv=3)).fit(a, b))
        calls = {
            "default": lambda X=X, Y=noisy: CorrectedClassifier(random_state=0).fit(X, Y),
            "estimate_noise": lambda X=X, Y=noisy: estimate_noise(X, Y),
        }
        for label, call in calls.items():
            seconds = cpu(call)
            results.append(Result(f"{name}: {label}", seconds, "LogisticRegressionCV", baseline, baseline / seconds))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 100)).astype(np.float32)
    Y = (X @ rng.normal(size=(100, 20)) + 5 * rng.normal(size=(300_000, 20)) > 5).astype(int)
    noisy = inject("two-sided", X, Y, rng)
    seconds = cpu(lambda: CorrectedClassifier(random_state=0).fit(X, noisy))
    results.append(Result("300,000 x 100 x 20: default", seconds, "limit of 60 s", 60.0, 60 / seconds))
    return results


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


def cpu(call: object) -> float:
    """Return the CPU time of a call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        call()
        return time.process_time() - start


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--timing", action="store_true", help="measure the cost only")
    arguments.add_argument("--datasets", default=",".join(CHOSEN_ON + UNSEEN))
    arguments.add_argument("--kinds", default=",".join((*KINDS, "real")))
    arguments.add_argument("--seeds", type=int, default=2)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--results", type=Path, default=RESULTS)
    arguments.add_argument("--part", choices=PARTS, default="main", help="losses: boosting and losses trained by Adam")
    arguments.add_argument("--update", action="store_true", help="compute the rows of ccmn in all stored cells again")
    options = arguments.parse_args()
    if options.timing:
        report(timings(), {}, options.json)
        return
    if options.quick:
        cells = [Cell("yeast", kind, 0) for kind in ("clean", "added")]
        options.results = Path(os.devnull)
    else:
        cells = [
            Cell(name, kind, seed)
            for seed in range(options.seeds)
            for name in options.datasets.split(",")
            for kind in options.kinds.split(",")
            if kind != "real" or name in REAL
        ]
    stored = options.results.is_file() and options.results.stat().st_size > 0
    done = pd.read_csv(options.results) if stored else pd.DataFrame(columns=KEY)
    of_part = done[done.method == PARTS[options.part]] if len(done) else done
    finished = set(of_part[KEY].itertuples(index=False, name=None))
    if options.update:
        chosen = options.datasets.split(",")
        cells, finished, options.part = [Cell(*cell) for cell in sorted(finished) if cell[0] in chosen], set(), "update"
        done = done[~(done.method.isin(OWN) & done.dataset.isin(chosen))]
    tables = [done] if len(done) else []
    with ProcessPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(run, cell, options.part) for cell in cells if cell not in finished]
        for future in as_completed(futures):
            tables.append(future.result())
            if options.results != Path(os.devnull):
                table = pd.concat(tables).sort_values([*KEY, "method"])
                own = options.results.with_suffix(".part")
                table.to_csv(own, index=False, float_format="%.5f")
                own.replace(options.results)
    table = pd.concat(tables)
    if options.json:
        print(json.dumps(json.loads(table.to_json(orient="records"))))
    else:
        print_tables(table)


if __name__ == "__main__":
    main()
