"""Values of the public functions on fixed inputs, for golden.json.

``python tests/golden/make_golden.py`` writes golden.json next to this file; with names of groups as arguments, only
these groups are computed again. test_golden.py compares the values that the functions below return with the file:

- ``EXACT``: formulas and their fast forms. A refactoring must not change them.
- ``TOLERANCE``: results of statistical procedures. A better procedure may change them; compute the group again then.

An array of more than ``MAX_ENTRIES`` entries is stored as its norm and fixed random projections, which change if any
entry does. All inputs come from seeded generators of numpy, and all computations use one thread.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from threadpoolctl import threadpool_limits

from ccmn import (
    CCMNClassifier,
    ClassConditionalNoise,
    CorrectedClassifier,
    HammingLoss,
    MissingNoise,
    PartialNoise,
    RankingLoss,
    metrics,
)
from ccmn.data import load_digit_scenes, make_noisy_multilabel
from ccmn.losses import SURROGATES, ForwardLoss
from ccmn.noise import GroupedNoise, TransitionNoise
from ccmn.paper.baselines import FPML, PARTICLE, PMLLRS, PMLNI
from ccmn.paper.result_store import ResultStore
from ccmn.paper.runner import prepare, run_columns

PATH = Path(__file__).with_name("golden.json")

MAX_ENTRIES = 6
"""Arrays of more entries are stored as a summary."""

N_PROJECTIONS = 3
"""Number of random projections in a summary."""

Values = dict[str, list[float]]
"""Name of a result -> its entries, or the norm and the projections of a large array."""


def numbers(array: Any) -> list[float]:
    """Return the entries of a small array, or the norm and random projections of a large one; NaN counts as pi."""
    values = np.asarray(array.detach() if isinstance(array, torch.Tensor) else array, dtype=np.float64).ravel()
    values = np.where(np.isnan(values), np.pi, values)
    if values.size <= MAX_ENTRIES:
        return values.tolist()
    directions = np.random.default_rng(values.size).normal(size=(N_PROJECTIONS, values.size))
    return [float(np.linalg.norm(values)), *(directions @ values).tolist()]


# -- Exact: formulas


def rates(q: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return false-negative and false-positive rates of q labels."""
    return rng.uniform(0.05, 0.4, q), rng.uniform(0.02, 0.3, q)


def labels_01(n: int, q: int, rng: np.random.Generator, missing: float = 0.0) -> np.ndarray:
    """Return random labels 0 and 1, and a share of NaN."""
    Y = (rng.random((n, q)) < 0.4).astype(np.float64)
    return np.where(rng.random((n, q)) < missing, np.nan, Y)


def noise_models() -> Values:
    """Return debiased and corrupted labels of every noise model."""
    rng = np.random.default_rng(1)
    q, n = 5, 60
    rho_pos, rho_neg = rates(q, rng)
    Y, partly = labels_01(n, q, rng), labels_01(n, q, rng, missing=0.2)
    models = {
        "class_conditional": ClassConditionalNoise(rho_pos, rho_neg),
        "partial": PartialNoise(rho_neg),
        "missing": MissingNoise(rho_pos),
    }
    found = {}
    for name, model in models.items():
        found[f"{name}/debias"] = model.debias(Y)
        found[f"{name}/debias_nan"] = model.debias(partly)
        found[f"{name}/debias_sparse"] = model.debias(scipy.sparse.csr_array(Y))
        found[f"{name}/corrupt"] = model.corrupt(Y, random_state=0)
        found[f"{name}/corrupt_sparse"] = model.corrupt(scipy.sparse.csr_array(Y), random_state=0).toarray()
    one_hot = np.eye(q)[rng.integers(q, size=n)]
    transition = TransitionNoise(0.6 * np.eye(q) + 0.4 * rng.dirichlet(np.ones(q), size=q))
    found["transition/debias"] = transition.debias(one_hot)
    found["transition/corrupt"] = transition.corrupt(one_hot, random_state=0)
    groups = rng.choice(["a", "b"], n)
    grouped = GroupedNoise({name: ClassConditionalNoise(*rates(q, rng)) for name in ("a", "b")})
    found["grouped/debias"] = grouped.debias(partly, groups)
    found["grouped/corrupt"] = grouped.corrupt(Y, groups, random_state=0)
    return {name: numbers(value) for name, value in found.items()}


