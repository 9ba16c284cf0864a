"""Fleets: runs (methods x learning rates x repeats) that are trained together as one batch, with stacked weights.

Two selections are reported. "clean": every metric is selected on true validation labels, as in the paper. "noisy": the
selection that is possible without true labels, on noisy validation labels with metrics that are corrected for the
noise: the unbiased Hamming loss, and the pooled ranking loss for all ranking metrics.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ccmn.data.dataset import MultiLabelData
from ccmn.metrics.ranking_metrics import Ranking, average_precision_from, coverage_rows, ranking_loss_from
from ccmn.noise import ClassConditionalNoise
from ccmn.noise.class_conditional import debias_labels
from ccmn.paper.protocols import DEFAULT_BATCH_SIZE, LEARNING_RATES, Repeat
from ccmn.paper.tables import GREATER_IS_BETTER, METHODS, PAPER_METHODS, SELECTIONS, TABLE_METRICS, Method
from ccmn.training.batches import Features, Rows, RunLabels
from ccmn.training.loop import Part, train
from ccmn.training.networks import NETWORKS, Network, StackedAdam
from ccmn.training.selection import KeepBest

_CACHE_BYTES = 16 << 20
"""Size of the last-level cache that the weights of a group should fit in on a CPU."""
_MAX_KEPT_BYTES = 256 << 20
"""Features of held-out rows are gathered once and kept up to this size."""
MAX_PAIRWISE_LABELS = 32
"""Up to this number of labels, ranks are computed from all pairs: sorting many short rows is slower."""
HIT_WEIGHT = 64
"""Weight of a true label in a count that stores rank and hits in one number; larger than the number of labels."""
MAX_PAIRS_PER_BLOCK = 1 << 17
"""Maximum number of pairs that are compared at a time. Buffers of this size fit in the CPU cache."""
MAX_SCORES_PER_BLOCK = 1 << 18
"""Maximum number of scores per block on a CPU. Blocks of this size fit in the cache."""


@dataclass(frozen=True)
class FleetSettings:
    """Settings that all runs share; with ``refit``, selected ones are trained again on all rows but the test rows."""

    model: str = "linear"
    learning_rates: tuple[float, ...] = LEARNING_RATES
    epochs: int = 200
    batch_size: int = DEFAULT_BATCH_SIZE
    weight_decay: float = 1e-4
    metrics: tuple[str, ...] = TABLE_METRICS
    selections: tuple[str, ...] = SELECTIONS
    refit: bool = False


@dataclass(frozen=True)
class Outcome:
    """Values of one method in one repeat.

    For every selection and metric, ``values`` has the value on true test labels, and ``chosen`` the selected
    hyperparameters with the validation value that they were selected by.
    """

    method: str
    repeat: int
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    chosen: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def add(self, selection: str, values: Mapping[str, Tensor], choice: dict[str, float]) -> None:
        """Store the test values of some metrics, and the choice that they are based on."""
        for metric, value in values.items():
            self.values.setdefault(selection, {})[metric] = float(value)
            self.chosen.setdefault(selection, {})[metric] = choice


def run_fleet(
    data: MultiLabelData,
    repeats: Sequence[Repeat],
    methods: Sequence[str] = PAPER_METHODS,
    settings: FleetSettings | None = None,
    *,
    estimated: Mapping[int, ClassConditionalNoise] | None = None,
    device: str = "cpu",
    max_runs: int | None = None,
) -> Iterator[Outcome]:
    """Train methods at every learning rate in every repeat, group by group, and yield their outcomes.

    ``estimated`` is the noise model of each repeat with which methods named "...-estimated" are corrected.
    """
    settings = settings or FleetSettings()
    runs_per_method = len(repeats) * len(settings.learning_rates)
    for group in group_methods([METHODS[name] for name in methods], data, runs_per_method, device, max_runs):
        yield from Fleet(data, repeats, group, settings, estimated, device).run()


def group_methods(
    methods: Sequence[Method], data: MultiLabelData, runs_per_method: int, device: str, max_runs: int | None = None
) -> list[list[Method]]:
    """Return groups of methods that are trained at the same time.

    The methods of a group have the same loss and hence equally many outputs. By default, the weights, gradients and
    Adam moments (16 bytes per weight) of a group fit in the cache of a CPU; the size is not limited on a GPU.
    """
    if max_runs is None:
        cpu = torch.device(device).type == "cpu"
        max_runs = max(1, int(_CACHE_BYTES // (16 * (data.d + 1) * (data.q + 1)))) if cpu else 1 << 30
    size = max(1, max_runs // runs_per_method)
    groups = []
    for loss in dict.fromkeys(m.loss for m in methods):
        # Unbiased and plain runs with the same surrogate are adjacent, so that they share every operation.
        family = sorted((m for m in methods if m.loss == loss), key=lambda m: m.surrogate)
        groups += [family[start : start + size] for start in range(0, len(family), size)]
    return groups


class Fleet:
    """Runs of methods of one loss: G = repeats, K = methods x learning rates."""

    def __init__(
        self,
        data: MultiLabelData,
        repeats: Sequence[Repeat],
        methods: Sequence[Method],
        settings: FleetSettings,
        estimated: Mapping[int, ClassConditionalNoise] | None = None,
        device: str = "cpu",
    ) -> None:
        self.methods, self.repeats = list(methods), list(repeats)
        self.settings, self.estimated = settings, estimated or {}
        self.features = Features(data.X, device=device)
        self.Y = torch.from_numpy(np.asarray(data.Y)).to(device)
        self.noisy = torch.stack([torch.from_numpy(np.asarray(r.noisy)) for r in repeats]).to(self.features.device)
        self.n_rates, self.loss = len(settings.learning_rates), methods[0].make_loss()

    def run(self) -> list[Outcome]:
        """Train all methods, select on the validation rows, then evaluate on the test rows."""
        wanted, validation = criteria(self.settings.metrics, self.settings.selections), self._held_out("validation")
        best = KeepBest(lambda network: -validation.measure(wanted, self._scores(network, validation)), 0.0)
        network, final = self._train([r.train for r in self.repeats], best, self.settings.epochs), best
        if self.settings.refit:
            epochs = itertools.count()
            final = KeepBest(lambda network: -(best.epoch == next(epochs)).double())
            network = self._train([r.known for r in self.repeats], final, int(best.epoch.max()) + 1)
        test, shape = self._held_out("test"), (len(self.repeats), len(self.methods), self.n_rates)
        runs = list(itertools.product(range(len(self.methods)), range(len(self.repeats))))
        outcomes = [Outcome(self.methods[m].name, self.repeats[g].number) for m, g in runs]
        for number, criterion in enumerate(wanted):
            final.load(network, number)
            with torch.no_grad():
                metrics = test.metrics(self._scores(network, test), criterion.decides)
            tested = {metric: values.cpu().view(shape) for metric, values in metrics.items()}
            value, epoch = (t[number].cpu().view(shape) for t in (-best.value, best.epoch))
            for outcome, (m, g) in zip(outcomes, runs):
                rate = int(value[g, m].argmax())
                choice = {
                    "learning_rate": self.settings.learning_rates[rate],
                    "epoch": float(epoch[g, m, rate]) + 1,
                    "validation": criterion.sign * float(value[g, m, rate]),
                }
                found = {metric: values[g, m, rate] for metric, values in tested.items()}
                outcome.add(criterion.selection, found, choice)
        return outcomes

    def _scores(self, network: Network, rows: HeldOutSet) -> Tensor:
        return self.loss.decision(network.outputs(rows.inputs()))

    def _train(self, rows: list[NDArray[np.intp]], best: KeepBest, epochs: int) -> Network:
        """Train all runs on these rows of every repeat, each from its own initial weights."""
        settings, device = self.settings, self.features.device
        G, K = len(self.repeats), len(self.methods) * self.n_rates
        seeds = [[r.number * 1000 + k % self.n_rates for k in range(K)] for r in self.repeats]
        outputs = self.loss.n_outputs(self.Y.shape[1])
        network = NETWORKS[settings.model](self.features.d, outputs, seeds, device=device)
        lr = torch.tensor(settings.learning_rates * len(self.methods), device=device).expand(G, K)
        result = train(
            network,
            self._parts(),
            self.features,
            RunLabels(self.noisy, *self._rates(for_training=True)),
            Rows(rows, settings.batch_size, [r.number * 1000 for r in self.repeats], device=device),
            StackedAdam(network.parameters, lr, torch.full_like(lr, settings.weight_decay), clip=None),
            best,
            epochs=epochs,
        )
        if result.interrupted:  # the best weights so far are no result of the protocol
            raise KeyboardInterrupt
        return network

    def _parts(self) -> list[Part]:
        """Return the slices of the runs with the same surrogate."""
        names, n = [m.surrogate for m in self.methods], self.n_rates
        firsts = [(names.index(name), names.count(name)) for name in dict.fromkeys(names)]
        return [Part(slice(i * n, (i + count) * n), self.methods[i].make_loss()) for i, count in firsts]

    def _rates(self, *, for_training: bool) -> tuple[Tensor, ...]:
        """Return rho_pos and rho_neg of every run, (G, K, q).

        Plain methods are trained with rates of zero. The noisy validation labels are corrected with the noise rates for
        all methods: the selection is the same, so that only the losses are compared.
        """

        def of(method: Method, repeat: Repeat) -> NDArray[np.float64]:
            noise = self.estimated[repeat.number] if method.rates == "estimated" else repeat.noise
            return np.stack([noise.rho_pos, noise.rho_neg]) * (not for_training or method.rates != "none")

        rates = torch.from_numpy(np.array([[of(m, r) for m in self.methods] for r in self.repeats]))
        return rates.repeat_interleave(self.n_rates, 1).to(self.features.device).unbind(2)

    def _held_out(self, part: str) -> HeldOutSet:
        """Return the validation or test rows of every repeat."""
        rows = torch.stack([torch.from_numpy(getattr(r, part)) for r in self.repeats]).to(self.features.device)
        clean = self.Y[rows].unsqueeze(1)
        gather = partial(self.features.gather, rows)
        if part == "test" or "noisy" not in self.settings.selections:
            return HeldOutSet(clean, None, gather)
        noisy = self.noisy[torch.arange(len(rows), device=rows.device).unsqueeze(1), rows]
        rho_pos, rho_neg = (rates.unsqueeze(2) for rates in self._rates(for_training=False))
        debiased = debias_labels(noisy.unsqueeze(1), rho_pos, rho_neg)
        return HeldOutSet(clean, debiased.float(), gather)


# -- Metrics and model selection


def metrics(Y: ArrayLike, scores: ArrayLike) -> dict[str, float]:
    """Return the metrics of tables 1 to 3.

    A label is predicted if its score is at least 0. Ranking metrics of rows without labels are those of scikit-learn:
    ranking loss 0, average precision 1.

    Parameters
    ----------
    Y : array-like of shape (n, q)
        True labels, 0 or 1.
    scores : array-like of shape (n, q)
        Scores, for example of ``decision_function``.

    Returns
    -------
    dict
        Metric -> value: "hamming_loss", "ranking_loss" and "average_precision".

    Examples
    --------
    >>> metrics([[1, 0, 1]], [[2.0, 1.0, -1.0]])
    {'hamming_loss': 0.666..., 'ranking_loss': 0.5, 'average_precision': 0.833...}
    """
    values = HeldOutSet(torch.as_tensor(np.asarray(Y))).metrics(torch.as_tensor(np.asarray(scores)), TABLE_METRICS)
    return {name: float(value) for name, value in values.items()}


class Criterion(NamedTuple):
    """Validation metric, and the table metrics whose epoch and learning rate it selects."""

    selection: str
    name: str
    decides: tuple[str, ...]

    @property
    def sign(self) -> float:
        """Sign of the metric: 1 if greater is better, else -1."""
        return 1.0 if self.selection == "clean" and GREATER_IS_BETTER[self.name] else -1.0


def criteria(metrics: Sequence[str], selections: Sequence[str] = SELECTIONS) -> list[Criterion]:
    """Return the criteria of a table with these metrics."""
    result = [Criterion("clean", metric, (metric,)) for metric in metrics if "clean" in selections]
    if "noisy" in selections:
        result.append(Criterion("noisy", "hamming_loss", ("hamming_loss",)))
        result.append(Criterion("noisy", "ranking_loss", tuple(m for m in metrics if m != "hamming_loss")))
    return result


class HeldOutSet:
    """Validation or test rows of every repeat, and the metrics of scores on them.

    ``clean`` (G, 1, n, q) are the true labels, ``debiased`` (G, K or 1, n, q) the noisy ones, debiased with the rates
    that each run knows. ``gather`` returns the features (G, n, d), or sparse (n, d).
    """

    def __init__(
        self, clean: Tensor, debiased: Tensor | None = None, gather: Callable[[], Tensor] = lambda: torch.empty(0)
    ) -> None:
        self.clean, self.debiased, self._gather = clean, debiased, gather
        self._X: Tensor | None = None
        self._table_metrics = BatchedMetrics(clean)

    def inputs(self) -> Tensor:
        """Return the features, which are kept unless they are sparse or large."""
        X = self._gather() if self._X is None else self._X
        if X.layout == torch.strided and X.nbytes <= _MAX_KEPT_BYTES:
            self._X = X
        return X

    def metrics(self, scores: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """Return metrics on the true labels of scores (..., n, q), (...) each."""
        values = dict(zip(TABLE_METRICS, self._table_metrics(scores)))
        if "coverage" in names:
            values["coverage"] = coverage_rows(self.clean, scores, True).mean(-1)
        return {name: values[name] for name in names}

    def measure(self, wanted: Sequence[Criterion], scores: Tensor) -> Tensor:
        """Return every criterion for every run, (C, G, K) in float64.

        Greater is better. The value is NaN for a run that diverged: non-finite scores have no order and must not count
        as a perfect ranking.
        """
        values: dict[tuple[str, str], Tensor] = {}
        clean = [c.name for c in wanted if c.selection == "clean"]
        if clean:
            values |= {("clean", name): value for name, value in self.metrics(scores, clean).items()}
        if self.debiased is not None:
            p = self.debiased
            wrong, pairs = pooled_wrong_from(Ranking.of(p, scores))
            values["noisy", "hamming_loss"] = torch.where(scores >= 0, 1 - p, p).double().mean((-1, -2))
            values["noisy", "ranking_loss"] = wrong.sum(-1) / pairs.sum(-1)
        stacked = torch.stack([c.sign * values[c.selection, c.name] for c in wanted])
        return stacked.masked_fill(~scores.sum((-1, -2)).isfinite(), torch.nan)


# -- Three metrics of many models on the same rows, epoch after epoch: buffers are reused between calls


def pooled_wrong_from(ranking: Ranking) -> tuple[Tensor, Tensor]:
    r"""Return the weights of wrong pairs (a tied pair counts 1/2) and of all pairs of each row, for real-valued labels.

    .. math:: \sum_{j \neq k} p_j (1 - p_k) (1[f_j < f_k] + \tfrac12 1[f_j = f_k])
              = \tfrac12 \Big( \sum_j (p_j r_j - h_j) + \sum_{j \neq k} p_j (1 - p_k) \Big)

    Here :math:`p_j` is the value of label j, :math:`r_j` its rank and
    :math:`h_j = \sum_{k: f_k \geq f_j} p_k` its hits. Products of two p cancel on the right-hand side, so the ranking
    is sufficient.
    """
    p, total = ranking.labels, ranking.positives
    pairs = total * (p.shape[-1] - total) - (p * (1 - p)).sum(-1)
    return ((p * ranking.rank - ranking.hits).sum(-1) + pairs) / 2, pairs


class BatchedMetrics:
    """Hamming loss, ranking loss and average precision of score matrices for one label matrix or a stack of them.

    Leading dimensions of the labels ``Y`` (..., n, q) broadcast with those of the scores.

    >>> metrics = BatchedMetrics(torch.tensor([[1, 0, 1, 0]]))
    >>> metrics(torch.tensor([[0.9, 0.8, 0.3, -0.1]]))
    tensor([0.2500, 0.2500, 0.8333], dtype=torch.float64)
    """

    def __init__(self, Y: Tensor) -> None:
        self.Y = Y
        self._pairwise: _PairwiseMetrics | None = None
        self._made_for: tuple[torch.Size, torch.dtype] | None = None

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the three metrics as means over rows: (..., n, q) -> (3, ...), float64.

        A label is predicted if its score is at least 0.
        """
        scores = scores.expand(torch.broadcast_shapes(self.Y.shape, scores.shape))  # type: ignore[no-untyped-call]
        if scores.device.type != "cpu":
            return _metrics_by_ranking(self.Y, scores).mean(-1)
        Y = self.Y[(None,) * (scores.ndim - self.Y.ndim)]
        if scores.shape[-1] <= MAX_PAIRWISE_LABELS:
            if self._pairwise is None or self._made_for != (scores.shape, scores.dtype):
                self._pairwise, self._made_for = _PairwiseMetrics(Y, scores), (scores.shape, scores.dtype)
            blocks = [self._pairwise(scores[block], block) for block in _blocks(scores)]
        else:
            Y = Y.expand(len(scores), *[-1] * (scores.ndim - 1))
            blocks = [_metrics_by_ranking(Y[block], scores[block]) for block in _blocks(scores)]
        return torch.cat(blocks, 1).mean(-1)


