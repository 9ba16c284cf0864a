"""Compare losses for a CNN that is trained on noisy labels with unknown rates.

    python benchmarks/deep.py                            three seeds, 20,000 images, 30 epochs; a GPU in minutes
    python benchmarks/deep.py --csv results/deep.csv     also writes every value; finished noise kinds are skipped
    python benchmarks/deep.py --cpu --csv results/deep.csv    one seed, 12,000 images, 15 epochs, a smaller CNN
    python benchmarks/deep.py --quick                    2,500 images, seven losses, two-sided noise (a minute on a CPU)

The images are digit scenes (``load_digit_scenes``); test images show other writers than training images. Noise kinds:
"two-sided" (rates of 0.1 to 0.5 with a sum of at most 0.6), "missing" (half of the true labels) and "added" (30 % of
the absent labels). All methods train the same CNN with the same optimizer, schedule and batches; published losses have
their published parameters. The forward loss is the likelihood of the noisy labels. Rates are estimated by
``cross_fit_proba`` and ``estimate_noise`` from out-of-fold embeddings; the noise type is declared for "missing" and
"added". Posterior labels are the probabilities of the true labels given the noisy ones and a second cross-fitting with
these rates, ``cross_fit_proba(..., noise=)`` and ``noise.posterior``.

Every method is evaluated after the last epoch, and at the epoch that its own loss selects on 2,000 further images with
noisy labels ("selected"). Metrics are the Hamming loss and the average precision on true test labels.

    gap closed = (noisy BCE - method) / (noisy BCE - clean BCE), after the last epoch, mean over seeds
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from harness import machine, parser
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from ccmn import ClassConditionalNoise, MissingNoise, PartialNoise, cross_fit_proba, estimate_noise, losses
from ccmn.data import load_digit_scenes
from ccmn.losses import ForwardLoss, HammingLoss, RankingLoss
from ccmn.metrics import average_precision, hamming_loss

Q = 10
NOISE_TYPES = {"two-sided": "both", "missing": "missing", "added": "partial"}
TARGETS = {"two-sided": "average_precision", "missing": "hamming_loss", "added": "hamming_loss"}
"""Metric of each noise kind in which estimated rates have to close 0.9 of the gap, ahead of all published losses."""
CLEAN, NOISY = "BCE, clean labels", "BCE"


@dataclass(frozen=True)
class Size:
    """Numbers of images, epochs, seeds and folds."""

    train: int = 20_000
    validation: int = 2_000
    test: int = 5_000
    batch: int = 256
    epochs: int = 30
    seeds: int = 3
    first_seed: int = 0
    folds: int = 3
    fold_epochs: int = 8
    width: int = 32
    """Channels of the first layer."""
    kinds: tuple[str, ...] = tuple(NOISE_TYPES)
    methods: tuple[str, ...] = ()
    """Names of the methods; empty for all."""


CPU = Size(
    train=12_000,
    validation=1000,
    test=2000,
    batch=128,
    epochs=15,
    seeds=1,
    first_seed=1,  # posterior labels were selected with seed 0, and lr and epochs also with fewer images of seed 1
    width=16,
    methods=(
        CLEAN,
        NOISY,
        "asymmetric loss",
        "generalized cross entropy",
        "large-loss rejection",
        "Hamming logistic relu, estimated rates",
        "ranking sigmoid, estimated rates",
        "forward loss, estimated rates",
        "ranking sigmoid, posterior labels",
    ),
)
QUICK = Size(
    train=2500,
    validation=250,
    test=1000,
    batch=64,
    epochs=12,
    seeds=1,
    folds=2,
    width=8,
    kinds=("two-sided",),
    methods=(
        CLEAN,
        NOISY,
        "asymmetric loss",
        "Hamming logistic relu, estimated rates",
        "ranking sigmoid, estimated rates",
        "forward loss, estimated rates",
        "ranking sigmoid, posterior labels",
    ),
)


@dataclass(frozen=True)
class Method:
    """Loss (outputs (S, B, 1 + q), targets (S, B, q), epoch) -> (S,) of S seeds, and the targets that it uses."""

    loss: Callable[[Tensor, Tensor, int], Tensor]
    targets: str = "noisy"
    decision: Callable[[Tensor], Tensor] = lambda outputs: outputs[..., 1:]


def of_rows(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor, int], Tensor]:
    """Return the mean over rows of a loss of the label outputs."""
    return lambda outputs, targets, epoch: function(outputs[..., 1:], targets).mean(-1)


def asymmetric_loss(f: Tensor, y: Tensor) -> Tensor:
    """Return the asymmetric loss of Ridnik et al. (ICCV 2021) with its published parameters (0, 4, margin .05)."""
    shifted = (torch.sigmoid(f) - 0.05).clamp_min(0)
    return -(y * logsigmoid(f) + (1 - y) * shifted**4 * torch.log1p(-shifted)).sum(-1)


def generalized_cross_entropy(f: Tensor, y: Tensor, power: float = 0.7) -> Tensor:
    """Return the generalized cross entropy of Zhang and Sabuncu (NeurIPS 2018) with two classes per label."""
    positive, negative = (-torch.expm1(power * logsigmoid(t)) / power for t in (f, -f))
    return (y * positive + (1 - y) * negative).sum(-1)


def large_loss_rejection(outputs: Tensor, targets: Tensor, epoch: int) -> Tensor:
    """Return the cross entropy without the negative labels of the largest losses: LL-R of Kim et al. (CVPR 2022).

    The rejected fraction of the negative labels of a batch increases by 0.002 per epoch.
    """
    values = targets * softplus(-outputs[..., 1:]) + (1 - targets) * softplus(outputs[..., 1:])
    result = []
    for seed, y in zip(values, targets):
        count = math.ceil(0.002 * epoch * int((y == 0).sum()))
        largest = seed.detach().masked_fill(y == 1, -torch.inf).flatten().topk(count).indices
        result.append(seed.flatten().index_fill(0, largest, 0).sum() / len(y))
    return torch.stack(result)


def methods(noises: dict[str, Sequence[ClassConditionalNoise]], device: str) -> dict[str, Method]:
    """Return all methods by name; the forward loss takes the rates of every seed."""
    bce = of_rows(partial(losses.hamming_loss, surrogate="logistic"))
    relu, ranking = HammingLoss("logistic", correction="relu"), RankingLoss("sigmoid")
    result = {
        CLEAN: Method(bce, "clean"),
        NOISY: Method(bce),
        "asymmetric loss": Method(of_rows(asymmetric_loss)),
        "generalized cross entropy": Method(of_rows(generalized_cross_entropy)),
        "large-loss rejection": Method(large_loss_rejection),
    }
    for rates, models in noises.items():
        forward = [ForwardLoss(noise).to(device) for noise in models]
        result |= {
            f"Hamming logistic, {rates} rates": Method(bce, rates),
            f"Hamming logistic relu, {rates} rates": Method(
                lambda f, p, epoch: relu.corrected_risk(f[..., 1:], p), rates
            ),
            f"ranking sigmoid, {rates} rates": Method(
                lambda f, p, epoch: ranking.risk(f, p).mean(-1), rates, ranking.decision
            ),
            f"forward loss, {rates} rates": Method(
                lambda f, y, epoch, losses=forward: torch.stack(
                    [loss(f[s, :, 1:], y[s]) for s, loss in enumerate(losses)]
                )
            ),
        }
    absolute = HammingLoss("logistic", correction="abs")
    result["Hamming logistic abs, estimated rates"] = Method(
        lambda f, p, epoch: absolute.corrected_risk(f[..., 1:], p), "estimated"
    )
    result["ranking sigmoid, posterior labels"] = Method(
        lambda f, p, epoch: ranking.risk(f, p).mean(-1), "posterior", ranking.decision
    )
    return result


def make_cnn(runs: int, n_outputs: int, width: int) -> torch.nn.Module:
    """Return independent CNNs with one group of channels each: (B, runs, 16, 24) -> (B, runs * n_outputs)."""
    convolution, channels = partial(torch.nn.Conv2d, groups=runs), width * runs
    return torch.nn.Sequential(
        convolution(runs, channels, 3, padding=1),
        torch.nn.BatchNorm2d(channels),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        convolution(channels, 2 * channels, 3, padding=1),
        torch.nn.BatchNorm2d(2 * channels),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        convolution(2 * channels, 4 * channels, (4, 6)),
        torch.nn.ReLU(),
        convolution(4 * channels, n_outputs * runs, 1),
        torch.nn.Flatten(),
    )


def make_noise(kind: str, seed: int) -> ClassConditionalNoise:
    """Return the noise of a seed."""
    if kind == "missing":
        return MissingNoise(0.5, n_labels=Q)
    if kind == "added":
        return PartialNoise(0.3, n_labels=Q)
    return ClassConditionalNoise.sample(Q, max_sum=0.6, random_state=seed)


def cross_fit(images: np.ndarray, noisy: np.ndarray, seed: int, size: Size) -> np.ndarray:
    """Return out-of-fold embeddings."""
    settings = {"n_folds": size.folds, "epochs": size.fold_epochs, "batch_size": size.batch, "random_state": seed}
    fitted = cross_fit_proba(lambda: make_cnn(1, Q, size.width), images, noisy, head="10", **settings)
    assert fitted.embeddings is not None
    return fitted.embeddings


def estimate(embeddings: np.ndarray, noisy: np.ndarray, noise_type: str) -> ClassConditionalNoise:
    """Return the estimated rates of the noisy labels."""
    torch.set_num_threads(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimate_noise(embeddings, noisy, noise_type=noise_type).noise


def posterior_labels(
    images: np.ndarray, noisy: np.ndarray, noise: ClassConditionalNoise, seed: int, size: Size
) -> np.ndarray:
    """Return the probabilities of the true labels given the noisy labels, from networks that have not seen the row."""
    settings = {"n_folds": size.folds, "epochs": size.epochs, "batch_size": size.batch, "random_state": seed}
    settings |= {"lr": 2e-3, "patience": 4, "head": None}
    fitted = cross_fit_proba(lambda: make_cnn(1, Q, size.width), images, noisy, noise=noise, **settings)
    return noise.posterior(noisy, fitted.pred_proba)


@dataclass(frozen=True)
class Task:
    """Images, true labels, and the noisy labels of every seed for one noise kind."""

    kind: str
    images: np.ndarray
    Y: np.ndarray
    noises: Sequence[ClassConditionalNoise]
    noisy: Sequence[np.ndarray]


def make_task(kind: str, size: Size) -> Task:
    """Return the data of a noise kind."""
    # The first half of the scenes and the second half show different writers.
    rows_seen = size.train + size.validation
    data, count = load_digit_scenes(2 * rows_seen), rows_seen + size.test
    images, Y = data.X[:count].reshape(-1, 16, 24), data.Y[:count].astype(np.float64)
    seeds = range(size.first_seed, size.first_seed + size.seeds)
    noises = [make_noise(kind, seed) for seed in seeds]
    noisy = [noise.corrupt(Y[:rows_seen], random_state=100 + seed) for seed, noise in zip(seeds, noises)]
    return Task(kind, images, Y, noises, noisy)


def start_estimation(task: Task, size: Size, pool: Executor) -> list[Future[ClassConditionalNoise]]:
    """Cross-fit networks on the labels of every seed, and start the estimation of the rates in other processes."""
    futures = []
    for seed, labels in enumerate(task.noisy):
        embeddings = cross_fit(task.images[: size.train, None], labels[: size.train], seed, size)
        futures.append(pool.submit(estimate, embeddings, labels[: size.train], NOISE_TYPES[task.kind]))
    return futures


def train(table: dict[str, Method], images: Tensor, labels: dict[str, Tensor], size: Size, device: str) -> list[Tensor]:
    """Train all methods and seeds together; return test outputs (M, S, n, 1 + q), of last and of selected epochs."""
    torch.manual_seed(0)
    M, S, steps = len(table), size.seeds, -(-size.train // size.batch)
    network = make_cnn(M * S, Q + 1, size.width).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2, fused=device == "cuda")
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=size.epochs * steps, pct_start=0.1)
    generators = [torch.Generator().manual_seed(seed) for seed in range(S)]
    best = torch.full((M, S), torch.inf, device=device)
    selected = torch.empty(M, S, size.test, Q + 1, device=device)

    def outputs(rows: Tensor) -> Tensor:
        """Return the outputs (M, S, B, 1 + q) of rows (S, B)."""
        batch = images[rows].transpose(0, 1).repeat(1, M, 1, 1)
        return network(batch).view(-1, M, S, Q + 1).permute(1, 2, 0, 3)

    def losses(scores: Tensor, rows: Tensor, epoch: int) -> Tensor:
        seeds = torch.arange(S, device=device).unsqueeze(1)
        return torch.stack(
            [
                method.loss(scores[m], labels[method.targets][seeds, rows], epoch)
                for m, method in enumerate(table.values())
            ]
        )

    def evaluate(first: int, count: int) -> tuple[Tensor, Tensor]:
        rows = torch.arange(first, first + count, device=device).expand(S, -1)
        with torch.no_grad():
            return torch.cat([outputs(part) for part in rows.split(500, 1)], 2), rows

    for epoch in range(size.epochs):
        network.train()
        order = torch.stack([torch.randperm(size.train, generator=generator) for generator in generators]).to(device)
        for rows in order.split(size.batch, 1):
            optimizer.zero_grad(set_to_none=True)
            losses(outputs(rows), rows, epoch).sum().backward()
            optimizer.step()
            schedule.step()
        network.eval()
        criteria = losses(*evaluate(size.train, size.validation), 0)
        last, _ = evaluate(size.train + size.validation, size.test)
        improved = criteria < best
        best, selected = torch.where(improved, criteria, best), torch.where(improved[..., None, None], last, selected)
    return [last, selected]


def run_kind(
    task: Task, estimated: Sequence[ClassConditionalNoise], size: Size, device: str
) -> list[dict[str, object]]:
    """Return the results of all methods and seeds for one noise kind."""
    start, rows_seen = time.perf_counter(), size.train + size.validation
    targets = {
        "clean": [task.Y[:rows_seen]] * size.seeds,
        "noisy": task.noisy,
        "true": [noise.debias(labels) for noise, labels in zip(task.noises, task.noisy)],
        "estimated": [noise.debias(labels) for noise, labels in zip(estimated, task.noisy)],
        "posterior": [
            posterior_labels(task.images[:rows_seen, None], labels, noise, seed, size)
            for seed, (noise, labels) in enumerate(zip(estimated, task.noisy))
        ],
    }
    labels = {
        name: torch.tensor(np.stack(value), dtype=torch.float32, device=device) for name, value in targets.items()
    }
    table = methods({"true": task.noises, "estimated": estimated}, device)
    table = {name: method for name, method in table.items() if name in (size.methods or table)}
    last, selected = train(table, torch.tensor(task.images, device=device), labels, size, device)
    results = []
    for m, (name, method) in enumerate(table.items()):
        for seed, (noise, found) in enumerate(zip(task.noises, estimated)):
            row: dict[str, object] = {"noise": task.kind, "seed": size.first_seed + seed, "method": name}
            for prefix, values in (("", last), ("selected_", selected)):
                scores = method.decision(values[m, seed]).cpu().numpy()
                truth = task.Y[rows_seen:]
                row[f"{prefix}hamming_loss"] = round(float(hamming_loss(truth, (scores >= 0).astype(int))), 5)
                row[f"{prefix}average_precision"] = round(float(average_precision(truth, scores)), 5)
            row["rho_pos_error"] = round(float(abs(found.rho_pos - noise.rho_pos).mean()), 4)
            row["rho_neg_error"] = round(float(abs(found.rho_neg - noise.rho_neg).mean()), 4)
            results.append({**row, "train": size.train, "epochs": size.epochs, "width": size.width})
    print(f"{task.kind}: trained in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return results


def cnn_table(size: Size, device: str, path: Path | None) -> pd.DataFrame:
    """Return the results of all noise kinds; those in the file are read, and the others are added to it."""
    table = pd.read_csv(path) if path is not None and path.exists() else pd.DataFrame({"noise": []})
    tasks = [make_task(kind, size) for kind in size.kinds if kind not in set(table.noise)]
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # of the processes that estimate rates
    workers = min(len(tasks) * size.seeds, max(1, (os.cpu_count() or 1) // 2))
    with ProcessPoolExecutor(max(1, workers), get_context("spawn")) as pool:
        futures = [start_estimation(task, size, pool) for task in tasks]
        for task, started in zip(tasks, futures):
            rows = run_kind(task, [future.result() for future in started], size, device)
            table = pd.concat([table, pd.DataFrame(rows)], ignore_index=True)
            if path is not None:
                table.to_csv(path, index=False)
    return table


def summarize(table: pd.DataFrame) -> list[dict[str, object]]:
    """Return means, standard errors over seeds and the gap closed of every noise kind and method."""
    metrics = ["hamming_loss", "average_precision", "selected_hamming_loss", "selected_average_precision"]
    rows = []
    for kind, part in table.groupby("noise", sort=False):
        means = part.groupby("method", sort=False)[metrics].mean()
        errors = part.groupby("method", sort=False)[metrics].sem()
        for method in means.index:
            row: dict[str, object] = {"noise": kind, "method": method}
            for metric in metrics:
                row[metric] = round(means.loc[method, metric], 4)
            for metric in metrics[:2]:
                gap = means.loc[NOISY, metric] - means.loc[CLEAN, metric]
                error = errors.loc[method, metric]  # NaN for one seed
                row[f"{metric}_se"] = None if np.isnan(error) else round(error, 4)
                row[f"{metric}_gap_closed"] = round((means.loc[NOISY, metric] - means.loc[method, metric]) / gap, 3)
            rows.append(row)
    return rows


def verdicts(rows: list[dict[str, object]]) -> dict[str, object]:
    """Return for each noise kind the gap closed by the losses of ccmn and by the best published loss."""
    result: dict[str, object] = {}
    for kind, metric in TARGETS.items():
        closed = {row["method"]: row[f"{metric}_gap_closed"] for row in rows if row["noise"] == kind}
        if not closed:
            continue
        estimated = {name: value for name, value in closed.items() if "estimated" in str(name)}
        forward = {name: value for name, value in estimated.items() if "forward" in str(name)}
        unbiased = {name: value for name, value in estimated.items() if name not in forward}
        posterior = {name: value for name, value in closed.items() if "posterior" in str(name)}
        ours = {CLEAN, *posterior, *(name for name in closed if "rates" in str(name))}
        published = {name: value for name, value in closed.items() if name not in ours}
        groups = {
            "unbiased, estimated rates": unbiased,
            "forward, estimated rates": forward,
            "posterior labels, estimated rates": posterior,
            "best published": published,
        }
        for name, group in groups.items():
            best = max(group, key=lambda method: group[method])
            result[f"{kind}, {metric}, gap closed, {name}"] = {"method": best, "gap_closed": float(group[best])}
    return result


def print_table(rows: list[dict[str, object]]) -> None:
    """Print the means of all methods: after the last epoch, gap closed, and at the selected epoch."""
    print(f"{'noise':<11}{'method':<40}{'Hamming':>9}{'closed':>8}{'av. prec.':>11}{'closed':>8}{'selected':>18}")
    for row in rows:
        at_selected = f"{row['selected_hamming_loss']:.4f} / {row['selected_average_precision']:.4f}"
        print(
            f"{row['noise']:<11}{row['method']:<40}{row['hamming_loss']:>9.4f}{row['hamming_loss_gap_closed']:>8.2f}"
            f"{row['average_precision']:>11.4f}{row['average_precision_gap_closed']:>8.2f}{at_selected:>18}"
        )


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", type=Path, metavar="FILE", help="write every value to this file, or resume from it")
    arguments.add_argument("--cpu", action="store_true", help="train the smaller CNN on fewer images")
    arguments.add_argument("--seeds", type=int, metavar="N", help="number of seeds of a full or --cpu run")
    options = arguments.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    size = QUICK if options.quick else CPU if options.cpu else Size()
    if options.seeds is not None and not options.quick:
        size = replace(size, seeds=options.seeds)
    table = cnn_table(size, device, options.csv)
    rows = summarize(table)
    errors = table.groupby("noise", sort=False)[["rho_pos_error", "rho_neg_error"]].mean().round(4)
    notes = {"mean errors of the rates": errors.to_dict("index"), **verdicts(rows)}
    if options.json:
        print(json.dumps({"machine": machine(), "threads": torch.get_num_threads(), "results": rows, **notes}))
        return
    print(machine())
    print_table(rows)
    for name, value in notes.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
