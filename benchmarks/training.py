"""Training: fleets compared with single runs, one fit compared with a plain loop, memory.

A fleet is a group of models trained together as one batch.

    python benchmarks/training.py            (needs CCMN_DATA; otherwise random data of the shape of yeast)
    python benchmarks/training.py --quick    (under 50 s)
    python benchmarks/training.py --device cuda    also time all 150 runs of yeast, 200 epochs each

The baseline is a plain PyTorch script: torch.nn.Linear, torch.optim.Adam, the ranking loss as a broadcast double sum,
one run after another. It is timed for one run; its time is multiplied by the number of runs. Both compute
three metrics on the validation set after each epoch.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from harness import Result, compare, cost_of, parser, report

from ccmn.data import MultiLabelData, load_dataset
from ccmn.data.synthetic import make_noisy_multilabel
from ccmn.losses import SURROGATES
from ccmn.metrics.ranking_metrics import Ranking, average_precision_from, ranking_loss_from
from ccmn.paper.fleet import FleetSettings, run_fleet
from ccmn.paper.protocols import LEARNING_RATES, LITERAL, Repeat, make_repeat
from ccmn.paper.tables import METHODS, PAPER_METHODS, Method


def dataset(name: str) -> MultiLabelData:
    """Return a dataset of the paper, or random data if it is not available."""
    try:
        return load_dataset(name)
    except (ValueError, FileNotFoundError, OSError, ImportError):
        task = make_noisy_multilabel(2417, 103, 14, random_state=0)
        return MultiLabelData(
            X=task.X.astype(np.float32), Y=task.Y, name=f"random data of the shape of yeast, for {name}"
        )


def plain_loss(method: Method):
    """Return the loss on debiased targets, written in the obvious way."""
    phi = SURROGATES[method.surrogate].phi

    def hamming(f, p):
        return (p * phi(f) + (1 - p) * phi(-f)).sum(-1).mean()

    def ranking(outputs, p):
        f, dummy = outputs[:, 1:], outputs[:, :1]
        difference = f[:, :, None] - f[:, None, :]
        weights = p[:, :, None] * (1 - p[:, None, :])
        same = torch.eye(f.shape[1], dtype=torch.bool, device=f.device)
        pairs = (weights * phi(difference)).masked_fill(same, 0).sum((1, 2))
        return (pairs + (p * phi(f - dummy) + (1 - p) * phi(dummy - f)).sum(-1)).mean()

    return hamming if method.loss == "hamming" else ranking


def plain_metrics(Y, scores):
    """Return the three metrics of the tables, computed from one ranking."""
    ranking = Ranking.of(Y, scores)
    rows = ((scores >= 0) != Y.bool()).double().mean(-1), ranking_loss_from(ranking), average_precision_from(ranking)
    return torch.stack([r.mean(-1) for r in rows])


def plain_run(data, repeat: Repeat, method: Method, epochs: int, batch: int, device: str, measure: bool) -> None:
    """Train once with an ordinary PyTorch script."""
    X = torch.as_tensor(np.asarray(data.X.toarray() if hasattr(data.X, "toarray") else data.X)).float().to(device)
    labels = torch.as_tensor(repeat.noisy).float().to(device)
    Y = torch.as_tensor(np.asarray(data.Y)).to(device)
    rho_pos, rho_neg = (
        torch.tensor(getattr(repeat.noise, s), dtype=torch.float32, device=device) for s in ("rho_pos", "rho_neg")
    )
    loss = plain_loss(method)
    model = torch.nn.Linear(X.shape[1], Y.shape[1] + (method.loss == "ranking")).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    rows, held_out = torch.as_tensor(repeat.train).to(device), torch.as_tensor(repeat.validation).to(device)
    for _ in range(epochs):
        order = rows[torch.randperm(len(rows), device=device)]
        for start in range(0, len(order), batch):
            index = order[start : start + batch]
            p = labels[index]
            if method.rates != "none":
                p = (p - rho_neg) / (1 - rho_pos - rho_neg)
            optimizer.zero_grad()
            loss(model(X[index]), p).backward()
            optimizer.step()
        if measure:
            with torch.no_grad():
                out = model(X[held_out])
                plain_metrics(Y[held_out], out[:, 1:] - out[:, :1] if method.loss == "ranking" else out)


def fleet_against_single(device: str, quick: bool) -> list[Result]:
    """Compare fleets of 30 runs (10 repeats x 3 learning rates) of each of the ten methods with single runs."""
    data = dataset("yeast")
    repeats = [make_repeat(data, LITERAL, k) for k in range(10)]
    epochs, runs = 10 if quick else 30, len(repeats) * len(LEARNING_RATES)
    warm_up = FleetSettings(epochs=1, selections=("clean",))
    list(run_fleet(data, repeats[:1], settings=warm_up, device=device))  # load libraries before the measurement
    settings = FleetSettings(epochs=epochs, selections=("clean",))
    results = []
    for name in PAPER_METHODS:
        one = compare(
            f"fleet of {runs}: {name}",
            lambda n=name: list(run_fleet(data, repeats, [n], settings, device=device)),
            f"{runs} runs one at a time",
            lambda n=name: plain_run(data, repeats[0], METHODS[n], epochs, 100, device, True),
            1 if quick else 4,
        )
        results.append(replace(one, baseline_seconds=one.baseline_seconds * runs, ratio=one.ratio * runs))
    return results


def single_fit(device: str, quick: bool) -> list[Result]:
    """Compare one run with the plain script; both validate, and ccmn also computes test metrics."""
    data = dataset("yeast")
    repeats = [make_repeat(data, LITERAL, 0)]
    epochs = 20
    settings = FleetSettings(learning_rates=(5e-3,), epochs=epochs, selections=("clean",))
    return [
        compare(
            f"one run: {name}",
            lambda n=name: list(run_fleet(data, repeats, [n], settings, device=device)),
            "plain loop",
            lambda n=name: plain_run(data, repeats[0], METHODS[n], epochs, 100, device, True),
            2 if quick else 6,
        )
        for name in (PAPER_METHODS[:3] if quick else PAPER_METHODS)
    ]


FIT = """
import numpy as np, scipy.sparse, warnings
warnings.filterwarnings("ignore")
from ccmn import CCMNClassifier, ClassConditionalNoise
n, d, q = {n}, {d}, {q}
rng = np.random.default_rng(0)
begin()
X = scipy.sparse.random(n, d, {density}, "csr", dtype=np.float32, random_state=rng)
Y = scipy.sparse.random(n, q, 5 / q, "csr", dtype=np.float32, random_state=rng)
Y.data[:] = 1
noise = ClassConditionalNoise(0.1, 1 / q, n_labels=q)
CCMNClassifier(noise, loss="ranking", lr=5e-3, epochs=1, batch_size=64, random_state=0).fit(X, Y)
"""
SIZES = {
    "many features": {"n": 100_000, "d": 50_000, "q": 100, "density": 0.01},
    "many labels": {"n": 1000, "d": 256, "q": 131_072, "density": 1},
}


def memory(quick: bool) -> dict[str, object]:
    """Return processor time and peak memory, including the data, of an epoch on sparse features or labels."""
    notes: dict[str, object] = {}
    for name, size in SIZES.items():
        size = {key: value // 8 if quick and value > 1 else value for key, value in size.items()}
        seconds, megabytes = cost_of(FIT.format(**size))
        weights = 4 * (size["d"] + 1) * (size["q"] + 1) / 2**20
        title = "{n} rows, {d} features, {q} labels".format(**size)
        notes[f"{name}, {title}"] = f"{seconds:.1f} s, {megabytes:.0f} MB ({weights:.0f} MB of weights)"
    return notes


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = arguments.parse_args()
    notes: dict[str, object] = {"data": [dataset(name).name for name in ("yeast", "scene", "enron")]}
    results = fleet_against_single(options.device, options.quick)
    total = sum(r.baseline_seconds for r in results) / sum(r.seconds for r in results)
    notes["fleet, overall ratio"] = round(total, 1)
    results += single_fit(options.device, options.quick)
    if options.device == "cuda":
        data = dataset("yeast")
        repeats = [make_repeat(data, LITERAL, k) for k in range(5)]
        for attempt in ("first", "second"):
            start = time.perf_counter()
            list(run_fleet(data, repeats, settings=FleetSettings(selections=("clean",)), device="cuda"))
            torch.cuda.synchronize()
            notes[f"yeast, 150 runs x 200 epochs, seconds ({attempt} attempt)"] = round(time.perf_counter() - start, 2)
    else:
        notes |= memory(options.quick)
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
