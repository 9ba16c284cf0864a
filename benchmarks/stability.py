"""Comparison of training losses with noisy training labels and noisy validation labels.

    python benchmarks/stability.py           two repeats on digit scenes and synthetic data
    python benchmarks/stability.py --quick   one repeat on synthetic data, one pair of rates, no custom network
    python benchmarks/stability.py --csv results/stability.csv    also write every value

Compares nine training losses for linear models, "mlp" (one hidden layer of 128 units) and a custom network (two hidden
layers of 256 units). There are 800 training rows, few enough for a network to memorize every noisy label. The true
rates are given. The learning rate (a single one for the custom network) and the epoch are selected by the corrected
criterion on 400 noisy validation rows. Metrics are computed on true test labels. "clean" is the logistic Hamming loss
with true training and validation labels, an upper bound. The timing compares the monitor of negative risk parts with
the fit.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from harness import Result, parser, report, seconds_of

from ccmn import CCMNClassifier, ClassConditionalNoise
from ccmn.data import load_digit_scenes, make_noisy_multilabel
from ccmn.losses import HammingLoss
from ccmn.metrics import average_precision, hamming_loss, ranking_loss
from ccmn.models.monitor import risk_parts

RATES = ((0.0, 0.6), (0.2, 0.2), (0.6, 0.0), (0.1, 0.4))
"""(rho_pos, rho_neg) of every label."""
TRAIN, VALIDATION, TEST = 800, 400, 2000
EPOCHS = 30
METRICS = ("hamming_loss", "ranking_loss", "average_precision")
COLUMNS = ("dataset", "model", "method", "rho_pos", "rho_neg", "seed", *METRICS, "lowest_part", "warned")

METHODS: dict[str, dict[str, str]] = {
    "hamming-square": {"loss": "hamming", "surrogate": "square"},
    "hamming-logistic": {"loss": "hamming", "surrogate": "logistic"},
    "hamming-logistic-abs": {"loss": "hamming", "surrogate": "logistic", "correction": "abs"},
    "hamming-logistic-relu": {"loss": "hamming", "surrogate": "logistic", "correction": "relu"},
    "ranking-sigmoid": {"loss": "ranking", "surrogate": "sigmoid"},
    "ranking-logistic": {"loss": "ranking", "surrogate": "logistic"},
    "ranking-logistic-abs": {"loss": "ranking", "surrogate": "logistic", "correction": "abs"},
    "forward": {"loss": "forward"},
    "plugin": {"loss": "plugin", "solver": "adam"},
}


def two_layers(n_features: int, n_outputs: int) -> torch.nn.Module:
    """Return a network with two hidden layers."""
    return torch.nn.Sequential(
        torch.nn.Linear(n_features, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, n_outputs),
    )


MODELS: dict[str, dict[str, object]] = {
    "linear": {"model": "linear", "lr": (5e-2, 5e-3)},
    "mlp": {"model": "mlp", "lr": (5e-3, 1e-3)},
    "network": {"model": two_layers, "lr": 2e-3},
}


@dataclass(frozen=True)
class Task:
    """Features and labels of training, validation and test rows, in this order."""

    X: np.ndarray
    Y: np.ndarray

    def rows(self, part: str) -> slice:
        first = {"train": 0, "validation": TRAIN, "test": TRAIN + VALIDATION}[part]
        return slice(first, first + {"train": TRAIN, "validation": VALIDATION, "test": TEST}[part])


def digits(random_state: int) -> Task:
    """Return pictures of digits; test pictures contain other handwritten digits than training pictures."""
    data = load_digit_scenes(2 * TEST, random_state=random_state)
    order = np.r_[: TRAIN + VALIDATION, TEST : 2 * TEST]
    return Task(data.X[order], data.Y[order])


def synthetic(random_state: int) -> Task:
    prevalence = np.linspace(0.1, 0.5, 8)
    made = make_noisy_multilabel(TRAIN + VALIDATION + TEST, 20, 8, prevalence=prevalence, random_state=random_state)
    return Task(made.X, made.Y)


TASKS: dict[str, Callable[[int], Task]] = {"digits": digits, "synthetic": synthetic}


def fit(
    task: Task, labels: np.ndarray, noise: ClassConditionalNoise | None, random_state: int, **settings
) -> CCMNClassifier:
    # All losses get the features as they are, as the network of the user does.
    clf = CCMNClassifier(noise, epochs=EPOCHS, scale=False, device="cpu", random_state=random_state, **settings)
    train, validation = task.rows("train"), task.rows("validation")
    return clf.fit(task.X[train], labels[train], validation=(task.X[validation], labels[validation]))


def values_on_test_rows(task: Task, clf: CCMNClassifier) -> tuple[float, ...]:
    X, Y = task.X[task.rows("test")], task.Y[task.rows("test")]
    scores = clf.decision_function(X)
    values = hamming_loss(Y, clf.predict(X)), ranking_loss(Y, scores), average_precision(Y, scores)
    return tuple(float(v) for v in values)


def run(task: Task, labels: np.ndarray, noise: ClassConditionalNoise | None, random_state: int, **settings) -> tuple:
    """Return the test metrics, the minimum part of the training risk (NaN if none), and whether fit warned about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = fit(task, labels, noise, random_state, **settings)
    lowest = float("nan") if clf.risk_parts_ is None else float(clf.risk_parts_.min())
    return (*values_on_test_rows(task, clf), lowest, int(any("training risk" in str(w.message) for w in caught)))


