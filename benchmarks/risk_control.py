"""Measure how often thresholds from risk control on noisy labels miss their target on clean labels.

    python benchmarks/risk_control.py           500 draws on scene and tmc, about ten minutes (needs CCMN_DATA)
    python benchmarks/risk_control.py --quick   100 draws on scene
    python benchmarks/risk_control.py --csv results/risk_control.csv    also writes the table

A linear model is trained on clean labels of 1000 (scene) or 5000 (tmc) rows. The other rows are the population. Each
draw takes calibration rows from the population with replacement, adds noise to their labels and selects a threshold.
The metric on clean labels is then computed on the whole population, which is a test sample of unlimited size. A
violation is a draw in which it misses its target. Noise rates are largest for the labels that the model predicts worst,
because what is difficult for the model is usually difficult for annotators.

calibration:
    corrected     debiased labels with the known rates, 1000 rows
    uncorrected   the same noisy labels, used as if they were clean
    trusted       5000 rows, 200 of them verified; rates estimated by counting on these rows
    rates         the same without the verified labels: estimated rates with standard errors only (recall)
    clean         the clean labels of the same rows

size is the mean number of predicted labels per row, relative to the threshold from clean labels of as many rows.
"""

from __future__ import annotations

import csv
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from math import nan, sqrt

import numpy as np
from harness import machine, parser

from ccmn import (
    ClassConditionalNoise,
    CorrectedClassifier,
    MissingNoise,
    PartialNoise,
    control_risk,
    estimate_noise,
)
from ccmn.data import load_dataset
from ccmn.metrics import RiskControl
from ccmn.noise import NoiseModel

CONFIDENCE = 0.9
N_KNOWN, N_ESTIMATED, N_TRUSTED = 1000, 5000, 200
N_TRAIN = {"scene": 1000, "tmc": 5000}
TARGETS = {
    "scene": {"recall": 0.9, "precision": 0.7, "hamming": 0.13},
    "tmc": {"recall": 0.9, "precision": 0.7, "hamming": 0.07},
}
AT_LEAST = ("recall", "precision")


@dataclass(frozen=True)
class Row:
    """Result of one simulation."""

    dataset: str
    noise: str
    metric: str
    target: float
    calibration: str
    n: int
    draws: int
    violations: float
    """Share of draws in which the metric on clean labels misses its target."""
    limit: float
    """Largest acceptable share: 0.1 plus two standard errors, or 0.15 for estimated rates."""
    guaranteed: float
    """Share of draws with a guarantee."""
    size: float


@dataclass(frozen=True)
class Population:
    """Rows with clean labels and the scores of a model that was not trained on them."""

    name: str
    Y: np.ndarray
    scores: np.ndarray

    def value(self, metric: str, threshold: float) -> float:
        """Return the metric on clean labels."""
        predicted, Y = self.scores >= threshold, self.Y
        if metric == "recall":
            return float(Y[predicted].sum() / Y.sum())
        if metric == "precision":
            return float(Y[predicted].mean()) if predicted.any() else 1.0
        if metric == "hamming":
            return float((predicted != (Y == 1)).mean())
        return float(((Y * ~predicted).sum(1) / np.maximum(Y.sum(1), 1)).mean())

    def noise_models(self) -> dict[str, NoiseModel]:
        """Return three kinds of noise with the largest rates for the labels of the smallest recall."""
        q = self.Y.shape[1]
        threshold = np.quantile(self.scores, 1 - 2 * self.Y.mean())
        recall = (self.Y * (self.scores >= threshold)).sum(0) / np.maximum(self.Y.sum(0), 1)
        rank = np.empty(q)
        rank[np.argsort(-recall)] = np.linspace(0, 1, q)
        return {
            "both": ClassConditionalNoise(0.1 + 0.3 * rank, 0.05 + 0.1 * rank),
            "partial": PartialNoise(0.1 + 0.3 * rank),
            "missing": MissingNoise(0.1 + 0.5 * rank),
        }


def load_population(name: str) -> Population:
    data, n = load_dataset(name), N_TRAIN[name]
    Y = np.asarray(data.Y.toarray() if hasattr(data.Y, "toarray") else data.Y, dtype=np.float64)
    order = np.random.default_rng(0).permutation(data.n)
    train, rest = order[:n], order[n:]
    model = CorrectedClassifier(noise=None, random_state=0).fit(data.X[train], Y[train])
    return Population(name, Y[rest], model.predict_proba(data.X[rest]))


