"""The rates as they stand: flips counted on rows drawn by lot (section 8.1), label by label."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ccmn.estimation.rates import Rate
from ccmn.estimation.trusted import count_interval
from ccmn.review.store import Tally

count = lru_cache(maxsize=4096)(count_interval)
"""The interval behind k of m: of all labels an answer changes one or two."""


class Counted(NamedTuple):
    """Flips of one label on the rows that count: ``lost`` of ``positives``, ``added`` of ``negatives``."""

    lost: int = 0
    positives: int = 0
    added: int = 0
    negatives: int = 0

    @property
    def pos(self) -> Rate:
        """rho_pos by these counts alone."""
        return count(self.lost, self.positives)

    @property
    def neg(self) -> Rate:
        """rho_neg by these counts alone."""
        return count(self.added, self.negatives)


def counted(tallies: Iterable[Tally], n_labels: int) -> list[Counted]:
    """Flips of every label; an answer "unsure" counts for nothing.

    >>> counted([Tally(0, 0, "yes", 2), Tally(0, 1, "yes", 8), Tally(0, 1, "unsure", 1)], 1)
    [Counted(lost=2, positives=10, added=0, negatives=0)]
    """
    table = np.zeros((n_labels, 2, 2), dtype=int)  # label, true, given
    for label, given, answer, number in tallies:
        if answer != "unsure":
            table[label, int(answer == "yes"), given] += number
    return [Counted(int(t[1, 0]), int(t[1].sum()), int(t[0, 1]), int(t[0].sum())) for t in table]
