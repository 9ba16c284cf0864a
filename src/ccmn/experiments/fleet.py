"""All runs of a table's data set at once: methods x learning rates x repeats as stacks, by the paper's protocol.

For each metric the test value is taken at the epoch and learning rate with the best value on clean validation labels,
as the paper says it did.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccmn.data.multilabel import MultiLabelData
from ccmn.data.splits import split
from ccmn.experiments.methods import METHODS, Method
from ccmn.losses import MultiLabelLoss
from ccmn.metrics.hamming import hamming_rows
from ccmn.metrics.precision import average_precision_from
from ccmn.metrics.ranking import Ranking, ranking_loss_from
from ccmn.noise import ClassConditionalNoise
from ccmn.training import NETWORKS, Network, Objective, Rows, Selection, StackedAdam, train
from ccmn.training.batches import Features
from ccmn.training.objective import Part

TABLE_METRICS = {"hamming_loss": False, "ranking_loss": False, "average_precision": True}
"""The tables' metrics, and whether greater is better."""

LEARNING_RATES = (5e-2, 5e-3, 5e-4)
_CACHE = 16 << 20
_MOST_KEPT = 256 << 20
_ENTRIES_AT_ONCE = 1 << 18
PROTOCOLS = {"literal": None, "moderate": 0.6}
"""The largest sum of the two rates of a label: any below 1, or milder draws."""


@dataclass(frozen=True)
class Repeat:
    """One random split with its noise."""

    train: Any
    validation: Any
    test: Any
    noise: ClassConditionalNoise
    noisy: Any
    """Noisy labels of all rows; only the training rows' are used."""


def make_repeats(data: MultiLabelData, protocol: str, repeats: int, seed: int = 0) -> list[Repeat]:
    """Seeded splits 50/20/30 with fresh rates each."""
    result = []
    for number in range(repeats):
        rng = np.random.default_rng([seed, number])
        training, validation, test = split(data.n, random_state=rng)
        noise = ClassConditionalNoise.sample(data.q, max_sum=PROTOCOLS[protocol], random_state=rng)
        result.append(Repeat(training, validation, test, noise, noise.corrupt(data.Y, random_state=rng)))
    return result


