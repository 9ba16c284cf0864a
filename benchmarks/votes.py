"""Measure labels, annotator rates, classifiers and the annotation queue from the votes of several annotators.

    python benchmarks/votes.py              all parts, five draws, results/votes.csv (needs CCMN_DATA and cleanlab)
    python benchmarks/votes.py --quick      one draw of the labels of one dataset, and of the synthetic rates
    python benchmarks/votes.py --part labels --jobs 16 --csv labels.csv        one part in 16 processes

Data: ``CCMN_DATA/real``, with ``votes`` (n, annotators, q) of 1, 0 and -1 (not asked). Features as in real_noise.py.
In every draw, some random votes of each row are shown, and the truth is the majority of the hidden votes; labels with
a tie are left out. Parts:

- "labels": inferred labels from 3 votes per row (relex and deu), 5 (relex) and 2 (ptbr).
- "training": classifiers trained on the shown votes of 70 % of the rows, tested on the truth of the others.
- "queue": wrong labels after further votes, selected by ``next_votes`` or at random. 3 votes per row are shown for
  relex and 2 for the others; of the hidden votes of a row, 5 (relex) or 1 (others) can be asked, and the rest is the
  truth.
- "rates": synthetic votes with known rates, four times as many draws: mean absolute error, that of counting against
  the true labels, and coverage of the 90 % intervals.

Methods were selected on deu (draws 100 to 102) and on synthetic votes; relex and ptbr were not used. Each cell (part,
dataset, draw) is computed once: values in the CSV file are not computed again, unless their part is named by
``--rerun``.
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
import scipy.special
import torch
from harness import machine, parser
from real_noise import C_GRID, data_folder, features, fit_predict, log_loss
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold

from ccmn import CCMNClassifier, infer_labels
from ccmn.votes import VoteTable, next_votes

try:
    from cleanlab.multiannotator import get_label_quality_multiannotator
except ImportError:
    get_label_quality_multiannotator = None

RESULTS = Path(__file__).resolve().parent.parent / "results" / "votes.csv"
SHOWN = {"relex, 3 votes": ("relex", 3), "relex, 5 votes": ("relex", 5), "deu, 3": ("deu", 3), "ptbr, 2": ("ptbr", 2)}
QUEUE = {"relex": (3, 5), "deu": (2, 1), "ptbr": (2, 1)}
"""Shown votes per row, and hidden votes per row that can be asked."""
BATCH, N_BATCHES = 0.02, 4
"""Share of the labels on which a vote is asked before labels are inferred again, and number of such batches."""
SYNTHETIC = {"few annotators": (1000, 8, 4, 3), "crowd": (1500, 200, 4, 4), "many votes": (2000, 20, 5, 5)}
"""Rows, annotators, labels and votes per row."""
KEY = ["part", "dataset", "draw"]
COLUMNS = [*KEY, "method", "metric", "value"]
Value = tuple[str, str, float]
"""Method, metric, value."""


class Cell(NamedTuple):
    """Unit of work: one part on one draw of a dataset."""

    part: str
    dataset: str
    draw: int


def load_votes(name: str) -> np.ndarray:
    with np.load(data_folder() / f"{name}.npz") as file:
        votes = file["votes"].astype(np.float64)
    return np.where(votes < 0, np.nan, votes)


def random_ranks(votes: np.ndarray, draw: int) -> np.ndarray:
    """Return the rank (n, a) of every annotator among those who voted on a row, in random order; others are last."""
    voted = ~np.isnan(votes).all(2)
    order = np.where(voted, np.random.default_rng(draw).random(voted.shape), 2.0).argsort(1)
    ranks = np.empty(order.shape, dtype=int)
    np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], 1)
    return np.where(voted, ranks, order.shape[1])


def majority(votes: np.ndarray) -> np.ndarray:
    """Return the majority of votes (n, a, q), NaN if there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels without votes
        mean = np.nanmean(votes, 1)
    return np.where((mean == 0.5) | np.isnan(mean), np.nan, mean > 0.5)


