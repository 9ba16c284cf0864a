"""Measure the accuracy of estimated noise rates and the coverage of their intervals.

    python benchmarks/noise_rates.py                five draws on yeast, scene, mirflickr and enron (needs CCMN_DATA)
    python benchmarks/noise_rates.py --quick        one draw on yeast and scene
    python benchmarks/noise_rates.py --all-methods  also all estimators of rate_estimators.py

Noise is added to the true labels of 70 % of the rows; labels with at least 30 positives are evaluated. "three": both
rates of every label are 0.1, 0.2 or 0.3, with 0, 50 and 200 trusted rows (means over five random samples of them in
each draw). "partial" and "missing": one rate of 0.1 to 0.4, with declared noise type. ``error`` is the mean over labels
of |error of rho_pos| + |error of rho_neg|; rates of zero would have errors of 0.40 and 0.25. ``width`` is the mean
width of the 90 % intervals. The timing compares "auto" with the estimator of the paper's journal version, the largest
out-of-fold probability.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import rate_estimators
from draws import DATASETS, NOISE_TYPES, TRUSTED_SAMPLES, Draw, estimate, make_draw, with_trusted, write_csv
from harness import Result, parser, report

from ccmn.estimation.evidence import fit_surfaces, held_out_scores

TARGETS = {("three", 0): 0.15, ("three", 50): 0.11, ("three", 200): 0.08, ("partial", 0): 0.06, ("missing", 0): 0.06}
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
    """Return means over draws, then over data sets, with the targets."""
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
            f"(minimum over data sets and rates {min(coverage):.2f}); "
            + ", ".join(f"{name} {m['error']:.3f}" for name, m in means.items())
        )
    return notes


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", help="write the rows to this file")
    arguments.add_argument("--all-methods", action="store_true", help="run all estimators of rate_estimators.py")
    options = arguments.parse_args()
    names, draws = (("yeast", "scene"), 1) if options.quick else (DATASETS, 5)
    rows = []
    for name in names:
        for setting in ("three", "partial", "missing"):
            for number in range(draws):
                rows += run(name, setting, number, options.all_methods)
    results = []
    for name in names:
        mean = {
            m: float(
                np.mean([r["seconds"] for r in rows if r["dataset"] == name and r["method"] == m and not r["trusted"]])
            )
            for m in ("auto", "anchor_max")
        }
        results.append(
            Result(f"rates: {name}", mean["auto"], "maximum", mean["anchor_max"], mean["anchor_max"] / mean["auto"])
        )
    if options.csv:
        write_csv(options.csv, rows)
    report(results, notes_of(rows), options.json)


if __name__ == "__main__":
    main()
