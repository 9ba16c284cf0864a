"""Which row is put before somebody next: some by lot, some because they look wrong."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from ccmn.review.doubt import Doubt
from ccmn.review.store import DecisionStore, Item, Stream

MOST_ASKED = 24
"""Labels asked about at once; of more, random rows ask about some drawn by lot, suspicious rows about the worst."""

FIRST = 100
EVERY_AT_FIRST, EVERY = 8, 2
"""Every eighth row is a suspicious one until a hundred were drawn by lot, every other one after that. Everything rests
on the rates, also which rows are suspicious; a hundred rows are about what it takes to count them."""

SUSPICIOUS = 0.5
"""A row is suspicious when one of its labels is wrong at least this probably."""


class ReviewQueue:
    """The places of the queue, made one after the other as they are reached, and then kept.

    Most rows are drawn by lot at first, every other one later; the rest are the most suspicious ones. The order of the
    lot is fixed beforehand by the seed: the rows drawn are a simple random sample, whatever else was looked at, and in
    whatever order. A row that was suspicious first is drawn like any other, and counts for the rates only then; to
    leave it out of the lot would leave the noisiest rows out of the sample.

    Parameters
    ----------
    store : DecisionStore
    given : (n, q)
        Labels, NaN where not observed.
    doubt : Doubt
        How probably labels are wrong; may be replaced when better rates are known.
    seed : int
    """

    def __init__(self, store: DecisionStore, given: NDArray[np.float32], doubt: Doubt, seed: int) -> None:
        self.store = store
        self.given = given
        self.doubt = doubt
        self._seed = seed
        self._lot = np.random.default_rng(seed).permutation(len(given))
        self._queued = store.queued_rows()
        self._lock = threading.Lock()

    def item(self, position: int) -> Item | None:
        """A place that was reached before."""
        return self.store.item(position)

    def after(self, position: int) -> Item | None:
        """The place after another one, made if it is the first beyond the end; None: there is nothing left."""
        with self._lock:
            found = self.store.item(position + 1)
            while found is None:
                added = self._extend()
                if added is None:
                    return None
                # Drawn by lot after everything was said about it as a suspicious row: nothing is left to ask.
                if not set(added.asked) <= self.store.answers_of(added.row).keys():
                    found = added
            return found

    def _extend(self) -> Item | None:
        """One more place at the end; by another process, where that was quicker."""
        item = self._next()
        if item is None:
            return None
        given = self.given[item.row]
        self.store.append(item, [None if np.isnan(given[j]) else int(given[j]) for j in item.asked])
        self._queued.add(item.row)
        return self.store.item(item.position)

    def _next(self) -> Item | None:
        position, drawn = self.store.length(), self.store.drawn()
        every = EVERY_AT_FIRST if drawn < FIRST else EVERY
        suspicious = self._most_suspicious() if position % every == every - 1 else None
        if suspicious is not None:
            return Item(position, suspicious, "suspicious", self._asked(suspicious, "suspicious"))
        if drawn >= len(self._lot):
            return None
        row = int(self._lot[drawn])
        return Item(position, row, "random", self._asked(row, "random"))

    def _most_suspicious(self) -> int | None:
        """The first row in order of doubt that is not in the queue."""
        for row in self.doubt.order:
            if self.doubt.highest[row] < SUSPICIOUS:
                return None
            if int(row) not in self._queued:
                return int(row)
        return None

    def _asked(self, row: int, stream: Stream) -> tuple[int, ...]:
        """The labels of a row that are asked about, in the order in which they are shown."""
        q = self.given.shape[1]
        if stream == "suspicious":
            worst = np.argsort(-np.nan_to_num(self.doubt.of_row(row)), kind="stable")
            return tuple(worst[:MOST_ASKED].tolist())
        if q <= MOST_ASKED:
            return tuple(range(q))
        # By lot and by nothing else: to prefer labels that were given would bias the rates.
        chosen = np.random.default_rng([self._seed, row]).choice(q, MOST_ASKED, replace=False)
        return tuple(np.sort(chosen).tolist())
