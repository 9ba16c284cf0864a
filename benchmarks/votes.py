"""Compare labels inferred from votes with the majority vote and with crowd-kit, and measure rates, queue and time.

    python benchmarks/votes.py              all parts, five draws, results/votes.csv (needs CCMN_DATA and crowd-kit)
    python benchmarks/votes.py --quick      one draw of one dataset, and of the synthetic rates
    python benchmarks/votes.py --part labels --jobs 16 --csv labels.csv        one part in 16 processes

Data: ``CCMN_DATA/real``, with ``votes`` (n, annotators, q) of 1, 0 and -1 (not asked). Features as in real_noise.py.
Parts:

- "labels": some random votes of each row are shown, and the truth is the majority of the hidden votes; labels with a
  tie are left out. With five shown votes of ptbr, one hidden vote is left.
- "ecg": five readers of electrocardiograms, the three who are not cardiologists, and both with the probabilities of a
  network as one more annotator. The truth is the gold standard of two cardiologists, and a third where they disagree.
- "queue": wrong labels after further votes, selected by ``next_votes`` or at random. 3 votes per row are shown for
  relex and 2 for the others; of the hidden votes of a row, 5 (relex) or 1 (others) can be asked, and the rest is the
  truth.
- "rates": synthetic votes with known rates, four times as many draws: mean absolute error, that of counting against
  the true labels, and coverage of the 90 % intervals.
- "time": CPU seconds for a million votes without intervals.

The majority vote is positive if more than half of the votes are. Dawid-Skene, GLAD and MACE are those of crowd-kit, one
label at a time with default parameters. No set was left out of development: the constants were selected mainly on deu,
ptbr and the synthetic votes (draws 0 to 5), relex decided the prior variances of the annotators, and ecg limited the
prior of the levels and the threshold. Each cell (part, dataset, draw) is computed once: values in the CSV file are not
computed again, unless their part is named by ``--rerun``.
"""

from __future__ import annotations

import json
import os
import sys
import time
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
from real_noise import data_folder, features
from sklearn.metrics import average_precision_score

from ccmn import infer_labels
from ccmn.votes import VoteTable, next_votes

try:
    from crowdkit.aggregation import GLAD, MACE, DawidSkene

    CROWDKIT = {"Dawid-Skene": DawidSkene, "GLAD": GLAD, "MACE": lambda: MACE(random_state=0)}
except ImportError:
    CROWDKIT = {}

RESULTS = Path(__file__).resolve().parent.parent / "results" / "votes.csv"
SHOWN = {f"{name}, {n}": (name, n) for name in ("deu", "ptbr", "relex") for n in (2, 3, 5)}
"""Dataset and shown votes per row."""
READERS = {"five readers": [0, 1, 2, 3, 4], "three readers": [2, 3, 4]}
QUEUE = {"relex": (3, 5), "deu": (2, 1), "ptbr": (2, 1)}
"""Shown votes per row, and hidden votes per row that can be asked."""
BATCH, N_BATCHES = 0.02, 4
"""Share of the labels on which a vote is asked before labels are inferred again, and number of such batches."""
SYNTHETIC = {"few annotators": (1000, 8, 4, 3), "crowd": (1500, 200, 4, 4), "many votes": (2000, 20, 5, 5)}
"""Rows, annotators, labels and votes per row."""
MILLION = {"100 annotators": (40_000, 100, 5, 5), "10,000 annotators": (40_000, 10_000, 5, 5)}
"""Rows, annotators, labels and votes per row of a million votes."""
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


def crowdkit(table: VoteTable, method: str) -> np.ndarray:
    """Return the probabilities (n, q) of a method of crowd-kit; probabilities of a machine count as votes."""
    n, _, q = table.shape
    proba = np.zeros((n, q))
    for j in range(q):
        own = table.label == j
        lines = {"task": table.row[own], "worker": table.annotator[own], "label": (table.value[own] > 0.5).astype(int)}
        fitted = CROWDKIT[method]().fit_predict_proba(pd.DataFrame(lines))
        if 1 in fitted.columns:
            proba[fitted.index, j] = fitted[1]
    return proba


def evaluate(truth: np.ndarray, proba: np.ndarray, labels: np.ndarray) -> Iterator[tuple[str, float]]:
    known = ~np.isnan(truth)
    true, predicted = truth[known] == 1, labels[known] == 1
    used = [j for j in range(truth.shape[1]) if np.nansum(truth[:, j])]
    scores = [average_precision_score(truth[known[:, j], j], proba[known[:, j], j]) for j in used]
    yield "hamming_loss", (true != predicted).mean()
    yield "micro_f1", 2 * (true & predicted).sum() / (true.sum() + predicted.sum())
    yield "mean_ap", float(np.mean(scores))
    yield "predicted_share", predicted.sum() / true.sum()


# -- Parts


