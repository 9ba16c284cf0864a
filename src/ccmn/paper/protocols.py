"""Protocols of the experiments: row splits, label noise and training hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._random import RandomState, as_generator
from ccmn._registry import Registry
from ccmn._validation import check_fractions
from ccmn.data.catalog import DATASETS
from ccmn.data.dataset import MultiLabelData
from ccmn.noise import ClassConditionalNoise, PartialNoise

LEARNING_RATES = (5e-2, 5e-3, 5e-4)
"""Learning rates that every method is trained with; the best one is selected on the validation set."""
DEFAULT_BATCH_SIZE = 100
"""Batch size of datasets that are not in the appendix of the paper."""


@dataclass(frozen=True)
class Protocol:
    """Experimental setup: everything that determines a value besides the data, the method and the repeat.

    ``noise_generator`` says how the noisy labels are generated: "both_ways" flips them with rates sampled from
    ``choices`` that have a sum of at most ``max_sum`` for every label, "added" adds labels with one rate, "candidates"
    uses the candidate sets of the data. ``fractions`` are the shares of the training, validation and test rows. With
    ``refit``, the selected hyperparameters are trained again on training and validation rows before the test. The
    rates of the methods named "...-estimated" are estimated by ``estimate_noise`` ("posterior") or by "best_bin".
    """

    name: str
    noise_generator: str
    choices: tuple[float, ...] = ()
    max_sum: float | None = None
    fractions: tuple[float, float, float] = (0.5, 0.2, 0.3)
    learning_rates: tuple[float, ...] = LEARNING_RATES
    batch_sizes: Mapping[str, int] = field(default_factory=dict)
    """Batch size by dataset; the default is the size in the appendix of the paper."""
    estimator: str = "posterior"
    epochs: int = 200
    weight_decay: float = 1e-4
    refit: bool = False

    def batch_size(self, dataset: str) -> int:
        """Return the number of rows in a batch of this dataset."""
        if dataset in self.batch_sizes:
            return self.batch_sizes[dataset]
        return DATASETS[dataset].paper.batch_size if dataset in DATASETS else DEFAULT_BATCH_SIZE

    def to_dict(self, dataset: str) -> dict[str, Any]:
        """Return the settings for a dataset as they are stored with each result.

        The keys of stored results are hashes of this dictionary. Its names and values must not change.
        """
        stored = asdict(self)
        stored["draw"], stored["batch_size"] = stored.pop("noise_generator"), self.batch_size(dataset)
        del stored["batch_sizes"]
        if not self.refit:  # results that were stored before the option existed keep their keys
            del stored["refit"]
        return stored


@dataclass(frozen=True)
class Repeat:
    """One random split with the noisy labels of all rows, of which those of the test rows are never used.

    ``noise`` has the rates of the flips; for real candidate sets, the rates observed on the training rows.
    """

    number: int
    train: NDArray[np.intp]
    validation: NDArray[np.intp]
    test: NDArray[np.intp]
    noise: ClassConditionalNoise
    noisy: Any

    @property
    def known(self) -> NDArray[np.intp]:
        """Training and validation rows, on which a refit is trained."""
        return np.concatenate((self.train, self.validation))


def make_repeat(
    data: MultiLabelData, protocol: str | Protocol = "moderate", repeat: int = 0, random_state: int = 0
) -> Repeat:
    """Return one repeat of a protocol: a random split, noise rates and noisy labels.

    With the default ``random_state``, it is the repeat with this number in ``results/cells.csv``.

    Parameters
    ----------
    data : MultiLabelData
        Features and true labels, and candidate labels for the protocol "real".
    protocol : {"moderate", "literal", "injected", "real"}, default="moderate"
        Source of the noisy labels. "literal" samples both rates of every label from .1 to .5, as the paper describes;
        "moderate" (not in the paper) only pairs with a sum of at most .6. "injected" adds false labels with one rate
        from .1 to .6. "real" uses the candidate sets of the data.
    repeat : int, default=0
        Number of the repeat. A repeat does not depend on how many repeats there are.
    random_state : int, default=0
        Seed, combined with the number of the repeat.

    Returns
    -------
    Repeat
        Row numbers of the three sets, noise model and noisy labels.

    Raises
    ------
    ValueError
        If the protocol is unknown, or needs candidate labels and the data have none.

    Examples
    --------
    >>> from ccmn.data import load_digit_scenes
    >>> data = load_digit_scenes(1000)
    >>> r = make_repeat(data)
    >>> len(r.train), len(r.validation), len(r.test), r.noise.n_labels, r.noisy.shape
    (500, 200, 300, 10, (1000, 10))
    """
    rng = np.random.default_rng([random_state, repeat])
    protocol = PROTOCOLS[protocol] if isinstance(protocol, str) else protocol
    training, validation, test = split(data.n, protocol.fractions, random_state=rng)
    noise, noisy = _noisy_labels(data, protocol, training, rng)
    return Repeat(repeat, training, validation, test, noise, noisy)


def split(n: int, fractions: Sequence[float], random_state: RandomState = None) -> tuple[NDArray[np.intp], ...]:
    """Split the row indices 0 to n - 1 at random into disjoint parts that cover all rows, in random order.

    The sizes depend on ``n`` and the fractions only: boundaries are the rounded cumulative sums.

    >>> train, validation, test = split(10, (0.5, 0.2, 0.3), random_state=0)
    >>> len(train), len(validation), len(test)
    (5, 2, 3)
    """
    shares = check_fractions(fractions)
    bounds = np.rint(np.cumsum(shares)[:-1] * n).astype(np.intp)
    if not np.diff(bounds, prepend=0, append=n).all():
        raise ValueError(f"n={n} rows are too few for the fractions {tuple(shares.tolist())}: a part would be empty")
    return tuple(np.split(as_generator(random_state).permutation(n), bounds))


def _noisy_labels(
    data: MultiLabelData, protocol: Protocol, training: NDArray[np.intp], rng: np.random.Generator
) -> tuple[ClassConditionalNoise, Any]:
    """Return the noise model and the noisy labels of all rows."""
    if protocol.noise_generator == "candidates":
        if data.candidates is None:
            raise ValueError(
                f"protocol {protocol.name!r} requires candidate sets; {data.name or 'the dataset'} has no candidate "
                "sets"
            )
        return PartialNoise.from_pairs(data.Y[training], data.candidates[training]), data.candidates
    if protocol.noise_generator == "added":
        noise: ClassConditionalNoise = PartialNoise.sample(data.q, protocol.choices, random_state=rng)
    else:
        noise = ClassConditionalNoise.sample(data.q, protocol.choices, protocol.max_sum, random_state=rng)
    return noise, noise.corrupt(data.Y, random_state=rng)


_RATES = (0.1, 0.2, 0.3, 0.4, 0.5)

LITERAL = Protocol("literal", "both_ways", _RATES)
"""Noise as printed: any pair of rates with a sum below 1."""
MODERATE = Protocol("moderate", "both_ways", _RATES, max_sum=0.6)
"""Weaker noise, for which the results are at the level of the printed ones."""
INJECTED = Protocol("injected", "added", (*_RATES, 0.6))
"""Table 3 on ordinary datasets: false labels are added."""
REAL = Protocol("real", "candidates", estimator="best_bin")
"""Table 3 on real candidate sets. Their noise depends on the features, and a likelihood explains it as true labels;
the estimator "best_bin" detects a part of it."""

PROTOCOLS: Registry[Protocol] = Registry("protocol", {p.name: p for p in (LITERAL, MODERATE, INJECTED, REAL)})
"""Protocols of the tables of the paper by name. Those of the journal version have other splits."""