class _Clean:
    """Clean validation and test labels of every repeat, and the three metrics of all runs on them."""

    def __init__(self, features: Features, Y: Tensor, repeats: Sequence[Repeat], loss: MultiLabelLoss) -> None:
        self.features, self.Y, self.loss = features, Y, loss
        self.rows = {
            part: torch.stack([torch.as_tensor(getattr(r, part)) for r in repeats]).to(features.device)
            for part in ("validation", "test")
        }
        # Gathered once, where that is not too much to keep.
        self._gathered: dict[str, tuple[Tensor, Tensor]] = {}

    def measure(self, network: Network, part: str) -> Tensor:
        """(metrics, G, K)."""
        if part not in self._gathered:
            index = self.rows[part]
            found = self.features.gather(index), self.Y[index].unsqueeze(1)
            if found[0].layout != torch.strided or found[0].nbytes > _MOST_KEPT:
                return self._measure(network, *found)
            self._gathered[part] = found
        return self._measure(network, *self._gathered[part])

    def _measure(self, network: Network, X: Tensor, labels: Tensor) -> Tensor:
        scores = self.loss.decision(network.outputs(X))
        # Few large operations for a device; for a CPU as many groups at a time as stay in cache.
        groups = len(scores) if scores.is_cuda else max(1, _ENTRIES_AT_ONCE // scores[0].numel())
        parts = [
            _metrics(labels[g : g + groups], scores[g : g + groups].contiguous()) for g in range(0, len(scores), groups)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _metrics(Y: Tensor, scores: Tensor) -> Tensor:
    """The three metrics of score matrices (..., n, q) against their label matrices: (3, ...)."""
    ranking = Ranking.of(Y, scores)
    rows = hamming_rows(Y, scores >= 0), ranking_loss_from(ranking), average_precision_from(ranking)
    return torch.stack([r.mean(-1) for r in rows])


class TrackBest(Selection):
    """For each metric the weights of the epoch with the best validation value, run by run.

    Three sets of weights are kept rather than test metrics worked out every epoch, and nothing is read back from a
    device on the way.
    """

    def __init__(self, clean: _Clean) -> None:
        self.clean = clean
        signs = [1.0 if greater else -1.0 for greater in TABLE_METRICS.values()]
        self._sign = torch.tensor(signs, dtype=torch.float64, device=clean.features.device).view(-1, 1, 1)
        self.best: Tensor | None = None
        self._kept: list[list[Tensor]] = []

    @torch.no_grad()
    def look(self, epoch: int, network: Network) -> Tensor | None:
        # A run that diverged has NaN scores and cannot be the best.
        value = (self.clean.measure(network, "validation") * self._sign).nan_to_num(nan=-torch.inf)
        if self.best is None:
            self.best = value
            self._kept = [[p.values.detach().clone() for p in network.parameters] for _ in TABLE_METRICS]
            return None
        better = value > self.best
        self.best = torch.where(better, value, self.best)
        for improved, kept in zip(better, self._kept):
            for weights, parameter in zip(kept, network.parameters):
                torch.where(parameter.spread(improved), parameter.values, weights, out=weights)
        return None

    def restore(self, network: Network) -> None:
        return

    @torch.no_grad()
    def test_values(self, network: Network) -> Tensor:
        """(metrics, G, K): each metric on the test rows with the weights that were best for it."""
        values = []
        for number, kept in enumerate(self._kept):
            for weights, parameter in zip(kept, network.parameters):
                parameter.values.copy_(weights)
            values.append(self.clean.measure(network, "test")[number])
        return torch.stack(values)


@dataclass(frozen=True)
class FleetRow:
    """A test value of one method in one repeat."""

    method: str
    metric: str
    repeat: int
    value: float


def run_fleet(
    data: MultiLabelData,
    repeats: Sequence[Repeat],
    *,
    methods: Sequence[str] = tuple(METHODS),
    model: str = "linear",
    learning_rates: Sequence[float] = LEARNING_RATES,
    epochs: int = 200,
    batch_size: int = 100,
    device: str = "cpu",
    runs_at_once: int | None = None,
) -> list[FleetRow]:
    """Train every method at every learning rate in every repeat; a stack per loss.

    ``runs_at_once`` limits the runs of a stack, in whole methods; by default as many as a CPU's cache holds, and all of
    them on an accelerator.
    """
    features = Features(data.X, device=device)
    Y = torch.from_numpy(np.asarray(data.Y)).to(device)
    labels = torch.stack([torch.from_numpy(np.asarray(r.noisy)) for r in repeats]).to(device)
    chosen = [METHODS[name] for name in methods]
    rows: list[FleetRow] = []
    for loss_name in dict.fromkeys(m.loss for m in chosen):
        # The same surrogate side by side: unbiased and plain runs then share every operation.
        stack = sorted((m for m in chosen if m.loss == loss_name), key=lambda m: m.surrogate)
        limit = runs_at_once or _runs_in_cache(features, data.q)
        most = max(1, limit // (len(repeats) * len(learning_rates)))
        for start in range(0, len(stack), most):
            part = stack[start : start + most]
            found = _run_stack(part, features, Y, labels, repeats, model, learning_rates, epochs, batch_size)
            rows += _rows(part, *found, len(repeats), len(learning_rates))
    return rows


def _runs_in_cache(features: Features, q: int) -> int:
    """Runs whose weights, gradients and Adam moments (16 bytes a weight) stay in a CPU's last cache."""
    if features.device.type != "cpu":
        return 1 << 30
    return max(1, int(_CACHE // (16 * (features.d + 1) * (q + 1))))


def _run_stack(
    methods: list[Method],
    features: Features,
    Y: Tensor,
    labels: Tensor,
    repeats: Sequence[Repeat],
    model: str,
    learning_rates: Sequence[float],
    epochs: int,
    batch_size: int,
) -> tuple[Tensor, Tensor]:
    """Methods of one loss family (they have equally many outputs): G = repeats, K = methods x learning rates.

    Returns the best validation values (signed, greater is better) and the test values, (metrics, G, K) each.
    """
    many = len(learning_rates)
    parts = _parts(methods, many)
    G, K, q, device = len(repeats), len(methods) * many, Y.shape[1], features.device
    seeds = [[g * 1000 + k % many for k in range(K)] for g in range(G)]
    network = NETWORKS[model](features.d, parts[0].loss.n_outputs(q), seeds, device=device)
    unbiased = torch.tensor([m.unbiased for m in methods]).repeat_interleave(many).view(1, K, 1)
    rates = [
        torch.stack([torch.from_numpy(getattr(r.noise, side).copy()) for r in repeats]).unsqueeze(1) * unbiased
        for side in ("rho_pos", "rho_neg")
    ]
    lr = torch.tensor(list(learning_rates) * len(methods), device=device).expand(G, K)
    tracked = TrackBest(_Clean(features, Y, repeats, parts[0].loss))
    train(
        network,
        Objective(parts, (rates[0].to(device), rates[1].to(device))),
        features,
        labels,
        Rows([r.train for r in repeats], batch_size, [g * 1000 for g in range(G)], device=device),
        StackedAdam(network.parameters, lr, torch.full_like(lr, 1e-4), clip=None),
        tracked,
        epochs=epochs,
    )
    assert tracked.best is not None
    return tracked.best, tracked.test_values(network)


def _parts(methods: list[Method], many: int) -> list[Part]:
    """Runs of neighbouring methods with the same surrogate as one slice; "plain" is rates of zero."""
    parts = []
    for _, group in itertools.groupby(enumerate(methods), key=lambda pair: pair[1].surrogate):
        numbers = [i for i, _ in group]
        parts.append(Part(slice(numbers[0] * many, (numbers[-1] + 1) * many), methods[numbers[0]].make_loss()))
    return parts


def _rows(methods: list[Method], best: Tensor, test: Tensor, repeats: int, many: int) -> list[FleetRow]:
    """The best learning rate by validation, metric by metric and repeat by repeat."""
    best, test = (t.view(len(TABLE_METRICS), repeats, len(methods), many).cpu() for t in (best, test))
    values = test.gather(-1, best.argmax(-1, keepdim=True)).squeeze(-1)
    return [
        FleetRow(method.name, metric, g, float(values[m, g, i]))
        for m, metric in enumerate(TABLE_METRICS)
        for g in range(repeats)
        for i, method in enumerate(methods)
    ]