def _metrics_by_ranking(Y: Tensor, scores: Tensor) -> Tensor:
    scores = scores.contiguous()
    ranking, wrong = Ranking.of(Y, scores), (scores >= 0) != Y.bool()
    hamming = wrong.sum(-1).double() / Y.shape[-1]
    return torch.stack([hamming, ranking_loss_from(ranking), average_precision_from(ranking)])


def _blocks(scores: Tensor) -> Iterator[slice]:
    size = max(1, MAX_SCORES_PER_BLOCK // max(1, scores[0].numel()))
    return (slice(start, min(start + size, len(scores))) for start in range(0, len(scores), size))


class _PairwiseMetrics:
    """The three metrics for few labels on a CPU, from comparisons of all label pairs.

    Labels are the outermost dimension, so that every operation is vectorized over rows.
    """

    def __init__(self, Y: Tensor, like: Tensor) -> None:
        dtype = torch.promote_types(like.dtype, torch.float32)
        with torch.inference_mode(False):  # buffers must also be writable outside inference mode
            y = Y.to(dtype).movedim(-1, 0).contiguous()
            self._y = y.expand(-1, len(like), *y.shape[2:])
            self._weights = self._y * HIT_WEIGHT + 1
            positives = self._y.sum(0).double()
            self._n_pairs = (positives * (len(self._y) - positives)).clamp(min=1)
            self._n_positives, self._empty = positives.clamp(min=1), (positives == 0).double()
            shape = like.shape[-1], next(_blocks(like)).stop, *like.shape[1:-1]
            self._f, self._rank, self._hits = torch.empty(3, *shape, dtype=dtype).unbind(0)
            self._ratio, self._divisor = torch.empty(2, *shape, dtype=torch.float64).unbind(0)
            size = max(1, min(len(self._f), MAX_PAIRS_PER_BLOCK // max(1, self._f.numel())))
            self._pair_buffer = self._f.new_empty(size, *self._f.shape)

    def __call__(self, scores: Tensor, block: slice) -> Tensor:
        """Return the three metrics of each row of one block: (3, ..., n)."""
        buffers = (self._f, self._rank, self._hits, self._ratio, self._divisor)
        f, rank, hits, ratio, divisor = (buffer[:, : len(scores)] for buffer in buffers)
        y = self._y[:, block]
        f.copy_(scores.movedim(-1, 0))
        errors = torch.ge(f, 0, out=hits).ne_(y).sum(0).double()
        weights, buffer = self._weights[:, block], self._pair_buffer[:, :, : len(scores)]
        # For every label j the sum of the weights w_k with f_k >= f_j, by blocks of labels j. Comparisons with floating
        # output are vectorized; those with boolean output are not.
        for start in range(0, len(f), len(buffer)):
            part = f[start : start + len(buffer)]
            not_below = torch.ge(f, part.unsqueeze(1), out=buffer[: len(part)])
            torch.sum(not_below.mul_(weights), 1, out=rank[start : start + len(part)])
        torch.mul(rank, 1 / HIT_WEIGHT, out=hits).floor_()
        rank.sub_(hits, alpha=HIT_WEIGHT)
        hits.mul_(y)
        precision = ratio.copy_(hits).div_(divisor.copy_(rank)).sum(0)
        wrong = rank.mul_(y).sub_(hits).sum(0).double()
        # A row without true labels counts 1; its sum of precisions is 0.
        precision = (precision + self._empty[block]) / self._n_positives[block]
        return torch.stack([errors / len(f), wrong / self._n_pairs[block], precision])
