"""Measure the accuracy of estimated noise rates and the coverage of their intervals.

    python benchmarks/noise_rates.py                five draws on yeast, scene, mirflickr and enron (needs CCMN_DATA)
    python benchmarks/noise_rates.py --quick        one draw on yeast
    python benchmarks/noise_rates.py --all-methods  also all estimators of rate_estimators.py

Noise is added to the true labels of 70 % of the rows; labels with at least 30 positives are evaluated. "three": both
rates of every label are 0.1, 0.2 or 0.3, with 0, 50 and 200 trusted rows (means over five random samples of them in
each draw). "partial" and "missing": one rate of 0.1 to 0.4, with declared noise type. "undeclared": as "missing", but
with the noise type "both". "clean": no noise. ``error`` is the mean over labels of |error of rho_pos| + |error of
rho_neg|; rates of zero would have errors of 0.40 and 0.25. ``width`` is the mean width of the 90 % intervals. The
timing compares the CPU time of ``estimate_noise`` with that of one-vs-rest ``LogisticRegressionCV(Cs=6, cv=3)``, on
yeast and on a sparse bag of words.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import numpy as np
import rate_estimators
from draws import DATASETS, NOISE_TYPES, TRUSTED_SAMPLES, Draw, estimate, make_draw, with_trusted, write_csv
from harness import Result, parser, report
from scipy.sparse import issparse
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegressionCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from ccmn.data import load_dataset
from ccmn.estimation import estimate_noise
from ccmn.estimation.evidence import fit_surfaces, held_out_scores
from ccmn.noise import ClassConditionalNoise

SETTINGS = ("three", "partial", "missing", "undeclared", "clean")
TARGETS = {
    ("three", 0): 0.15,
    ("three", 50): 0.11,
    ("three", 200): 0.08,
    ("partial", 0): 0.06,
    ("missing", 0): 0.06,
    ("undeclared", 0): 0.15,
    ("clean", 0): 0.04,
}
"""Errors to reach, by setting and number of trusted rows."""
COLUMNS = ("error", "error_pos", "error_neg", "coverage_pos", "coverage_neg", "width_pos", "width_neg")


def measure(draw: Draw, labels) -> np.ndarray:
    """Return one number for each of ``COLUMNS``."""
    kept = draw.counted
    errors, covered, widths = [], [], []
    for name in ("pos", "neg"):
        true = getattr(draw.noise, f"rho_{name}")[kept]
        rates = [getattr(labels[j], name) for j in kept]
        errors.append(np.abs([rate.value for rate in rates] - true).mean())
        covered.append(np.mean([r.low - 1e-9 <= t <= r.high + 1e-9 for r, t in zip(rates, true)]))
        widths.append(np.mean([r.high - r.low for r in rates]))
    return np.array([sum(errors), *errors, *covered, *widths])


def row(draw: Draw, values: np.ndarray, method: str, trusted: int, seconds: float) -> dict[str, object]:
    known = {"dataset": draw.name, "setting": draw.setting, "trusted": trusted, "method": method, "draw": draw.number}
    return known | {name: round(float(v), 4) for name, v in zip(COLUMNS, values)} | {"seconds": round(seconds, 2)}


def run(name: str, setting: str, number: int, all_methods: bool) -> list[dict[str, object]]:
    """Estimate the rates of one draw with every method."""
    draw = make_draw(name, setting, number)
    evidence = draw.evidence()
    start = time.perf_counter()
    evidence = replace(evidence, surfaces=fit_surfaces(evidence))
    labels = estimate(evidence)
    rows = [row(draw, measure(draw, labels), "auto", 0, time.perf_counter() - start)]
    for count in (50, 200) if setting == "three" else ():
        samples = [estimate(with_trusted(evidence, draw, count, sample)) for sample in range(TRUSTED_SAMPLES)]
        rows.append(row(draw, np.mean([measure(draw, labels) for labels in samples], 0), "auto", count, 0.0))
    if setting in ("undeclared", "clean"):
        return rows
    start = time.perf_counter()
    scores = held_out_scores(evidence)
    scored = replace(evidence, pred_proba=scores)
    others = ("anchor_quantile", "forward", "correlations", "anchor") if all_methods else ()
    for method in ("anchor_max", "best_bin", "confident_joint", *others):
        estimator = getattr(rate_estimators, method, None)
        labels = estimate(scored, method) if estimator is None else estimator(scored, scores)
        # The time of the first method includes that of the scores.
        rows.append(row(draw, measure(draw, labels), method, 0, time.perf_counter() - start))
        start = time.perf_counter()
    return rows


def notes_of(rows: list[dict[str, object]]) -> dict[str, object]:
    """Return means over draws, then over datasets, with the targets."""
    notes: dict[str, object] = {}
    for key in dict.fromkeys((r["setting"], r["trusted"], r["method"]) for r in rows):
        mine = [r for r in rows if (r["setting"], r["trusted"], r["method"]) == key]
        sets = {name: [r for r in mine if r["dataset"] == name] for name in DATASETS}
        means = {
            name: {c: np.mean([r[c] for r in part]) for c in ("error", "error_neg")}
            for name, part in sets.items()
            if part
        }
        declared = {"missing": ("coverage_pos",), "partial": ("coverage_neg",)}
        columns = declared.get(NOISE_TYPES.get(str(key[0]), "both"), ("coverage_pos", "coverage_neg"))
        coverage = [np.mean([r[c] for r in part]) for c in columns for part in sets.values() if part]
        target = f" (target {TARGETS[key[0], key[1]]:g})" if key[2] == "auto" else ""
        notes[f"{key[0]}, {key[1]} trusted, {key[2]}"] = (
            f"error {np.mean([m['error'] for m in means.values()]):.3f}{target}, of rho_neg "
            f"{np.mean([m['error_neg'] for m in means.values()]):.3f}, coverage {np.mean(coverage):.2f} "
            f"(minimum over datasets and rates {min(coverage):.2f}); "
            + ", ".join(f"{name} {m['error']:.3f}" for name, m in means.items())
        )
    return notes


def cost(name: str, X, Y: np.ndarray) -> Result:
    """Compare the CPU time of ``estimate_noise`` with that of logistic regressions with cross-validated l2."""
    noisy = ClassConditionalNoise(0.2, 0.1, n_labels=Y.shape[1]).corrupt(Y, random_state=0)
    scaler = StandardScaler(with_mean=not issparse(X))
    start = time.process_time()
    OneVsRestClassifier(LogisticRegressionCV(Cs=6, cv=3)).fit(scaler.fit_transform(X), noisy)
    baseline = time.process_time() - start
    start = time.process_time()
    estimate_noise(X, noisy)
    seconds = time.process_time() - start
    return Result(f"estimate_noise: {name}", seconds, "LogisticRegressionCV", baseline, baseline / seconds)


def main() -> None:
    warnings.simplefilter("ignore")
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", help="write the rows to this file")
    arguments.add_argument("--draws", type=int, default=5, help="draws per dataset and setting")
    arguments.add_argument("--all-methods", action="store_true", help="run all estimators of rate_estimators.py")
    options = arguments.parse_args()
    names, draws = (("yeast",), 1) if options.quick else (DATASETS, options.draws)
    rows = []
    for name in names:
        for setting in SETTINGS:
            for number in range(draws):
                rows += run(name, setting, number, options.all_methods)
    yeast = load_dataset("yeast")
    words = make_multilabel_classification(3000, 8000, n_classes=20, n_labels=3, length=80, sparse=True, random_state=0)
    results = [cost("yeast", yeast.X, np.asarray(yeast.Y)), cost("3,000 x 8,000 words", *words)]
    if options.csv:
        write_csv(options.csv, rows)
    report(results, notes_of(rows), options.json)


if __name__ == "__main__":
    main()
