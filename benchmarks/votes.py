"""Compare labels inferred from votes with the majority vote and with crowd-kit, and measure rates and time.

    python benchmarks/votes.py                 all parts, results/votes.csv (needs CCMN_DATA; hours with crowd-kit)
    python benchmarks/votes.py --part labels   this part only; the other rows of the file stay
    python benchmarks/votes.py --quick         electrocardiograms, and one draw of synthetic rates, without crowd-kit

Data: ``CCMN_DATA/real``, with ``votes`` (n, annotators, q) of 1, 0 and -1 (not asked). Features as in real_noise.py.
Parts:

- "labels": some random votes of each row are shown, and the truth is the majority of the hidden votes; labels with a
  tie are left out. With five shown votes of ptbr, one hidden vote is left. Five draws.
- "ecg": five readers of electrocardiograms, the three who are not cardiologists, and both with the probabilities of a
  network as one more annotator. The truth is the gold standard of two cardiologists, and a third where they disagree.
- "rates": synthetic votes with known rates, five draws: mean absolute error, that of counting against the true labels,
  and coverage of the 90 % intervals.
- "time": CPU seconds for a million votes without intervals.

The majority vote is positive if more than half of the votes are. Dawid-Skene, GLAD and MACE are those of crowd-kit, one
label at a time with default parameters; without crowd-kit, their rows of the file stay. No set was left out of
development: the constants were selected mainly on deu, ptbr and synthetic votes (draws 0 to 5), relex decided the prior
variances of the annotators, and ecg limited the prior of the levels and the threshold.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.special
from harness import parser, save
from real_noise import features, read
from sklearn.metrics import average_precision_score

from ccmn import infer_labels
from ccmn.votes import VoteTable

try:
    from crowdkit.aggregation import GLAD, MACE, DawidSkene

    CROWDKIT = {"Dawid-Skene": DawidSkene, "GLAD": GLAD, "MACE": lambda: MACE(random_state=0)}
except ImportError:
    CROWDKIT = {}

RESULTS = Path(__file__).resolve().parent.parent / "results" / "votes.csv"
SHOWN = {f"{name}, {n}": (name, n) for name in ("deu", "ptbr", "relex") for n in (2, 3, 5)}
"""Dataset and shown votes per row."""
READERS = {"five readers": [0, 1, 2, 3, 4], "three readers": [2, 3, 4]}
SYNTHETIC = {"few annotators": (1000, 8, 4, 3), "crowd": (1500, 200, 4, 4), "many votes": (2000, 20, 5, 5)}
"""Rows, annotators, labels and votes per row."""
MILLION = {"100 annotators": (40_000, 100, 5, 5), "10,000 annotators": (40_000, 10_000, 5, 5)}
"""Rows, annotators, labels and votes per row of a million votes."""
COLUMNS = ["part", "dataset", "draw", "method", "metric", "value"]
Value = tuple[str, str, float]
"""Method, metric, value."""


def load_votes(name: str) -> np.ndarray:
    votes = read(name, "votes")[0].astype(np.float64)
    return np.where(votes < 0, np.nan, votes)


def majority(votes: np.ndarray) -> np.ndarray:
    """Return the majority of votes (n, a, q), NaN if there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels without votes
        mean = np.nanmean(votes, 1)
    return np.where((mean == 0.5) | np.isnan(mean), np.nan, mean > 0.5)


def split_votes(votes: np.ndarray, n_shown: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random votes of every row, and the majority of the others."""
    voted = ~np.isnan(votes).all(2)
    ranks = np.where(voted, np.random.default_rng(draw).random(voted.shape), 2.0).argsort(1).argsort(1)
    shown = (ranks < n_shown)[:, :, None]
    return np.where(shown, votes, np.nan), majority(np.where(shown, np.nan, votes))


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


def run_labels(setting: str, draw: int) -> Iterator[Value]:
    name, n_shown = SHOWN[setting]
    votes, truth = split_votes(load_votes(name), n_shown, draw)
    for method, X in (("ccmn, votes", None), ("ccmn, votes and features", features(name))):
        inferred = infer_labels(votes, X, random_state=draw)
        for metric, value in evaluate(truth, inferred.proba, inferred.labels):
            yield method, metric, value
    others = {method: crowdkit(VoteTable.read(votes), method) for method in CROWDKIT}
    for method, proba in {"mean vote": np.nanmean(votes, 1), **others}.items():
        for metric, value in evaluate(truth, proba, proba > 0.5):
            yield method, metric, value


def run_ecg(setting: str, draw: int) -> Iterator[Value]:
    truth, networks = read("ecg", "Y_true", "scores")
    network, readers = networks[:, :1].astype(np.float64), load_votes("ecg")[:, READERS[setting]]
    for suffix, votes in (("", readers), (" and network", np.concatenate((readers, network), 1))):
        methods = {"ccmn": infer_labels(votes).labels, "majority vote": votes.mean(1) > 0.5}
        methods |= {method: crowdkit(VoteTable.read(votes), method) > 0.5 for method in CROWDKIT}
        for method, labels in methods.items():
            yield method + suffix, "errors", int((labels != truth).sum())


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


def run_rates(setting: str, draw: int) -> Iterator[Value]:
    X, Y, votes, rho_pos, rho_neg = synthetic(*SYNTHETIC[setting], draw)
    table, true = VoteTable.read(votes), Y[:, None] == 1
    voted = ~np.isnan(votes)
    yield "majority vote", "wrong", float(((np.nanmean(votes, 1) > 0.5) != Y).mean())
    for method, given in (("votes", None), ("votes and features", X)):
        inferred = infer_labels(table, given, random_state=draw)
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


def run_time(setting: str, draw: int) -> Iterator[Value]:
    n, a, q, per_row = MILLION[setting]
    rng = np.random.default_rng(draw)
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


PARTS: dict[str, tuple[Callable[[str, int], Iterator[Value]], tuple[str, ...], range]] = {
    "labels": (run_labels, tuple(SHOWN), range(5)),
    "ecg": (run_ecg, tuple(READERS), range(1)),
    "rates": (run_rates, tuple(SYNTHETIC), range(100, 105)),
    "time": (run_time, tuple(MILLION), range(1)),
}
"""Function, settings and draws of every part."""


def run(part: str, draws: range | None = None) -> pd.DataFrame:
    """Return the values of all settings and draws of a part."""
    function, settings, every = PARTS[part]
    cells = [(name, draw) for name in settings for draw in draws or every]
    rows = [(part, *cell, *value) for cell in cells for value in function(*cell)]
    return pd.DataFrame(rows, columns=COLUMNS).round({"value": 5})


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--part", choices=tuple(PARTS), help="run this part; default: all")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")  # poorly identified rates are what is measured
    if options.quick:
        CROWDKIT.clear()
        table = pd.concat([run("ecg"), run("rates", range(100, 101))])
    else:
        table = pd.concat([run(part) for part in ([options.part] if options.part else PARTS)])
        stored, key = pd.read_csv(RESULTS), ["part", "method"]
        kept = ~pd.MultiIndex.from_frame(stored[key]).isin(pd.MultiIndex.from_frame(table[key]))
        table = pd.concat([stored[kept], table]).sort_values(["part", "dataset", "draw"], kind="stable")
        save(table, RESULTS)
    summary = table.groupby(["part", "metric", "method", "dataset"], sort=False).value.mean().unstack("dataset")
    for part in table.part.unique():
        values = summary.loc[part].dropna(axis=1, how="all").round(4)
        print(values.to_json() if options.json else f"{part}\n{values.to_string()}\n")


if __name__ == "__main__":
    main()