def softsign(t: torch.Tensor) -> torch.Tensor:
    """Return a margin loss that is not one of the named surrogates."""
    return 1 - t / (1 + t.abs())


def with_gradient(loss: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Iterator[tuple[str, list[float]]]:
    """Yield the value of a loss and its gradient, with different weights of the rows if there are several values."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    value = loss(*leaves)
    yield "value", numbers(value)
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    for k, gradient in enumerate(torch.autograd.grad((value * weights).sum(), leaves)):
        yield f"gradient{k}" if k else "gradient", numbers(gradient)


def losses() -> Values:
    """Return values and gradients of the losses: few labels (double sums) and many (fast pair sums)."""
    found: Values = {}

    def add(name: str, loss: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
        found.update({f"{name}/{part}": value for part, value in with_gradient(loss, *inputs)})

    for q, n in ((5, 6), (160, 80)):
        rng = np.random.default_rng(q)
        noise = ClassConditionalNoise(*rates(q, rng))
        # Scores that fit the labels: without a risk correction, some parts of the risk are negative.
        complete = torch.tensor(labels_01(n, q, rng))
        outputs = torch.tensor(rng.normal(size=(n, q + 1)))
        outputs[:, 1:] += 2 * complete - 1
        partly = complete.masked_fill(torch.tensor(rng.random((n, q)) < 0.1), torch.nan)
        scores = outputs[:, 1:]
        for phi, (kind, Y), correction in product(
            SURROGATES, {"all": complete, "nan": partly}.items(), (None, "abs", "relu")
        ):
            options = {"noise": noise, "correction": correction, "reduction": "mean" if correction else "none"}
            name = f"q{q}/{phi}/{kind}/{correction}"
            for loss_name, loss, f in (
                ("hamming", HammingLoss(phi, **options), scores),
                ("ranking", RankingLoss(phi, dummy=False, **options), scores),
                ("dummy", RankingLoss(phi, **options), outputs),
            ):
                add(f"{loss_name}/{name}", lambda f, loss=loss, Y=Y: loss(f, Y), f)
    loss = RankingLoss("sigmoid", PartialNoise(noise.rho_neg))  # of many labels
    found["dummy/partial/decision"] = numbers(loss.decision(outputs))
    for reduction, label_reduction in product(("mean", "sum"), ("sum", "mean")):
        options = {"reduction": reduction, "label_reduction": label_reduction}
        name = f"partial/{reduction}_{label_reduction}"
        loss = RankingLoss("sigmoid", PartialNoise(noise.rho_neg), **options)
        add(f"dummy/{name}", lambda f, loss=loss: loss(f, complete), outputs)
        loss = HammingLoss("logistic", PartialNoise(noise.rho_neg), **options)
        add(f"hamming/{name}", lambda f, loss=loss: loss(f, complete), scores)
    add("hamming/callable", lambda f: HammingLoss(softsign, noise)(f, partly), scores)
    add("dummy/callable", lambda f: RankingLoss(softsign, noise)(f[:20], partly[:20]), outputs)
    add("forward", lambda f: ForwardLoss(noise)(f, partly), scores)
    return found


STATUS = ("unbiased", "consistent", "approximate")


def estimated(value: Any) -> list[float]:
    """Return the value, the standard error and the status of an estimate as numbers."""
    return [value.value, value.se, float(STATUS.index(value.status))]


def metric_values() -> Values:
    """Return metrics of true labels, and their estimates from noisy labels."""
    found: Values = {}
    for q, n in ((8, 150), (40, 150)):  # pairs of few labels are compared, many labels are sorted
        rng = np.random.default_rng(20 + q)
        Y = labels_01(n, q, rng)
        Y[:3] = 0  # rows without positive labels
        scores = Y + rng.normal(size=(n, q))
        inputs = {"scores": scores, "ties": scores.round()}
        noises: dict[str, Any] = {
            "none": None,
            "both": ClassConditionalNoise(*rates(q, rng)),
            "partial": PartialNoise(rng.uniform(0.02, 0.3, q)),
            "missing": MissingNoise(rng.uniform(0.05, 0.4, q)),
        }
        for kind, noise in noises.items():
            given = Y if noise is None else noise.corrupt(Y, random_state=1)
            options = {} if noise is None else {"noise": noise}
            record = (lambda value: [float(value)]) if noise is None else estimated
            for name in ("hamming_loss", "micro_f1", "macro_f1"):
                found[f"{name}/q{q}/{kind}"] = record(getattr(metrics, name)(given, scores > 0.5, **options))
            for name, (tied, f) in product(
                ("ranking_loss", "average_precision", "one_error", "coverage", "macro_auc"), inputs.items()
            ):
                if noise is None or tied == "scores":
                    found[f"{name}/q{q}/{kind}/{tied}"] = record(getattr(metrics, name)(given, f, **options))
            for k in (1, 3):
                found[f"precision_at_{k}/q{q}/{kind}"] = record(metrics.precision_at_k(given, scores, k, **options))
                if kind != "partial":
                    found[f"psp_at_{k}/q{q}/{kind}"] = record(metrics.psp_at_k(given, scores, k, **options))
                if noise is None:
                    for name in ("recall_at_k", "ndcg_at_k"):
                        found[f"{name}/{k}/q{q}"] = record(getattr(metrics, name)(given, scores, k))
    # After the loop: 40 labels.
    transition = TransitionNoise(0.7 * np.eye(q) + 0.3 * rng.dirichlet(np.ones(q), size=q))
    one_hot = transition.corrupt(np.eye(q)[scores.argmax(1)], random_state=1)
    for name in ("ranking_loss", "average_precision", "one_error", "coverage"):
        found[f"{name}/transition"] = estimated(getattr(metrics, name)(one_hot, scores, noise=transition))
    partly = np.where(rng.random(Y.shape) < 0.1, np.nan, Y)
    for name in ("hamming_loss", "micro_f1", "macro_f1"):
        found[f"{name}/nan"] = estimated(getattr(metrics, name)(partly, scores > 0.5, noise=noises["both"]))
    return found


# -- Exact: methods of the paper


def small_task(
    n: int, d: int, q: int, seed: int, noise: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features, true labels, noisy labels and the probabilities of the true labels of a linear task."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.5, 3.0, d)
    weights = rng.normal(size=(d, q))
    proba = 1 / (1 + np.exp(-(X @ weights - rng.uniform(0.0, 2.0, q))))
    Y = (rng.random((n, q)) < proba).astype(np.int64)
    return X, Y, Y if noise is None else noise.corrupt(Y, random_state=seed), proba


def competing_methods() -> Values:
    """Return the decision scores of the partial multi-label methods that the paper compares with."""
    X, _, candidates, _ = small_task(120, 6, 5, 4, PartialNoise(0.25, n_labels=5))
    models = {
        "PMLNI": PMLNI(),
        "PARTICLE_vls": PARTICLE("vls", random_state=0),
        "PARTICLE_map": PARTICLE("map", random_state=0),
        "PMLLRS": PMLLRS(),
        "FPML": FPML(rank=3, random_state=0),
    }
    fitted = {name: model.fit(X[:80], candidates[:80]) for name, model in models.items()}
    return {name: numbers(model.decision_function(X[80:])) for name, model in fitted.items()}


def table_cells() -> Values:
    """Return the values of cells of table 1 on the bundled digits: two repeats of ten epochs."""
    columns = prepare(["table1"], protocols=["moderate"], small=True).columns
    found = {}
    with tempfile.TemporaryDirectory() as folder, ResultStore(Path(folder) / "results.db") as store:
        run_columns(columns, store, methods=["unbiased-hamming-square", "unbiased-ranking-sigmoid"])
        for result in store.results():
            for selection, values in result.outcome["values"].items():
                name = f"{result.cell.method}/{result.cell.repeat}/{selection}"
                found[name] = [values[metric] for metric in ("hamming_loss", "ranking_loss", "average_precision")]
    return dict(sorted(found.items()))


def ranking_fits() -> Values:
    """Return decision scores of linear models: five epochs of the unbiased ranking loss in float64."""
    noise = ClassConditionalNoise([0.3, 0.2, 0.1, 0.25], [0.1, 0.15, 0.2, 0.05])
    X, _, Y_noisy, _ = small_task(200, 5, 4, 5, noise)
    found = {}
    for scale in (False, True):
        model = CCMNClassifier(
            noise,
            loss="ranking",
            surrogate="sigmoid",
            model="linear",
            lr=(5e-2, 5e-3),
            epochs=5,
            batch_size=32,
            weight_decay=1e-4,
            scale=scale,
            device="cpu",
            random_state=0,
        ).fit(X, Y_noisy)
        scores = model.decision_function(X)
        for i in range(3):
            found[f"scale={scale}/row{i}"] = numbers(scores[i])
        found[f"scale={scale}/all"] = numbers(scores)
    return found


# -- Tolerance: statistical procedures


def default_predictions() -> Values:
    """Return the probabilities and noise rates of the default classifier."""
    found = {}
    for name, (X, Y) in default_tasks().items():
        model = CorrectedClassifier(random_state=0).fit(X[:-50], Y[:-50])
        proba = model.predict_proba(X[-50:])
        found[f"{name}/first_row"] = np.asarray(proba[0])[:MAX_ENTRIES]
        found[f"{name}/proba"] = proba
        found[f"{name}/rho_pos"], found[f"{name}/rho_neg"] = model.noise_.rho_pos, model.noise_.rho_neg
    return {name: numbers(value) for name, value in found.items()}


def default_tasks() -> dict[str, tuple[Any, np.ndarray]]:
    """Return features and noisy labels: a synthetic task, images of digits, and counts of words."""
    synthetic = make_noisy_multilabel(
        1000, 8, 4, noise=ClassConditionalNoise([0.3, 0.2, 0.1, 0.25], [0.1, 0.05, 0.1, 0.15]), random_state=0
    )
    digits = load_digit_scenes(800)
    rng = np.random.default_rng(6)
    q, words = 4, 300
    Y = labels_01(600, q, rng)
    topics = rng.dirichlet(np.full(words, 0.1), size=q + 1)
    counts = rng.poisson(30 * np.c_[np.ones(len(Y)), 2 * Y] @ topics)
    texts = scipy.sparse.csr_array(np.log1p(counts))
    return {
        "synthetic": (synthetic.X, synthetic.Y_noisy),
        "digits": (digits.X[:, ::4], MissingNoise(0.3, n_labels=10).corrupt(digits.Y, random_state=0)),
        "texts": (texts, ClassConditionalNoise(0.2, 0.1, n_labels=q).corrupt(Y, random_state=0)),
    }


Group = Callable[[], Values]

EXACT: dict[str, Group] = {
    group.__name__: group
    for group in (noise_models, losses, metric_values, competing_methods, table_cells, ranking_fits)
}
TOLERANCE: dict[str, Group] = {"default_predictions": default_predictions}
SECTIONS = {"exact": EXACT, "tolerance": TOLERANCE}


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, so that sums do not depend on the number of cores; ignore warnings."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(n_threads)


def compute(group: Group) -> Values:
    """Return the values of a group."""
    with one_thread():
        return group()


def main(names: list[str]) -> None:
    """Compute the groups with these names, or all, and write the file."""
    known = [name for groups in SECTIONS.values() for name in groups]
    if unknown := set(names) - set(known):
        sys.exit(f"unknown groups {', '.join(sorted(unknown))}; expected {', '.join(known)}")
    stored = json.loads(PATH.read_text()) if names else {}
    golden = {
        section: {
            name: compute(group) if name in (names or known) else stored[section][name]
            for name, group in groups.items()
        }
        for section, groups in SECTIONS.items()
    }
    # One line per result, so that a difference of two versions shows which results have changed.
    sections = []
    for section, groups in golden.items():
        texts = []
        for name, values in groups.items():
            lines = ",\n".join(f"   {json.dumps(key)}: {json.dumps(entry)}" for key, entry in values.items())
            texts.append(f'  "{name}": {{\n{lines}\n  }}')
        sections.append(f' "{section}": {{\n' + ",\n".join(texts) + "\n }")
    PATH.write_text("{\n" + ",\n".join(sections) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
