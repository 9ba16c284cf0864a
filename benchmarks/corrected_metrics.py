"""Compare metrics estimated from noisy labels with those on true labels, and check their standard errors.

    python benchmarks/corrected_metrics.py           five repeats on yeast, scene, enron, mirflickr (needs CCMN_DATA)
    python benchmarks/corrected_metrics.py --quick   two repeats on yeast and scene
    python benchmarks/corrected_metrics.py --csv results/corrected_metrics.csv    also writes every value

A ridge model is trained on noisy labels (moderate protocol, l2 penalty 0.001 times the mean squared norm of a row) and
evaluated on noisy test labels: with the true rates, and with rates that have random errors with a standard error of
0.03. For each metric the script prints the distance of the uncorrected value and of both estimates from the value on
true labels, and the root mean square of (estimate - true value) / se. It should be at most about 1: true and noisy
labels belong to the same rows, so the sampling of rows, which the standard error includes, does not contribute. The
timing compares standard errors from derivatives with a bootstrap of 50 resamples.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from harness import compare, parser, report
from sklearn.linear_model import Ridge

from ccmn.data import MultiLabelData, load_dataset
from ccmn.metrics import METRICS, Estimate, Metric
from ccmn.noise import ClassConditionalNoise
from ccmn.paper.protocols import MODERATE, Repeat, make_repeat

RATE_SE = 0.03
"""Standard error of the rates."""
N_RESAMPLES = 50
COLUMNS = ("dataset", "repeat", "metric", "rates", "clean", "noisy", "estimate", "se", "status")


@dataclass(frozen=True)
class UncertainRates:
    """Noise rates with random errors, and their standard errors."""

    noise: ClassConditionalNoise
    se_pos: np.ndarray
    se_neg: np.ndarray


def dense(X) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def scores_on_test_set(data: MultiLabelData, repeat: Repeat) -> np.ndarray:
    X, p = dense(data.X[repeat.train]), dense(repeat.noise.debias(dense(repeat.noisy[repeat.train])))
    model = Ridge(alpha=0.5e-3 * (X**2).sum()).fit(X, 2 * p - 1)
    return model.predict(dense(data.X[repeat.test]))


def perturb_rates(noise: ClassConditionalNoise, random_state: int) -> UncertainRates:
    rng = np.random.default_rng(random_state)
    perturbed = (np.clip(r + rng.normal(0, RATE_SE, r.size), 0, 0.9) for r in (noise.rho_pos, noise.rho_neg))
    se = np.full(noise.n_labels, RATE_SE)
    return UncertainRates(ClassConditionalNoise(*perturbed), se, se)


def second_argument(metric: Metric, scores: np.ndarray) -> np.ndarray:
    return (scores >= 0).astype(int) if metric.needs == "labels" else scores


def clean_value(metric: Metric, Y: np.ndarray, scores: np.ndarray) -> float:
    """Return the metric on true labels; the ranking loss is pooled over rows, as its estimate."""
    if metric.name == "ranking_loss":
        zero = ClassConditionalNoise(0.0, 0.0, n_labels=Y.shape[1])
        return metric.function(Y, scores, noise=zero).value
    return metric.function(Y, second_argument(metric, scores))


def evaluate(data: MultiLabelData, repeat: Repeat, number: int) -> list[tuple]:
    scores, Y, Z = scores_on_test_set(data, repeat), dense(data.Y[repeat.test]), dense(repeat.noisy[repeat.test])
    rows = []
    for metric in METRICS.values():
        clean, noisy = clean_value(metric, Y, scores), clean_value(metric, Z, scores)
        for rates, noise in (("known", repeat.noise), ("estimated", perturb_rates(repeat.noise, number))):
            estimate = metric.function(Z, second_argument(metric, scores), noise=noise)
            rows.append(
                (data.name, number, metric.name, rates, clean, noisy, estimate.value, estimate.se, estimate.status)
            )
    return rows


def timing(data: MultiLabelData, repeat: Repeat, metric: Metric):
    other, Z = second_argument(metric, scores_on_test_set(data, repeat)), dense(repeat.noisy[repeat.test])
    rng = np.random.default_rng(0)
    samples = [rng.integers(len(Z), size=len(Z)) for _ in range(N_RESAMPLES)]

    def derivatives() -> Estimate:
        return metric.function(Z, other, noise=repeat.noise)

    def bootstrap() -> list[float]:
        return [metric.function(Z[rows], other[rows], noise=repeat.noise).value for rows in samples]

    result = compare(f"{metric.name}: {data.name}", derivatives, f"bootstrap of {N_RESAMPLES}", bootstrap, 0.4)
    return result, f"{derivatives().se:.4f} by derivatives, {np.std(bootstrap(), ddof=1):.4f} by bootstrap"


def summary(rows: list[tuple]) -> dict[str, str]:
    errors = defaultdict(list)
    for name, _, metric, rates, clean, noisy, value, se, status in rows:
        errors[name, metric, rates].append((abs(noisy - clean), abs(value - clean), (value - clean) / se, status))
    notes = {}
    for (name, metric, rates), values in errors.items():
        noisy, distance, score = (np.array([v[i] for v in values]) for i in range(3))
        line = f"error {distance.mean():.3f} (uncorrected {noisy.mean():.3f}), {np.sqrt((score**2).mean()):.2f} se"
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
            rows += evaluate(data, repeat, number)
        if name == "yeast":
            for metric in METRICS.values():
                result, errors[f"yeast, standard error of {metric.name}"] = timing(data, repeats[0], metric)
                results.append(result)
    if options.csv:
        write(options.csv, rows)
    report(results, {**errors, **summary(rows)}, options.json)


if __name__ == "__main__":
    main()