class Simulation:
    """Thresholds of one kind of calibration over many draws."""

    def __init__(self, population: Population, metric: str) -> None:
        self.population, self.metric = population, metric
        self.target = TARGETS[population.name][metric]
        self.controls: list[RiskControl] = []

    def add(self, labels, rows, noise, trusted=None) -> None:
        scores = self.population.scores[rows]
        self.controls.append(control_risk(labels, scores, noise, self.metric, self.target, CONFIDENCE, trusted=trusted))

    def size(self) -> float:
        """Return the mean number of predicted labels per row."""
        return float(np.mean([(self.population.scores >= c.threshold).sum(1).mean() for c in self.controls]))

    def row(self, noise: str, calibration: str, n: int, limit: float, clean: Simulation) -> Row:
        # Without a guarantee nothing is claimed: thresholds that are returned then do not count as violations.
        missed = [c.guaranteed and self._misses_target(c.threshold) for c in self.controls]
        return Row(
            self.population.name,
            noise,
            self.metric,
            self.target,
            calibration,
            n,
            len(self.controls),
            float(np.mean(missed)),
            limit,
            float(np.mean([c.guaranteed for c in self.controls])),
            self.size() / clean.size() if clean.size() else nan,
        )

    def _misses_target(self, threshold: float) -> bool:
        value = self.population.value(self.metric, threshold)
        return value < self.target if self.metric in AT_LEAST else value > self.target


def simulate_clean(population: Population, metric: str, n: int, draws: int) -> Simulation:
    """Calibrate on clean labels of the rows that the simulations with noise also draw."""
    clean = Simulation(population, metric)
    for draw in range(draws):
        rows = np.random.default_rng((draw, n)).integers(len(population.Y), size=n)
        clean.add(population.Y[rows], rows, None)
    return clean


def simulate_known(population: Population, noise: NoiseModel, metric: str, draws: int) -> dict[str, Simulation]:
    """Calibrate on noisy labels with known rates, and without correction."""
    corrected, uncorrected = Simulation(population, metric), Simulation(population, metric)
    for draw in range(draws):
        rng = np.random.default_rng((draw, N_KNOWN))
        rows = rng.integers(len(population.Y), size=N_KNOWN)
        noisy = noise.corrupt(population.Y[rows], random_state=rng)
        corrected.add(noisy, rows, noise)
        uncorrected.add(noisy, rows, None)
    return {"corrected": corrected, "uncorrected": uncorrected}


def simulate_estimated(population: Population, noise: NoiseModel, metric: str, draws: int) -> dict[str, Simulation]:
    """Calibrate with trusted rows and estimated rates, and (recall) with the estimated rates alone."""
    trusted, rates_only = Simulation(population, metric), Simulation(population, metric)
    for draw in range(draws):
        rng = np.random.default_rng((draw, N_ESTIMATED))
        rows = rng.integers(len(population.Y), size=N_ESTIMATED)
        true, verified = population.Y[rows], np.arange(N_TRUSTED)
        noisy = noise.corrupt(true, random_state=rng)
        pairs = verified, true[verified]
        rates = estimate_noise(Y_noisy=noisy, trusted=pairs)
        trusted.add(noisy, rows, rates, pairs)
        if metric == "recall":
            rates_only.add(noisy, rows, rates)
    return {"trusted": trusted, "rates": rates_only} if metric == "recall" else {"trusted": trusted}


def simulate(name: str, known: int, estimated: int) -> Iterator[Row]:
    """Run all simulations of a dataset."""
    population = load_population(name)
    known_limit = 1 - CONFIDENCE + 2 * sqrt(CONFIDENCE * (1 - CONFIDENCE) / known)
    estimated_limit = 1.5 * (1 - CONFIDENCE)
    for metric in TARGETS[name]:
        few = simulate_clean(population, metric, N_KNOWN, known)
        many = simulate_clean(population, metric, N_ESTIMATED, estimated)
        yield few.row("none", "clean", N_KNOWN, known_limit, few)
        yield many.row("none", "clean", N_ESTIMATED, estimated_limit, many)
        for noise_name, noise in population.noise_models().items():
            for kind, done in simulate_known(population, noise, metric, known).items():
                yield done.row(noise_name, kind, N_KNOWN, known_limit, few)
            for kind, done in simulate_estimated(population, noise, metric, estimated).items():
                yield done.row(noise_name, kind, N_ESTIMATED, estimated_limit, many)


def write(path: str, rows: list[Row]) -> None:
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        writer.writerows([f"{v:.4f}" if isinstance(v, float) else v for v in asdict(row).values()] for row in rows)


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", metavar="FILE", help="write the table to this file")
    options = arguments.parse_args()
    known, estimated = (100, 20) if options.quick else (500, 200)
    start, rows = time.perf_counter(), []
    if not options.json:
        print("data   metric     noise    calibration     n  violations  limit  guaranteed  size")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a threshold without a guarantee is counted, not reported
        for name in ("scene",) if options.quick else ("scene", "tmc"):
            for r in simulate(name, known, estimated):
                rows.append(r)
                if not options.json:
                    case = f"{r.dataset:<7}{r.metric:<11}{r.noise:<9}{r.calibration:<12}{r.n:>5}"
                    print(f"{case}{r.violations:>12.3f}{r.limit:>7.3f}{r.guaranteed:>12.2f}{r.size:>6.2f}", flush=True)
    if options.csv:
        write(options.csv, rows)
    seconds = time.perf_counter() - start
    if options.json:
        print(json.dumps({"machine": machine(), "seconds": seconds, "results": [asdict(row) for row in rows]}))
    else:
        print(f"{seconds:.0f} s")


if __name__ == "__main__":
    main()
