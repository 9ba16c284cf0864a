"""How near are metrics estimated from noisy labels to those of clean ones, and do their standard errors say so?

    python benchmarks/corrected_metrics.py           five repeats on yeast, scene, enron, mirflickr (needs CCMN_DATA)
    python benchmarks/corrected_metrics.py --quick   two repeats on yeast and scene
    python benchmarks/corrected_metrics.py --csv results/corrected_metrics.csv    also writes every value

A ridge model trained on noisy labels (moderate protocol, l2 a thousandth of the mean squared length of a row) is held
against noisy test labels: with the true rates, and with rates that are off by draws of their standard error of 0.03, as
estimated ones are. Printed, metric by metric: how far the noisy value and the two estimates are from the clean value,
and the root mean square of (estimate - clean) / se. It should be near 1 or below: the rows are the same on both sides,
so that part of the standard error does not show. The timing: standard errors by derivatives against a bootstrap of 50.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from harness import compare, parser, report

from ccmn.data import MultiLabelData, load_dataset
from ccmn.experiments.protocols import MODERATE, Repeat, make_repeat
from ccmn.metrics import METRICS, Metric
from ccmn.metrics.metric import Estimate
from ccmn.noise import ClassConditionalNoise
from ccmn.training.ridge import ridge_path

SE = 0.03
RESAMPLES = 50
COLUMNS = ("dataset", "repeat", "metric", "rates", "clean", "noisy", "estimate", "se", "status")


@dataclass(frozen=True)
class Uncertain:
    """Rates that are off, and by how much they may be."""

    noise: ClassConditionalNoise
    se_pos: np.ndarray
    se_neg: np.ndarray


def dense(X) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def scores_on_test_rows(data: MultiLabelData, repeat: Repeat) -> np.ndarray:
    X, p = dense(data.X[repeat.train]), dense(repeat.noise.debias(dense(repeat.noisy[repeat.train])))
    W, b = ridge_path(X, p, np.array([1e-3 * (X**2).sum(1).mean()])).solution(np.zeros(data.q, dtype=int))
    return dense(data.X[repeat.test]) @ W + b


def off(noise: ClassConditionalNoise, seed: int) -> Uncertain:
    rng = np.random.default_rng(seed)
    drawn = (np.clip(r + rng.normal(0, SE, r.size), 0, 0.9) for r in (noise.rho_pos, noise.rho_neg))
    return Uncertain(ClassConditionalNoise(*drawn), np.full(noise.n_labels, SE), np.full(noise.n_labels, SE))


def given(metric: Metric, scores: np.ndarray) -> np.ndarray:
    return (scores >= 0).astype(int) if metric.needs == "labels" else scores


def clean_value(metric: Metric, Y: np.ndarray, scores: np.ndarray) -> float:
    """The plain metric; of the ranking loss the pooled one, which is what is estimated."""
    if metric.name == "ranking_loss":
        zero = ClassConditionalNoise(0.0, 0.0, n_labels=Y.shape[1])
        return metric.function(Y, scores, noise=zero).value
    return metric.function(Y, given(metric, scores))


def values_of(data: MultiLabelData, repeat: Repeat, number: int) -> list[tuple]:
    scores, Y, Z = scores_on_test_rows(data, repeat), dense(data.Y[repeat.test]), dense(repeat.noisy[repeat.test])
    rows = []
    for metric in METRICS.values():
        ends = clean_value(metric, Y, scores), clean_value(metric, Z, scores)
        for rates, noise in (("known", repeat.noise), ("estimated", off(repeat.noise, number))):
            found = metric.function(Z, given(metric, scores), noise=noise)
            rows.append((data.name, number, metric.name, rates, *ends, found.value, found.se, found.status))
    return rows


def timing(data: MultiLabelData, repeat: Repeat, metric: Metric):
    other, Z = given(metric, scores_on_test_rows(data, repeat)), dense(repeat.noisy[repeat.test])
    rng = np.random.default_rng(0)
    samples = [rng.integers(len(Z), size=len(Z)) for _ in range(RESAMPLES)]

    def ours() -> Estimate:
        return metric.function(Z, other, noise=repeat.noise)

    def bootstrap() -> list[float]:
        return [metric.function(Z[rows], other[rows], noise=repeat.noise).value for rows in samples]

    result = compare(f"{metric.name}: {data.name}", ours, f"bootstrap of {RESAMPLES}", bootstrap, 0.4)
    return result, f"{ours().se:.4f} by derivatives, {np.std(bootstrap(), ddof=1):.4f} by bootstrap"


def summary(rows: list[tuple]) -> dict[str, str]:
    found = defaultdict(list)
    for name, _, metric, rates, clean, noisy, value, se, status in rows:
        found[name, metric, rates].append((abs(noisy - clean), abs(value - clean), (value - clean) / se, status))
    notes = {}
    for (name, metric, rates), values in found.items():
        noisy, distance, score = (np.array([v[i] for v in values]) for i in range(3))
        line = f"off by {distance.mean():.3f} (noisy by {noisy.mean():.3f}), {np.sqrt((score**2).mean()):.2f} se"
        notes[f"{name}, {metric}, {rates} rates"] = f"{line}, {'/'.join(sorted({v[3] for v in values}))}"
    return notes


def write(path: str, rows: list[tuple]) -> None:
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((*row[:4], *(f"{value:.6f}" for value in row[4:8]), row[8]) for row in rows)


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", metavar="FILE", help="write every value to this file")
    options = arguments.parse_args()
    rows, results, errors = [], [], {}
    for name in ("yeast", "scene") if options.quick else ("yeast", "scene", "enron", "mirflickr"):
        data = load_dataset(name)
        repeats = [make_repeat(data, MODERATE, k) for k in range(2 if options.quick else 5)]
        for number, repeat in enumerate(repeats):
            rows += values_of(data, repeat, number)
        if name == "yeast":
            for metric in METRICS.values():
                result, errors[f"yeast, standard error of {metric.name}"] = timing(data, repeats[0], metric)
                results.append(result)
    if options.csv:
        write(options.csv, rows)
    report(results, {**errors, **summary(rows)}, options.json)


if __name__ == "__main__":
    main()