def rows_of(
    name: str, random_state: int, rates: tuple[tuple[float, float], ...], models: tuple[str, ...]
) -> Iterator[tuple]:
    """Yield the rows of the CSV file."""
    task = TASKS[name](random_state)
    for model in models:
        options = MODELS[model]
        clean = run(task, task.Y, None, random_state, **options, **METHODS["hamming-logistic"])
        yield (name, model, "clean", 0.0, 0.0, random_state, *clean)
        for pair in rates:
            noise = ClassConditionalNoise(*pair, n_labels=task.Y.shape[1])
            noisy = noise.corrupt(task.Y, random_state=random_state)
            for method, loss in METHODS.items():
                values = run(task, noisy, noise, random_state, **options, **loss)
                yield (name, model, method, *pair, random_state, *values)


def timing(name: str) -> Result:
    """Compare the time of the monitor with the time of the fit of "mlp" with one learning rate."""
    task = TASKS[name](0)
    noise = ClassConditionalNoise(0.1, 0.4, n_labels=task.Y.shape[1])
    noisy = noise.corrupt(task.Y, random_state=0)
    start = time.perf_counter()
    clf = fit(task, noisy, noise, 0, model="mlp", lr=1e-3, loss="hamming", surrogate="logistic")
    whole = time.perf_counter() - start
    X, p = task.X[task.rows("train")], noise.debias(noisy[task.rows("train")].astype(np.float32))
    monitor = seconds_of(lambda: risk_parts(HammingLoss("logistic"), clf._scorer.network.outputs(X), p))
    return Result(f"monitor of risk parts: {name}", monitor, "the fit", whole, whole / monitor)


def write(path: str, rows: list[tuple]) -> None:
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            lowest = "" if np.isnan(row[-2]) else f"{row[-2]:.4g}"
            writer.writerow((*row[:6], *(f"{value:.6f}" for value in row[6:9]), lowest, row[-1]))


def summary(rows: list[tuple]) -> dict[str, object]:
    """Return means over rates and repeats, and the number of fits with a warning of the monitor."""
    found = defaultdict(list)
    for row in rows:
        found[row[:3]].append((*row[6:9], row[-1]))
    notes: dict[str, object] = {}
    for (name, model, method), values in found.items():
        means = np.mean(values, axis=0)
        shown = " / ".join(f"{value:.3f}" for value in means[:3])
        notes[f"{name}, {model}, {method}"] = f"{shown}, warnings in {sum(v[-1] for v in values)} of {len(values)}"
    return notes


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", metavar="FILE", help="write every value to FILE")
    options = arguments.parse_args()
    names = ("synthetic",) if options.quick else tuple(TASKS)
    rates = RATES[-1:] if options.quick else RATES
    models = ("linear", "mlp") if options.quick else tuple(MODELS)
    repeats = range(1 if options.quick else 2)
    rows = [row for name in names for repeat in repeats for row in rows_of(name, repeat, rates, models)]
    if options.csv:
        write(options.csv, rows)
    notes = {"values": "Hamming loss / ranking loss / average precision on true test labels", **summary(rows)}
    report([timing(name) for name in names], notes, options.json)


if __name__ == "__main__":
    main()
