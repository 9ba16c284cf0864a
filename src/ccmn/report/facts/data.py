"""The data in figures: rows, features, labels, and how often each label is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccmn._validation import FloatArray


@dataclass(frozen=True)
class LabelCount:
    """How often a label is given, of how many rows for which it was observed."""

    name: str
    given: int
    observed: int

    @property
    def share(self) -> float:
        """Given over observed; 0 where nothing was observed."""
        return self.given / max(self.observed, 1)


@dataclass(frozen=True)
class DataFacts:
    """The size of the data, and the labels given."""

    name: str
    n: int
    d: int
    labels: tuple[LabelCount, ...]
    rows_without_labels: int
    """Rows that are given no label at all."""

    @property
    def q(self) -> int:
        """Number of labels."""
        return len(self.labels)

    @property
    def cardinality(self) -> float:
        """Mean number of labels given to a row."""
        return sum(label.given for label in self.labels) / max(self.n, 1)

    @property
    def observed(self) -> float:
        """Share of entries that were observed."""
        return sum(label.observed for label in self.labels) / max(self.n * self.q, 1)


def data_facts(name: str, d: int, Y: FloatArray, names: Sequence[str]) -> DataFacts:
    """Count labels (n, q), NaN where not observed.

    >>> facts = data_facts("two rows", 3, np.array([[1, 0], [0, np.nan]]), ["sea", "sky"])
    >>> facts.cardinality, facts.observed, facts.rows_without_labels, facts.labels[1]
    (0.5, 0.75, 1, LabelCount(name='sky', given=0, observed=1))
    """
    ones, seen = (Y == 1), ~np.isnan(Y)
    labels = (LabelCount(*count) for count in zip(names, ones.sum(0).tolist(), seen.sum(0).tolist()))
    return DataFacts(name, len(Y), d, tuple(labels), int((~ones.any(1)).sum()))
