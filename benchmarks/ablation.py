"""Ablation of the default: without each mechanism or constant, or with it halved and doubled.

    python benchmarks/ablation.py --cells             fit models on all draws, store them in build/ablation
    python benchmarks/ablation.py                      score all variants, results/ablation.csv
    python benchmarks/ablation.py --quick              two draws

Draws are random splits of ``benchmarks/default.py`` with 300 or 700 training rows and at most 8
labels: injected noise on five sets,
labels of people on four, and tasks without evidence (weak features, coin flips, real tables with 90 % of the columns
shuffled), whose score is the mean sum of predicted probabilities over observed labels. Variants of the prior use stored
likelihoods; variants of the models fit them again. slashdot and digit scenes are not used.
"""

from __future__ import annotations

import json
import pickle
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import default
import numpy as np
import pandas as pd
import real_noise
import scipy.sparse
import torch
from harness import parser
from sklearn.metrics import average_precision_score, label_ranking_average_precision_score

from ccmn import CorrectedClassifier
from ccmn.estimation.likelihood import Surfaces, label_surfaces
from ccmn.estimation.posterior import RatePosterior, corrected_curve, rate_posterior
from ccmn.training.default_model import NoisyLabelModel
from ccmn.training.default_settings import DEFAULTS, DefaultSettings

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "ablation"
RESULTS = ROOT / "results" / "ablation.csv"
SETS = ("yeast", "scene", "enron", "tmc", "mirflickr")
HUMAN = ("deu", "ptbr", "relex", "cmc")
INJECTED = ("clean", "two-sided", "missing", "added")
WITHOUT_EVIDENCE = ("weak300", "weak150", "coin.2", "coin.5", "shuffled")
SIZES = (300, 700)
MAX_DRAWN_LABELS = 8
METRICS = ("hamming", "lrap", "mean_ap", "log_loss", "pos_error", "neg_error")


@dataclass
class Draw:
    """Training rows with noisy labels, and test rows with true labels (NaN: not scored)."""

    X: Any
    noisy: np.ndarray
    true: np.ndarray
    X_test: Any
    Y_test: np.ndarray