def run_labels(cell: Cell) -> Iterator[Value]:
    name, n_shown = SHOWN[cell.dataset]
    votes, truth, _ = split_votes(load_votes(name), n_shown, 0, cell.draw)
    for method, X in (("ccmn, votes", None), ("ccmn, votes and features", features(name))):
        inferred = infer_labels(votes, X, random_state=cell.draw)
        for metric, value in evaluate(truth, inferred.proba, inferred.labels):
            yield method, metric, value
    others = {method: crowdkit(VoteTable.read(votes), method) for method in CROWDKIT}
    for method, proba in {"mean vote": np.nanmean(votes, 1), **others}.items():
        for metric, value in evaluate(truth, proba, proba > 0.5):
            yield method, metric, value


def run_ecg(cell: Cell) -> Iterator[Value]:
    with np.load(data_folder() / "ecg.npz") as file:
        truth, network = file["Y_true"], file["scores"][:, :1].astype(np.float64)
    readers = load_votes("ecg")[:, READERS[cell.dataset]]
    for suffix, votes in (("", readers), (" and network", np.concatenate((readers, network), 1))):
        methods = {"ccmn": infer_labels(votes).labels, "majority vote": votes.mean(1) > 0.5}
        methods |= {method: crowdkit(VoteTable.read(votes), method) > 0.5 for method in CROWDKIT}
        for method, labels in methods.items():
            yield method + suffix, "errors", int((labels != truth).sum())


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
    yield "majority vote", "wrong", float(((np.nanmean(votes, 1) > 0.5) != Y).mean())
    for method, given in (("votes", None), ("votes and features", X)):
        inferred = infer_labels(table, given, random_state=cell.draw)
        yield method, "wrong", float((inferred.labels != Y).mean())
        for side, rate, interval, known, events, trials in (
            ("rho_pos", inferred.rho_pos, inferred.ci_pos, rho_pos, votes == 0, voted & true),
            ("rho_neg", inferred.rho_neg, inferred.ci_neg, rho_neg, votes == 1, voted & ~true),
        ):
            used = trials.sum(0) > 0
            counted = (events & trials).sum(0)[used] / trials.sum(0)[used]
            yield method, f"{side} error", abs(rate - known)[used].mean()
            yield method, f"{side} error of counting", abs(counted - known[used]).mean()
            yield method, f"{side} coverage", ((interval[..., 0] <= known) & (known <= interval[..., 1])).mean()


def run_time(cell: Cell) -> Iterator[Value]:
    n, a, q, per_row = MILLION[cell.dataset]
    rng = np.random.default_rng(cell.draw)
    row, annotator = np.repeat(np.arange(n), per_row * q), np.repeat(rng.integers(0, a, n * per_row), q)
    label, Y = np.tile(np.arange(q), n * per_row), rng.random((n, q)) < 0.2
    rho_pos, rho_neg = rng.beta(2, 6, (a, q)), rng.beta(1.5, 15, (a, q))
    rate = np.where(Y[row, label], 1 - rho_pos[annotator, label], rho_neg[annotator, label])
    table = VoteTable(row, annotator, label, (rng.random(row.size) < rate).astype(float), (n, a, q))
    methods: dict[str, Callable[[], np.ndarray]] = {"ccmn": lambda: infer_labels(table).labels}
    if CROWDKIT:
        methods["Dawid-Skene"] = lambda: crowdkit(table, "Dawid-Skene") > 0.5
    for method, call in methods.items():
        start = time.process_time()
        labels = call()
        yield method, "cpu_seconds", time.process_time() - start
        yield method, "wrong", float((labels != Y).mean())


PARTS: dict[str, tuple[Callable[[Cell], Iterator[Value]], tuple[str, ...]]] = {
    "labels": (run_labels, tuple(SHOWN)),
    "ecg": (run_ecg, tuple(READERS)),
    "rates": (run_rates, tuple(SYNTHETIC)),
    "queue": (run_queue, tuple(QUEUE)),
    "time": (run_time, tuple(MILLION)),
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
    parts, path = options.part or list(PARTS), options.csv
    draws = dict.fromkeys(PARTS, options.draws) | {"rates": 4 * options.draws, "ecg": 1, "time": 1}
    cells = [Cell(part, name, draw) for part in parts for draw in range(draws[part]) for name in PARTS[part][1]]
    done = pd.DataFrame(columns=COLUMNS)
    if options.quick:
        cells, path = [Cell("ecg", name, 0) for name in READERS], None
        cells += [Cell("rates", "few annotators", 0)]
    elif path.exists():
        done = pd.read_csv(path)
        done = done[~done.part.isin(options.rerun)]
    if not CROWDKIT:
        print("crowd-kit is not installed: Dawid-Skene, GLAD and MACE are left out", file=sys.stderr)
    for name in {SHOWN.get(cell.dataset, (cell.dataset,))[0] for cell in cells if cell.part in ("labels", "queue")}:
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
