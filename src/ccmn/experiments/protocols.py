"""How an experiment is set up: how rows are split, how labels go wrong, which learning rates are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._registry import Catalogue
from ccmn.data.datasets import DATASETS
from ccmn.data.multilabel import MultiLabelData
from ccmn.data.splits import split
from ccmn.noise import ClassConditionalNoise, PartialNoise

LEARNING_RATES = (5e-2, 5e-3, 5e-4)


@dataclass(frozen=True)
class Protocol:
    """Everything that a table's numbers depend on besides the data, the method and the number of the repeat."""

    name: str
    draw: str
    """A name in ``DRAWS``: how the noisy labels come about."""
    choices: tuple[float, ...] = ()
    """The rates to draw from."""
    max_sum: float | None = None
    """The largest sum of the two rates of a label; None: any below 1."""
    fractions: tuple[float, float, float] = (0.5, 0.2, 0.3)
    """Training, validation and test rows."""
    learning_rates: tuple[float, ...] = LEARNING_RATES
    batch_sizes: Mapping[str, int] = field(default_factory=dict)
    """By data set; others have the size in the paper's appendix, or 100."""
    estimator: str = "auto"
    """How methods named "...-estimated" come by their rates: a method of ``estimate_noise``."""
    epochs: int = 200
    weight_decay: float = 1e-4
    refit: bool = False
    """Validation rows serve the choice alone, and then train as well: what was chosen is fitted once more, on training
    and validation rows together (their noisy labels), and that is what the test rows judge."""

    def batch_size(self, dataset: str) -> int:
        """The number of rows a step sees."""
        if dataset in self.batch_sizes:
            return self.batch_sizes[dataset]
        return DATASETS[dataset].paper.batch_size if dataset in DATASETS else 100

    def recipe(self, dataset: str) -> dict[str, Any]:
        """All of it that bears on this data set, JSON-safe."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("batch_sizes", "refit")}
        if self.refit:  # left out where it is not done, so that results stored before it existed keep their keys
            fields["refit"] = True
        return {**fields, "batch_size": self.batch_size(dataset)}


@dataclass(frozen=True)
class Repeat:
    """One random split with its noise."""

    number: int
    train: NDArray[np.intp]
    validation: NDArray[np.intp]
    test: NDArray[np.intp]
    noise: ClassConditionalNoise
    """The rates that the labels were flipped with, or those read off the training rows of real candidate sets."""
    noisy: Any
    """Noisy labels of all rows; those of the test rows are never used."""

    @property
    def known(self) -> NDArray[np.intp]:
        """All rows but those of the test: what a refit trains on."""
        return np.concatenate((self.train, self.validation))


def make_repeats(data: MultiLabelData, protocol: Protocol, repeats: int = 5, seed: int = 0) -> list[Repeat]:
    """Seeded splits with fresh rates each; repeat k is the same whatever the number of repeats."""
    return [make_repeat(data, protocol, number, seed) for number in range(repeats)]


def make_repeat(data: MultiLabelData, protocol: Protocol, number: int, seed: int = 0) -> Repeat:
    """The repeat of this number."""
    rng = np.random.default_rng([seed, number])
    training, validation, test = split(data.n, protocol.fractions, random_state=rng)
    noise, noisy = DRAWS[protocol.draw](data, protocol, training, rng)
    return Repeat(number, training, validation, test, noise, noisy)


Draw = Callable[
    [MultiLabelData, Protocol, NDArray[np.intp], np.random.Generator], tuple[ClassConditionalNoise, NDArray[Any]]
]


def _flip_both_ways(
    data: MultiLabelData, protocol: Protocol, training: NDArray[np.intp], rng: np.random.Generator
) -> tuple[ClassConditionalNoise, Any]:
    """Two rates for every label."""
    noise = ClassConditionalNoise.sample(data.q, protocol.choices, protocol.max_sum, random_state=rng)
    return noise, noise.corrupt(data.Y, random_state=rng)


def _add_labels(
    data: MultiLabelData, protocol: Protocol, training: NDArray[np.intp], rng: np.random.Generator
) -> tuple[ClassConditionalNoise, Any]:
    """One rate for all labels, at which false ones are added."""
    noise = PartialNoise.sample(data.q, protocol.choices, random_state=rng)
    return noise, noise.corrupt(data.Y, random_state=rng)


def _take_candidates(
    data: MultiLabelData, protocol: Protocol, training: NDArray[np.intp], rng: np.random.Generator
) -> tuple[ClassConditionalNoise, Any]:
    """The candidate sets that come with the data; their rates are read off the truth of the training rows."""
    if data.candidates is None:
        raise ValueError(
            f"{data.name or 'the data'} has no candidate sets of its own; the protocol {protocol.name!r} needs them"
        )
    return PartialNoise.from_pairs(data.Y[training], data.candidates[training]), data.candidates


DRAWS: Catalogue[Draw] = Catalogue(
    "draw of noise", {"both_ways": _flip_both_ways, "added": _add_labels, "candidates": _take_candidates}
)

_FIFTHS = (0.1, 0.2, 0.3, 0.4, 0.5)

LITERAL = Protocol("literal", "both_ways", _FIFTHS)
"""As printed: any pair of rates whose sum is below 1."""
MODERATE = Protocol("moderate", "both_ways", _FIFTHS, max_sum=0.6)
"""Milder draws, whose results are at the level of the printed ones."""
INJECTED = Protocol("injected", "added", (*_FIFTHS, 0.6))
"""Table 3 on ordinary data sets."""
REAL = Protocol("real", "candidates", estimator="best_bin")
"""Table 3 on real candidate sets. Their noise depends on the features, which a likelihood explains away as true labels;
the best bin sees some of it."""

PROTOCOLS: Catalogue[Protocol] = Catalogue("protocol", {p.name: p for p in (LITERAL, MODERATE, INJECTED, REAL)})
"""The protocols of the paper's first version. Those of the journal version are in ``paper.py``."""
