"""Measure the share of the improvement by known rates that estimated rates achieve.

    python benchmarks/gap_closed.py           five draws on yeast, scene, mirflickr and enron (needs CCMN_DATA)
    python benchmarks/gap_closed.py --quick   one draw on yeast and scene, one fit timed
    python benchmarks/gap_closed.py --model ranking --draws 2     the default classifier, noise of both types only

    gap closed = (uncorrected loss - loss with estimated rates) / (uncorrected loss - loss with true rates)

on true test labels, mean over draws: 1 equals known rates, 0 equals training without noise correction, negative values
are harmful. The model is ridge regression on debiased labels (linear, Hamming loss, square surrogate); the l2 penalty
of each label is selected by the corrected risk on a fifth of the rows. With ``--model ranking`` it is a default
``CCMNClassifier`` (linear, ranking loss, sigmoid surrogate, three learning rates, corrected validation), which takes
minutes. Rates are estimated on all training rows; trusted rows are used for the rates only. "sum": rates of 0.1 to 0.5
with a sum of at most 0.6; "partial" and "missing": rates of 0.1 to 0.4, with declared noise type; "clean": no noise.
The timing compares a default fit with estimated rates and with given rates.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from draws import DATASETS, Draw, estimate, make_draw, with_trusted, write_csv
from harness import Result, parser, report

from ccmn import CCMNClassifier
from ccmn.estimation.evidence import fit_surfaces
from ccmn.estimation.noise_rates import collect_rates
from ccmn.metrics import average_precision, hamming_loss, ranking_loss
from ccmn.noise import ClassConditionalNoise
from ccmn.noise.class_conditional import debias_labels
from ccmn.training.ridge import l2_path, ridge_path

METRICS = ("hamming", "ranking", "average_precision")
TARGETS = {
    ("partial", 0): (0.9, 0.8, 0.8),
    ("sum", 0): (0.7, 0.35, 0.35),
    ("sum", 50): (0.8, 0.55, 0.5),
    ("sum", 200): (0.85, 0.65, 0.65),
}


def dense(X) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


Rates = dict[str, tuple[np.ndarray, np.ndarray]]


def ridge_losses(draw: Draw, rates: Rates) -> dict[str, np.ndarray]:
    """Return test losses (Hamming, ranking, 1 - average precision) of ridge regression for every pair of rates."""
    X, n, q = dense(draw.X), len(draw.Y), draw.Y.shape[1]
    held_out = np.random.default_rng(draw.number).permutation(n) < n // 5
    targets = np.concatenate([debias_labels(draw.noisy.astype(float), *pair) for pair in rates.values()], 1)
    l2 = l2_path(1e-4, 2 * float((X**2).sum(1).mean()))
    path = ridge_path(X[~held_out], targets[~held_out], l2)
    t = 2 * targets[held_out] - 1
    risks = np.stack([(scores**2 - 2 * scores * t).mean(0) for scores in path.scores(X[held_out])])
    W, b = path.solution(risks.argmin(0))
    scores = dense(draw.X_test) @ W + b
    return {name: losses_on_test_rows(draw.Y_test, scores[:, i * q : (i + 1) * q]) for i, name in enumerate(rates)}


def ranking_losses(draw: Draw, rates: Rates) -> dict[str, np.ndarray]:
    """Return the same losses of the ranking loss of the paper."""
    found = {}
    for name, pair in rates.items():
        noise = None if name == "plain" else ClassConditionalNoise(*pair)
        clf = CCMNClassifier(noise, loss="ranking", scale=False, random_state=draw.number).fit(draw.X, draw.noisy)
        found[name] = losses_on_test_rows(draw.Y_test, clf.decision_function(draw.X_test))
    return found


MODELS = {"ridge": ridge_losses, "ranking": ranking_losses}


def losses_on_test_rows(Y: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return Hamming loss, ranking loss and 1 - average precision."""
    predicted = (scores >= 0).astype(int)
    values = hamming_loss(Y, predicted), ranking_loss(Y, scores), 1 - average_precision(Y, scores)
    return np.array([float(v) for v in values])


def run(name: str, setting: str, number: int, model: str) -> list[dict[str, object]]:
    draw = make_draw(name, setting, number)
    zero = np.zeros(draw.Y.shape[1])
    rates = {"plain": (zero, zero), "true": (draw.noise.rho_pos, draw.noise.rho_neg)}
    evidence = draw.evidence()
    evidence = replace(evidence, surfaces=fit_surfaces(evidence))
    for count in (0, 50, 200) if setting == "sum" else (0,):
        used = with_trusted(evidence, draw, count)
        noise = collect_rates(estimate(used), used.Y, used.noise_type, {}, None).shrunk_noise
        rates[f"{count}"] = noise.rho_pos, noise.rho_neg
    found = MODELS[model](draw, rates)
    return [
        {"dataset": name, "setting": setting, "draw": number, "rates": key}
        | {metric: round(float(v), 5) for metric, v in zip(METRICS, values)}
        for key, values in found.items()
    ]


def means(rows: list[dict[str, object]], dataset: str, setting: str, rates: str) -> np.ndarray:
    mine = [r for r in rows if (r["dataset"], r["setting"], r["rates"]) == (dataset, setting, rates)]
    return np.array([np.mean([r[m] for r in mine]) for m in METRICS])


def notes_of(rows: list[dict[str, object]], names: tuple[str, ...]) -> dict[str, object]:
    notes: dict[str, object] = {}
    for setting, trusted in dict.fromkeys((r["setting"], r["rates"]) for r in rows if str(r["rates"]).isdigit()):
        plain, true, mine = (
            np.stack([means(rows, n, setting, key) for n in names]) for key in ("plain", "true", trusted)
        )
        if setting == "clean":
            notes["clean: change of the Hamming loss"] = ", ".join(
                f"{n} {d:+.4f}" for n, d in zip(names, (mine - plain)[:, 0])
            )
            continue
        gap = (plain - mine) / (plain - true)
        target = TARGETS.get((setting, int(trusted)))
        notes[f"{setting}, {trusted} trusted"] = (
            " / ".join(f"{g:.2f}" for g in gap.mean(0))
            + (f" (target {' / '.join(f'{t:g}' for t in target)})" if target else "")
            + "; "
            + ", ".join(f"{n} {' / '.join(f'{g:.2f}' for g in row)}" for n, row in zip(names, gap))
        )
    return notes


def timed_fits(name: str) -> Result:
    """Time a default fit with estimated rates and with given rates."""
    draw = make_draw(name, "sum", 0)
    seconds = []
    for noise in ("both", draw.noise):
        start = time.perf_counter()
        CCMNClassifier(noise=noise, random_state=0).fit(draw.X, draw.noisy)
        seconds.append(time.perf_counter() - start)
    return Result(
        f"default fit, rates estimated: {name}", seconds[0], "rates given", seconds[1], seconds[1] / seconds[0]
    )


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", help="write the rows to this file")
    arguments.add_argument("--model", choices=MODELS, default="ridge")
    arguments.add_argument("--draws", type=int, default=5)
    options = arguments.parse_args()
    names, draws = (("yeast", "scene"), 1) if options.quick else (DATASETS, options.draws)
    rows = []
    for name in names:
        for setting in ("sum", "partial", "missing", "clean") if options.model == "ridge" else ("sum",):
            for number in range(draws):
                rows += run(name, setting, number, options.model)
    if options.csv:
        write_csv(options.csv, rows)
    timed = names if options.model == "ridge" and not options.quick else names[:1]
    results = [timed_fits(name) for name in timed]
    report(results, notes_of(rows, names), options.json)


if __name__ == "__main__":
    main()