def make_draw(name: str, kind: str, seed: int) -> Draw:
    if kind in WITHOUT_EVIDENCE:
        return make_unpredictable(name, kind, seed)
    default.MAX_ROWS = SIZES[seed % len(SIZES)]
    task = default.make_task(default.Cell(name, kind, seed))
    Y_test = task.Y_test.astype(float)
    if kind == "real":
        _, Y, noisy = default.read(name)
        size = min(default.MAX_ROWS, 2 * len(Y) // 3)
        order = np.random.default_rng([seed, *map(ord, name)]).permutation(len(Y))
        train, test = np.sort(order[:size]), np.sort(order[size : size + default.MAX_ROWS])
        kept = (Y[train].sum(0) >= default.MIN_POSITIVES) & (noisy[train].sum(0) >= 3)
        with np.load(real_noise.data_folder() / f"{name}.npz") as file:
            if "tied" in file.files:
                Y_test[file["tied"][test][:, kept].astype(bool)] = np.nan
    q = Y_test.shape[1]
    labels = np.sort(np.random.default_rng([seed, q]).permutation(q)[:MAX_DRAWN_LABELS])
    return Draw(task.X, task.noisy[:, labels].astype(float), task.true[:, labels], task.X_test, Y_test[:, labels])


def make_unpredictable(name: str, kind: str, seed: int) -> Draw:
    """Return clean labels that the features predict weakly or not at all."""
    rng = np.random.default_rng([seed, *map(ord, name + kind)])
    if kind == "shuffled":
        X, Y, _ = default.read(name)
        X = np.asarray(X.todense() if scipy.sparse.issparse(X) else X)
        order = rng.permutation(len(Y))[:1300]
        X, Y = X[order].copy(), Y[order]
        for column in rng.permutation(X.shape[1])[: int(0.9 * X.shape[1])]:
            X[:, column] = rng.permutation(X[:, column])
        kept = Y[:300].sum(0) >= default.MIN_POSITIVES
        Y, n = Y[:, kept], 300
    else:
        n = 150 if kind == "weak150" else 300
        X = rng.normal(size=(n + 1000, 20))
        P = (
            1 / (1 + np.exp(1.5 - 0.3 * X[:, :6]))
            if kind.startswith("weak")
            else float(kind[4:]) * np.ones((n + 1000, 6))
        )
        Y = (rng.random(P.shape) < P).astype(int)
    return Draw(X[:n], Y[:n].astype(float), Y[:n], X[n:], Y[n:].astype(float))


@dataclass
class Fitted:
    """Models of a draw: surfaces and log-odds of test rows of the default; rates and predictions of others."""

    surfaces: Surfaces
    f: np.ndarray
    noisy: np.ndarray
    true: np.ndarray
    Y_test: np.ndarray
    others: dict[str, np.ndarray]
    seconds: dict[str, float]


def fit_models(draw: Draw, seed: int, settings: DefaultSettings = DEFAULTS) -> tuple[Surfaces, np.ndarray]:
    model = NoisyLabelModel(seed, settings).fit(draw.X, draw.noisy)
    o = model.out_of_fold_
    surfaces = label_surfaces(o.log_odds, draw.noisy[o.rows], o.features, o.sample_weight, o.folds, settings)
    return surfaces, model.log_odds(draw.X_test)


def fit_draw(name: str, kind: str, seed: int) -> Fitted:
    """Return the stored fits of a draw; fit the models if they are not stored."""
    path = CACHE / f"{name}-{kind}-{seed}.pkl"
    if path.exists():
        return pickle.loads(path.read_bytes())
    draw, seconds, others = make_draw(name, kind, seed), {}, {}
    start = time.process_time()
    surfaces, f = fit_models(draw, seed)
    seconds["new"] = time.process_time() - start
    start = time.process_time()
    old = CorrectedClassifier(random_state=seed).fit(draw.X, draw.noisy)
    others["old"] = old.predict_proba(draw.X_test)
    seconds["old"] = time.process_time() - start
    others["old rates"] = np.stack([old.rates_.rho_pos, old.rates_.rho_neg])
    if kind not in WITHOUT_EVIDENCE and seed % 2:
        start = time.process_time()
        others["lr"] = default.logistic_regression(draw.X, draw.noisy.astype(int), draw.X_test)
        seconds["lr"] = time.process_time() - start
    result = Fitted(surfaces, f, draw.noisy, draw.true, draw.Y_test, others, seconds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(result))
    return result


def cells(seeds: range) -> Iterator[tuple[str, str, int]]:
    for seed in seeds:
        for name in SETS:
            yield from ((name, kind, seed) for kind in INJECTED)
        yield from ((name, "real", seed) for name in HUMAN)
        yield from (("simulated", kind, seed) for kind in WITHOUT_EVIDENCE[:4])
        yield from ((name, "shuffled", seed) for name in SETS[:2])


# -- Scores


def scores(P: np.ndarray, fitted: Fitted, rates: tuple[np.ndarray, np.ndarray] | None) -> dict[str, float]:
    """Return the metrics of test probabilities; entries that are NaN in Y_test are left out."""
    Y, known = fitted.Y_test, ~np.isnan(fitted.Y_test)
    zeros, clipped = np.nan_to_num(Y), np.clip(P, 1e-6, 1 - 1e-6)
    loss = -(zeros * np.log(clipped) + (1 - zeros) * np.log1p(-clipped))
    whole = known.all(1) & (zeros.sum(1) > 0)
    rankable = [j for j in range(Y.shape[1]) if 0 < zeros[known[:, j], j].sum() < known[:, j].sum()]
    result = {
        "hamming": float(((P >= 0.5) != zeros)[known].mean()),
        "lrap": label_ranking_average_precision_score(zeros[whole], P[whole]),
        "mean_ap": float(np.mean([average_precision_score(Y[known[:, j], j], P[known[:, j], j]) for j in rankable])),
        "log_loss": float(loss[known].mean()),
        "ratio": float(P.mean() / fitted.noisy.mean()),
    }
    if rates is not None:
        y, noisy = fitted.true, fitted.noisy
        pos = ((y == 1) & (noisy == 0)).sum(0) / np.maximum((y == 1).sum(0), 1)
        neg = ((y == 0) & (noisy == 1)).sum(0) / np.maximum((y == 0).sum(0), 1)
        result["pos_error"], result["neg_error"] = (float(np.abs(a - b).mean()) for a, b in zip(rates, (pos, neg)))
    return result


def score(
    fitted: Fitted, settings: DefaultSettings, surfaces: Surfaces | None = None, f: np.ndarray | None = None
) -> tuple[dict[str, float], RatePosterior]:
    """Return the scores of the default with the given settings, and its posterior."""
    surfaces = fitted.surfaces if surfaces is None else surfaces
    posterior = rate_posterior(surfaces, ["both"] * fitted.noisy.shape[1], settings=settings)
    P = corrected_curve(posterior)(fitted.f if f is None else f)
    return scores(P, fitted, (posterior.rho_pos, posterior.rho_neg)), posterior


def table_of(settings: DefaultSettings, draws: list[tuple[str, str, int]]) -> pd.DataFrame:
    rows = []
    for name, kind, seed in draws:
        fitted = fit_draw(name, kind, seed)
        rows.append({"dataset": name, "kind": kind, "seed": seed, **score(fitted, settings)[0]})
    return pd.DataFrame(rows).set_index(["dataset", "kind", "seed"])


def table_of_others(method: str, draws: list[tuple[str, str, int]]) -> pd.DataFrame:
    rows = []
    for name, kind, seed in draws:
        fitted = fit_draw(name, kind, seed)
        if method in fitted.others:
            rates = fitted.others.get(f"{method} rates")
            rows.append({"dataset": name, "kind": kind, "seed": seed, **scores(fitted.others[method], fitted, rates)})
    return pd.DataFrame(rows).set_index(["dataset", "kind", "seed"])


def stored(seeds: range) -> list[tuple[str, str, int]]:
    return [cell for cell in cells(seeds) if (CACHE / "{}-{}-{}.pkl".format(*cell)).exists()]


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--cells", action="store_true", help="fit and store the models of all draws")
    arguments.add_argument("--sets", default=",".join((*SETS, *HUMAN, "simulated")))
    arguments.add_argument("--seeds", default="0:3", help="first and last + 1 seed")
    options = arguments.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    seeds = range(*map(int, options.seeds.split(":")))
    if options.cells:
        for cell in cells(seeds):
            if cell[0] in options.sets.split(","):
                fit_draw(*cell)
        return
    draws = list(cells(range(1)))[:2] if options.quick else stored(seeds)
    rows = []
    base = table_of(DEFAULTS, draws)
    with_evidence = [cell for cell in draws if cell[1] not in WITHOUT_EVIDENCE]
    tables = [("constants", "chosen", base), ("old default", "", table_of_others("old", with_evidence))]
    tables += [(name, value, table_of(settings, draws)) for name, value, settings in prior_variants()]
    for name, value, table in tables:
        shared = base.loc[table.index]
        for kind in sorted({cell[1] for cell in draws}):
            if (part := table[table.index.get_level_values("kind") == kind]).empty:
                continue
            row = {"field": name, "value": value, "kind": kind, "draws": len(part), "ratio": part.ratio.mean()}
            for metric in METRICS:
                change = part[metric] - shared.loc[part.index, metric]
                row |= {metric: part[metric].mean(), f"{metric}_change": change.mean(), f"{metric}_se": change.sem()}
            rows.append(row)
    result = pd.DataFrame(rows)
    if options.json:
        print(json.dumps(json.loads(result.to_json(orient="records"))))
    elif options.quick:
        print(result.round(4).to_string())
    else:
        result.to_csv(RESULTS, index=False, float_format="%.5f")


def prior_variants() -> Iterator[tuple[str, str, DefaultSettings]]:
    """Yield the fields that act on stored likelihoods, halved and doubled, or removed."""
    for name in ("temperature", "max_means", "concentrations"):
        value = getattr(DEFAULTS, name)
        for factor in (0.5, 1.9 if name == "max_means" else 2.0):
            changed = tuple(factor * v for v in value) if isinstance(value, tuple) else factor * value
            yield name, str(changed), replace(DEFAULTS, **{name: changed})
    yield "rarity", "0", replace(DEFAULTS, rarity=0.0)
    yield "rarity", "2", replace(DEFAULTS, rarity=2.0)


if __name__ == "__main__":
    __import__("ablation").main()  # stored draws name the module
