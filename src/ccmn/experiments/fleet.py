"""All runs of a table's data set at once: methods x learning rates x repeats as stacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn.data.multilabel import MultiLabelData
from ccmn.experiments.criteria import SELECTIONS, TABLE_METRICS, HeldOut, criteria
from ccmn.experiments.methods import METHODS, TEN, Method
from ccmn.experiments.protocols import LEARNING_RATES, Repeat
from ccmn.experiments.track import KeepEpochs, KeptWeights, TrackBest
from ccmn.noise import ClassConditionalNoise
from ccmn.training import NETWORKS, Network, Objective, Rows, StackedAdam, train
from ccmn.training.batches import Features
from ccmn.training.loop import Part

_CACHE = 16 << 20
_CURVE_POINTS = 40


@dataclass(frozen=True)
class Outcome:
    """What one method came to in one repeat."""

    method: str
    repeat: int
    values: dict[str, dict[str, float]]
    """Selection -> metric -> value on clean test labels."""
    chosen: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """Selection -> metric -> what was chosen on validation, and the validation value it was chosen by."""
    curves: dict[str, list[list[float]]] = field(default_factory=dict)
    """Metric -> (epoch, value on clean validation labels), at the learning rate chosen; a few dozen points."""


@dataclass(frozen=True)
class Settings:
    """How every run of a fleet is trained and judged."""

    model: str = "linear"
    learning_rates: tuple[float, ...] = LEARNING_RATES
    epochs: int = 200
    batch_size: int = 100
    weight_decay: float = 1e-4
    metrics: tuple[str, ...] = TABLE_METRICS
    selections: tuple[str, ...] = SELECTIONS
    refit: bool = False
    """Train what was chosen once more, on training and validation rows together."""


def run_fleet(
    data: MultiLabelData,
    repeats: Sequence[Repeat],
    methods: Sequence[str] = TEN,
    settings: Settings | None = None,
    *,
    estimated: Mapping[int, ClassConditionalNoise] | None = None,
    device: str = "cpu",
    runs_at_once: int | None = None,
) -> Iterator[Outcome]:
    """Train every method at every learning rate in every repeat; outcomes come a stack at a time.

    Parameters
    ----------
    estimated : number of a repeat -> noise, optional
        The rates that methods named "...-estimated" are corrected with.
    runs_at_once : int, optional
        Limits the runs of a stack, in whole methods; by default as many as a CPU's cache holds, and all of them on an
        accelerator.
    """
    settings = settings or Settings()
    many = len(repeats) * len(settings.learning_rates)
    features = Features(data.X, device=device)
    Y = torch.from_numpy(np.asarray(data.Y)).to(device)
    for stack in stacks([METHODS[name] for name in methods], data, many, device, runs_at_once):
        yield from _Stack(stack, features, Y, repeats, settings, estimated or {}).run()


def stacks(
    methods: Sequence[Method], data: MultiLabelData, runs_each: int, device: str, runs_at_once: int | None = None
) -> list[list[Method]]:
    """Methods that train together: those of one loss (they have equally many outputs), as many as the limit allows."""
    most = max(1, (runs_at_once or _runs_in_cache(data, device)) // runs_each)
    found = []
    for loss in dict.fromkeys(m.loss for m in methods):
        # The same surrogate side by side: unbiased and plain runs then share every operation.
        family = sorted((m for m in methods if m.loss == loss), key=lambda m: m.surrogate)
        found += [family[start : start + most] for start in range(0, len(family), most)]
    return found


def _runs_in_cache(data: MultiLabelData, device: str) -> int:
    """Runs whose weights, gradients and Adam moments (16 bytes a weight) stay in a CPU's last cache."""
    if torch.device(device).type != "cpu":
        return 1 << 30
    return max(1, int(_CACHE // (16 * (data.d + 1) * (data.q + 1))))


class _Stack:
    """Methods of one loss: G = repeats, K = methods x learning rates."""

    def __init__(
        self,
        methods: Sequence[Method],
        features: Features,
        Y: Tensor,
        repeats: Sequence[Repeat],
        settings: Settings,
        estimated: Mapping[int, ClassConditionalNoise],
    ) -> None:
        self.methods, self.features, self.Y = list(methods), features, Y
        self.repeats, self.settings, self.estimated = list(repeats), settings, estimated
        self.many = len(settings.learning_rates)
        self.noisy = torch.stack([torch.from_numpy(np.asarray(r.noisy)) for r in repeats]).to(features.device)

    def run(self) -> list[Outcome]:
        """Train, choose on validation rows, then look at the test rows."""
        loss = self._parts()[0].loss
        track = TrackBest(criteria(self.settings.metrics, self.settings.selections), self._held_out("validation"), loss)
        network = self._train([r.train for r in self.repeats], track)
        kept: KeptWeights = track
        if self.settings.refit:
            assert track.best_epoch is not None
            kept = KeepEpochs(track.wanted, track.best_epoch, loss)
            network = self._train([r.known for r in self.repeats], kept)
        return self._outcomes(track, kept.values(network, self._held_out("test")))

    def _train(self, rows: list[NDArray[np.intp]], kept: KeptWeights) -> Network:
        """All runs, from their own starting points, on these rows of every repeat."""
        parts, settings, device = self._parts(), self.settings, self.features.device
        G, K = len(self.repeats), len(self.methods) * self.many
        seeds = [[r.number * 1000 + k % self.many for k in range(K)] for r in self.repeats]
        outputs = kept.loss.n_outputs(self.Y.shape[1])
        network = NETWORKS[settings.model](self.features.d, outputs, seeds, device=device)
        lr = torch.tensor(settings.learning_rates * len(self.methods), device=device).expand(G, K)
        train(
            network,
            Objective(parts, self._rates(trained=True)),
            self.features,
            self.noisy,
            Rows(rows, settings.batch_size, [r.number * 1000 for r in self.repeats], device=device),
            StackedAdam(network.parameters, lr, torch.full_like(lr, settings.weight_decay), clip=None),
            kept,
            epochs=settings.epochs,
        )
        return network

    def _parts(self) -> list[Part]:
        """Runs of neighbouring methods with the same surrogate as one slice; "plain" is rates of zero."""
        parts = []
        for _, group in itertools.groupby(enumerate(self.methods), key=lambda pair: pair[1].surrogate):
            numbers = [i for i, _ in group]
            runs = slice(numbers[0] * self.many, (numbers[-1] + 1) * self.many)
            parts.append(Part(runs, self.methods[numbers[0]].make_loss()))
        return parts

    def _rates(self, *, trained: bool) -> tuple[Tensor, Tensor]:
        """rho_pos and rho_neg of every run, (G, K, q).

        Those a run is trained with are zero for plain methods. Those that noisy validation labels are corrected with
        are not: selection is the same for all, so that the losses alone are compared.
        """
        sides = []
        for side in ("rho_pos", "rho_neg"):
            rows = [[self._rates_of(m, r, side, trained) for m in self.methods] for r in self.repeats]
            rates = torch.from_numpy(np.asarray(rows)).repeat_interleave(self.many, 1)
            sides.append(rates.to(self.features.device))
        return sides[0], sides[1]

    def _rates_of(self, method: Method, repeat: Repeat, side: str, trained: bool) -> NDArray[np.float64]:
        if method.rates == "none" and trained:
            return np.zeros(self.Y.shape[1])
        noise = self.estimated[repeat.number] if method.rates == "estimated" else repeat.noise
        return np.asarray(getattr(noise, side))

    def _held_out(self, part: str) -> HeldOut:
        rows = torch.stack([torch.from_numpy(getattr(r, part)) for r in self.repeats]).to(self.features.device)
        clean = self.Y[rows].unsqueeze(1)
        if part == "test" or "noisy" not in self.settings.selections:
            return HeldOut(self.features, rows, clean)
        noisy = self.noisy[torch.arange(len(rows), device=rows.device).unsqueeze(1), rows]
        rho_pos, rho_neg = (rates.unsqueeze(2) for rates in self._rates(trained=False))
        debiased = (noisy.unsqueeze(1) - rho_neg) / (1 - rho_pos - rho_neg)
        return HeldOut(self.features, rows, clean, debiased.float())

    def _outcomes(self, track: TrackBest, test: Mapping[tuple[str, str], Tensor]) -> list[Outcome]:
        """The best learning rate by validation, criterion by criterion and repeat by repeat."""
        assert track.best is not None
        assert track.best_epoch is not None
        shape = len(track.wanted), len(self.repeats), len(self.methods), self.many
        best, epoch = (t.cpu().view(shape) for t in (track.best, track.best_epoch))
        curve = torch.stack(track.curve).cpu().view(-1, *shape)
        values = {key: value.cpu().view(shape[1:]) for key, value in test.items()}
        return [
            self._outcome(track, values, best[:, g, m], epoch[:, g, m], curve[:, :, g, m], g, m)
            for m in range(len(self.methods))
            for g in range(len(self.repeats))
        ]

    def _outcome(
        self,
        track: TrackBest,
        test: Mapping[tuple[str, str], Tensor],
        best: Tensor,
        epoch: Tensor,
        curve: Tensor,
        g: int,
        m: int,
    ) -> Outcome:
        outcome = Outcome(
            self.methods[m].name,
            self.repeats[g].number,
            {s: {} for s in self.settings.selections},
            {s: {} for s in self.settings.selections},
        )
        points = np.unique(np.linspace(0, len(curve) - 1, _CURVE_POINTS).round().astype(int))
        for number, criterion in enumerate(track.wanted):
            rate = int(best[number].argmax())
            choice = {
                "learning_rate": self.settings.learning_rates[rate],
                "epoch": float(epoch[number, rate]) + 1,
                "validation": criterion.sign * float(best[number, rate]),
            }
            for metric in criterion.decides:
                outcome.values[criterion.selection][metric] = float(test[criterion.selection, metric][g, m, rate])
                outcome.chosen[criterion.selection][metric] = choice
            if criterion.selection == "clean":
                line = criterion.sign * curve[points, number, rate]
                outcome.curves[criterion.name] = [[int(e) + 1, round(float(v), 4)] for e, v in zip(points, line)]
        return outcome
