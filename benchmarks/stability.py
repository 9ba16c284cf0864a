"""Which loss suits which model, when the labels are noisy and so are those that choose the epoch?

    python benchmarks/stability.py           two seeds on digit scenes and synthetic data
    python benchmarks/stability.py --quick   one seed on synthetic data, one pair of rates, no user's network
    python benchmarks/stability.py --csv results/stability.csv    also writes every value

Linear models, "mlp" (one hidden layer of 128) and a user's network (two of 256) under nine training losses; 800
training rows, the true rates given, learning rate (one only for the user's network) and epoch chosen by the corrected
criterion on 400 rows that are noisy, too: so few rows that a network could learn every noisy label by heart. Values are
those of clean test labels. "clean" is the same with clean training and validation labels, Hamming / logistic: what
could be reached. The timing that comes with it: the monitor of negative risk parts against the fit that it follows.
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
    "plugin": {"loss": "plugin"},
}


def two_layers(n_features: int, n_outputs: int) -> torch.nn.Module:
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
    """Training, validation and test rows, in this order."""

    X: np.ndarray
    Y: np.ndarray

    def rows(self, part: str) -> slice:
        first = {"train": 0, "validation": TRAIN, "test": TRAIN + VALIDATION}[part]
        return slice(first, first + {"train": TRAIN, "validation": VALIDATION, "test": TEST}[part])


def digits(seed: int) -> Task:
    """The pictures of test rows are made of other handwritten digits."""
    data = load_digit_scenes(2 * TEST, random_state=seed)
    order = np.r_[: TRAIN + VALIDATION, TEST : 2 * TEST]
    return Task(data.X[order], data.Y[order])


def synthetic(seed: int) -> Task:
    prevalence = np.linspace(0.1, 0.5, 8)
    made = make_noisy_multilabel(TRAIN + VALIDATION + TEST, 20, 8, prevalence=prevalence, random_state=seed)
    return Task(made.X, made.Y)


TASKS: dict[str, Callable[[int], Task]] = {"digits": digits, "synthetic": synthetic}


def fit(task: Task, labels: np.ndarray, noise: ClassConditionalNoise | None, seed: int, **settings) -> CCMNClassifier:
    clf = CCMNClassifier(noise, epochs=EPOCHS, device="cpu", random_state=seed, **settings)
    train, validation = task.rows("train"), task.rows("validation")
    return clf.fit(task.X[train], labels[train], validation=(task.X[validation], labels[validation]))


def values_on_test_rows(task: Task, clf: CCMNClassifier) -> tuple[float, ...]:
    X, Y = task.X[task.rows("test")], task.Y[task.rows("test")]
    scores = clf.decision_function(X)
    values = hamming_loss(Y, clf.predict(X)), ranking_loss(Y, scores), average_precision(Y, scores)
    return tuple(float(v) for v in values)


def run(task: Task, labels: np.ndarray, noise: ClassConditionalNoise | None, seed: int, **settings) -> tuple:
    """Test values, the lowest part of the training risk (nan where there is none), and whether fit warned of it."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        clf = fit(task, labels, noise, seed, **settings)
    lowest = float("nan") if clf.risk_parts_ is None else float(clf.risk_parts_.min())
    return (*values_on_test_rows(task, clf), lowest, int(any("training risk" in str(w.message) for w in heard)))


def rows_of(name: str, seed: int, rates: tuple[tuple[float, float], ...], models: tuple[str, ...]) -> Iterator[tuple]:
    task = TASKS[name](seed)
    for model in models:
        of_model = MODELS[model]
        ceiling = run(task, task.Y, None, seed, **of_model, **METHODS["hamming-logistic"])
        yield (name, model, "clean", 0.0, 0.0, seed, *ceiling)
        for pair in rates:
            noise = ClassConditionalNoise(*pair, n_labels=task.Y.shape[1])
            noisy = noise.corrupt(task.Y, random_state=seed)
            for method, of_method in METHODS.items():
                yield (name, model, method, *pair, seed, *run(task, noisy, noise, seed, **of_model, **of_method))


def timing(name: str) -> Result:
    """The monitor against the fit before it, "mlp" with one learning rate."""
    task = TASKS[name](0)
    noise = ClassConditionalNoise(0.1, 0.4, n_labels=task.Y.shape[1])
    noisy = noise.corrupt(task.Y, random_state=0)
    start = time.perf_counter()
    clf = fit(task, noisy, noise, 0, model="mlp", lr=1e-3, loss="hamming", surrogate="logistic")
    whole = time.perf_counter() - start
    X, p = task.X[task.rows("train")], noise.debias(noisy[task.rows("train")].astype(np.float32))
    watch = seconds_of(lambda: risk_parts(HammingLoss("logistic"), clf._scorer.network.outputs(X), p))
    return Result(f"monitor of risk parts: {name}", watch, "the fit", whole, whole / watch)


def write(path: str, rows: list[tuple]) -> None:
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            lowest = "" if np.isnan(row[-2]) else f"{row[-2]:.4g}"
            writer.writerow((*row[:6], *(f"{value:.6f}" for value in row[6:9]), lowest, row[-1]))


def summary(rows: list[tuple]) -> dict[str, object]:
    """Means over rates and seeds, and for how many fits the monitor spoke up."""
    found = defaultdict(list)
    for row in rows:
        found[row[:3]].append((*row[6:9], row[-1]))
    notes: dict[str, object] = {}
    for (name, model, method), values in found.items():
        means = np.mean(values, axis=0)
        shown = " / ".join(f"{value:.3f}" for value in means[:3])
        notes[f"{name}, {model}, {method}"] = f"{shown}, warned of in {sum(v[-1] for v in values)} of {len(values)}"
    return notes


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", metavar="FILE", help="write every value to this file")
    options = arguments.parse_args()
    names = ("synthetic",) if options.quick else tuple(TASKS)
    rates = RATES[-1:] if options.quick else RATES
    models = ("linear", "mlp") if options.quick else tuple(MODELS)
    seeds = range(1 if options.quick else 2)
    rows = [row for name in names for seed in seeds for row in rows_of(name, seed, rates, models)]
    if options.csv:
        write(options.csv, rows)
    notes = {"values": "Hamming loss / ranking loss / average precision on clean test labels", **summary(rows)}
    report([timing(name) for name in names], notes, options.json)


if __name__ == "__main__":
    main()