def split_votes(votes: np.ndarray, n_shown: int, n_asked: int, draw: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shown votes, the truth from the votes that are neither shown nor asked, and the ranks."""
    ranks = random_ranks(votes, draw)
    shown = np.where((ranks < n_shown)[:, :, None], votes, np.nan)
    return shown, majority(np.where((ranks >= n_shown + n_asked)[:, :, None], votes, np.nan)), ranks


def evaluate(truth: np.ndarray, proba: np.ndarray) -> Iterator[tuple[str, float]]:
    known = ~np.isnan(truth)
    true, predicted = truth[known] == 1, proba[known] >= 0.5
    used = [j for j in range(truth.shape[1]) if np.nansum(truth[:, j])]
    yield "hamming_loss", (true != predicted).mean()
    yield (
        "mean_ap",
        float(np.mean([average_precision_score(truth[known[:, j], j], proba[known[:, j], j]) for j in used])),
    )
    yield "micro_f1", 2 * (true & predicted).sum() / (true.sum() + predicted.sum())


# -- Baselines


def dawid_skene(votes: np.ndarray, prior: np.ndarray | None = None, iterations: int = 50) -> np.ndarray:
    """Return the posterior of plain Dawid-Skene, with rates smoothed by one vote for either value."""
    voted, ones = ~np.isnan(votes), np.nan_to_num(votes)
    zeros = voted - ones
    mu = ones.sum(1) / voted.sum(1)
    for _ in range(iterations):
        true = (np.einsum("nq,naq->aq", mu, ones) + 1) / (np.einsum("nq,naq->aq", mu, voted) + 2)
        absent = (np.einsum("nq,naq->aq", 1 - mu, ones) + 1) / (np.einsum("nq,naq->aq", 1 - mu, voted) + 2)
        evidence = np.einsum("naq,aq->nq", ones, np.log(true / absent))
        evidence += np.einsum("naq,aq->nq", zeros, np.log((1 - true) / (1 - absent)))
        log_odds = scipy.special.logit(np.clip(mu.mean(0), 1e-6, 1 - 1e-6)) if prior is None else prior
        mu = scipy.special.expit(log_odds + evidence)
    return mu


def out_of_fold(X: np.ndarray, Y: np.ndarray, seed: int) -> np.ndarray:
    """Return five-fold out-of-fold probabilities of logistic regressions; the first fold selects C for every label."""
    folds = list(KFold(5, shuffle=True, random_state=seed).split(X))
    train, test = folds[0]
    first = np.stack([fit_predict(X[train], Y[train], X[test], C) for C in C_GRID])
    best = np.stack([log_loss(Y[test], P) for P in first]).argmin(0)
    P = np.empty(Y.shape)
    P[test] = np.take_along_axis(first, best[None, None], 0)[0]
    for train, test in folds[1:]:
        for i, C in enumerate(C_GRID):
            labels = np.flatnonzero(best == i)
            P[np.ix_(test, labels)] = fit_predict(X[train], Y[train][:, labels], X[test], C)
    return P


def crowdlab(votes: np.ndarray, pred_proba: np.ndarray) -> np.ndarray:
    """Return the probabilities of CROWDLAB, separately for every label."""
    proba = np.empty(pred_proba.shape)
    for j in range(votes.shape[2]):
        used = votes[:, ~np.isnan(votes[:, :, j]).all(0), j]
        P = np.clip(pred_proba[:, j], 1e-4, 1 - 1e-4)
        done = get_label_quality_multiannotator(pd.DataFrame(used), np.column_stack((1 - P, P)), verbose=False)
        quality = done["label_quality"]
        one = quality["consensus_label"].to_numpy() == 1
        score = quality["consensus_quality_score"].to_numpy()
        proba[:, j] = np.where(one, score, 1 - score)
    return proba


# -- Parts


def run_labels(cell: Cell) -> Iterator[Value]:
    name, n_shown = SHOWN[cell.dataset]
    X = features(name)
    votes, truth, _ = split_votes(load_votes(name), n_shown, 0, cell.draw)
    mean = np.nanmean(votes, 1)
    plain = dawid_skene(votes)
    prior = out_of_fold(X, (plain >= 0.5).astype(float), cell.draw)
    methods = {
        "mean vote": mean,
        "Dawid-Skene": plain,
        "Dawid-Skene with classifier": dawid_skene(votes, scipy.special.logit(np.clip(prior, 1e-4, 1 - 1e-4))),
        "ccmn, votes": infer_labels(votes, random_state=cell.draw).proba,
        "ccmn, votes and features": infer_labels(votes, X, random_state=cell.draw).proba,
    }
    if get_label_quality_multiannotator is not None:
        methods["CROWDLAB"] = crowdlab(votes, out_of_fold(X, (mean > 0.5).astype(float), cell.draw))
    for method, proba in methods.items():
        for metric, value in evaluate(truth, proba):
            yield method, metric, value


def run_training(cell: Cell) -> Iterator[Value]:
    name, n_shown = SHOWN[cell.dataset]
    X = features(name)
    votes, truth, _ = split_votes(load_votes(name), n_shown, 0, cell.draw)
    test = np.random.default_rng(cell.draw).random(len(X)) < 0.3
    majorities = (np.nanmean(votes[~test], 1) > 0.5).astype(int)
    targets = {"majority vote": (None, majorities), "votes": ("both", votes[~test])}
    models = {
        "ridge": {"loss": "hamming", "surrogate": "square"},
        "logistic": {"loss": "hamming", "surrogate": "logistic"},
    }
    for model, settings in models.items():
        for method, (noise, labels) in targets.items():
            clf = CCMNClassifier(noise, random_state=cell.draw, **settings).fit(X[~test], labels)
            for metric, value in evaluate(truth[test], clf.predict_proba(X[test])):
                yield f"{method} ({model})", metric, value


def run_queue(cell: Cell) -> Iterator[Value]:
    X, votes = features(cell.dataset), load_votes(cell.dataset)
    n_shown, n_asked = QUEUE[cell.dataset]
    start, truth, ranks = split_votes(votes, n_shown, n_asked, cell.draw)
    n, _, q = votes.shape
    size = round(BATCH * n * q)
    rng = np.random.default_rng([cell.draw, 1])
    for method in ("random", "next_votes"):
        shown, asked = start.copy(), np.zeros((n, q), dtype=int)
        for batch in range(N_BATCHES + 1):
            inferred = infer_labels(shown, X, random_state=cell.draw)
            known = ~np.isnan(truth)
            yield method, f"wrong_{batch}", float((inferred.labels[known] != truth[known]).mean())
            if method == "random":
                order = rng.permutation(n * q)
                row, label = order // q, order % q
            else:
                queue = next_votes(inferred, n * q)
                row, label = queue.row.to_numpy(), queue.label.to_numpy()
            open_ = asked[row, label] < n_asked
            row, label = row[open_][:size], label[open_][:size]
            voter = (ranks[row] == (n_shown + asked[row, label])[:, None]).argmax(1)
            shown[row, voter, label] = votes[row, voter, label]
            asked[row, label] += 1


def synthetic(n: int, a: int, q: int, per_row: int, seed: int):
    """Return features, labels, votes and the rates of the annotators."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    scores = X @ rng.normal(size=(10, q)) * 0.6
    Y = (rng.random((n, q)) < scipy.special.expit(scores - rng.uniform(0.5, 2, q))).astype(int)
    rho_pos, rho_neg = rng.beta(2, 6, (a, q)), rng.beta(1.5, 15, (a, q))
    votes = np.where(Y[:, None] == 1, rng.random((n, a, q)) >= rho_pos, rng.random((n, a, q)) < rho_neg).astype(float)
    votes[rng.random((n, a)).argsort(1) >= per_row] = np.nan
    return X, Y, votes, rho_pos, rho_neg


def run_rates(cell: Cell) -> Iterator[Value]:
    X, Y, votes, rho_pos, rho_neg = synthetic(*SYNTHETIC[cell.dataset], cell.draw)
    table, true = VoteTable.read(votes), Y[:, None] == 1
    voted = ~np.isnan(votes)
    for method, given in (("votes", None), ("votes and features", X)):
        inferred = infer_labels(table, given, random_state=cell.draw)
        for side, rate, interval, known, events, trials in (
            ("rho_pos", inferred.rho_pos, inferred.ci_pos, rho_pos, votes == 0, voted & true),
            ("rho_neg", inferred.rho_neg, inferred.ci_neg, rho_neg, votes == 1, voted & ~true),
        ):
            used = trials.sum(0) > 0
            counted = (events & trials).sum(0)[used] / trials.sum(0)[used]
            yield method, f"{side} error", abs(rate - known)[used].mean()
            yield method, f"{side} error of counting", abs(counted - known[used]).mean()
            yield method, f"{side} coverage", ((interval[..., 0] <= known) & (known <= interval[..., 1])).mean()


PARTS: dict[str, tuple[Callable[[Cell], Iterator[Value]], tuple[str, ...]]] = {
    "labels": (run_labels, tuple(SHOWN)),
    "rates": (run_rates, tuple(SYNTHETIC)),
    "queue": (run_queue, tuple(QUEUE)),
    "training": (run_training, tuple(SHOWN)),
}
"""Function and datasets of every part."""


def run(cell: Cell) -> pd.DataFrame:
    """Return all values of a cell; called in worker processes."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # poorly identified rates are what is measured
    rows = [(*cell, *value) for value in PARTS[cell.part][0](cell)]
    return pd.DataFrame(rows, columns=COLUMNS).round({"value": 5})


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
                pd.concat(tables).sort_values(KEY, kind="stable").to_csv(own, index=False)
                own.replace(path)
    return pd.concat(tables).sort_values(KEY, kind="stable", ignore_index=True)


def summarize(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return mean and standard error over the draws: one entry per part, metric and method."""
    groups = table.groupby(["part", "metric", "method", "dataset"], sort=False).value
    text = groups.agg(lambda v: f"{v.mean():.4f} ({v.std(ddof=1) / np.sqrt(v.count()) if v.count() > 1 else 0:.4f})")
    summary: dict[str, dict[str, str]] = {}
    for (part, metric, method, dataset), value in text.items():
        summary.setdefault(f"{part}, {metric}: {method}", {})[dataset] = value
    return dict(sorted(summary.items()))


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--part", action="append", choices=tuple(PARTS), help="run this part; default: all")
    arguments.add_argument("--rerun", action="append", default=[], choices=tuple(PARTS), help="discard stored values")
    arguments.add_argument("--draws", type=int, default=5, help="number of draws")
    arguments.add_argument("--jobs", type=int, default=1, help="number of processes")
    arguments.add_argument("--csv", type=Path, default=RESULTS, metavar="FILE", help="table to complete")
    options = arguments.parse_args()
    parts, draws, path = options.part or list(PARTS), options.draws, options.csv
    cells = [
        Cell(part, name, draw)
        for part in parts
        for draw in range(4 * draws if part == "rates" else draws)
        for name in PARTS[part][1]
    ]
    done = pd.DataFrame(columns=COLUMNS)
    if options.quick:
        cells, path = [Cell("labels", "deu, 3", 0), Cell("rates", "few annotators", 0)], None
    elif path.exists():
        done = pd.read_csv(path)
        done = done[~done.part.isin(options.rerun)]
    if get_label_quality_multiannotator is None:
        print("cleanlab is not installed: the rows 'CROWDLAB' are left out", file=sys.stderr)
    for name in {SHOWN.get(cell.dataset, (cell.dataset,))[0] for cell in cells if cell.part != "rates"}:
        features(name)
    summary = summarize(run_all(cells, done, path, options.jobs))
    if options.json:
        print(json.dumps({"machine": machine(), "threads": 1, **summary}))
        return
    print(f"{machine()}; mean (standard error) over draws")
    for name, values in summary.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in values.items()))


if __name__ == "__main__":
    main()
