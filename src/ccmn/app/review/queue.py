"""Lists of rows to review, and the verified rows."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn.app.issues import Suspicions
from ccmn.app.review.decisions import DecisionStore, LabelAnswer, QueueItem, Stream

MAX_QUESTIONS = 24
"""Maximum number of labels per row in question. Random rows use a random subset, other rows the most suspicious."""


class ReviewQueue:
    """Rows to review, in one list per reason. Items are created on demand and stored.

    The list of suspicious rows has the most suspicious first. The order of the random sample is fixed in advance by
    ``random_state``: it is a simple random sample, independent of all answers. A row that was shown as suspicious can
    be drawn again as a random row, and only then contributes to the noise rates: to exclude it would remove the
    noisiest rows from the sample.

    Parameters
    ----------
    store : DecisionStore
        Store of the lists and of the answers.
    given : ndarray of float32, shape (n, q)
        Given labels; NaN if not observed.
    scores : Suspicions
        Order of the rows. May be replaced when better noise rates are known.
    random_state : int
        Seed of the random sample.
    """

    def __init__(self, store: DecisionStore, given: NDArray[np.float32], scores: Suspicions, random_state: int) -> None:
        self.store, self.given, self.scores, self._random_state = store, given, scores, random_state
        self._sample_order = np.random.default_rng(random_state).permutation(len(given))
        self._queued = store.queued_rows()
        self._lock = threading.Lock()

    def after(self, position: int, stream: Stream) -> QueueItem | None:
        """Return the item after a position in a list and create it if necessary; None at the end of the list."""
        with self._lock:
            item = self.store.neighbor(position, stream, 1)
            while item is None:
                added = self._extend(stream)
                if added is None:
                    return None
                # A random row may have been answered completely before, as a suspicious row: there is nothing to ask.
                answered = self.store.row_answers(added.row, bulk=False)
                if added.stream == stream and not set(added.asked) <= answered.keys():
                    item = added
            return item

    def open(self, stream: Stream) -> QueueItem | None:
        """Return the row of a list where the review continues; None at the end of the list."""
        item = self.store.neighbor(self.store.length(), stream, -1) or self.after(-1, stream)
        while item is not None and set(item.asked) <= self.store.row_answers(item.row, bulk=False).keys():
            item = self.after(item.position, stream)
        return item

    def select(self, row: int) -> QueueItem:
        """Return the item of a row that the reviewer selects; it is appended if it is not in a list.

        Selected rows do not contribute to the noise rates, because they are not a random sample.
        """
        with self._lock:
            item = self.store.item(self.store.position_of(row, "selected"))
            while item is None or (item.row, item.stream) != (row, "selected"):
                item = self._append(row, "selected")
            return item

    def _extend(self, stream: Stream) -> QueueItem | None:
        """Append the next row of a list; return None at its end."""
        if stream == "random":
            rows = self._sample_order[self.store.progress()["drawn"] :]
            return self._append(int(rows[0]), stream) if len(rows) else None
        row = next((row for row in self.scores.order.tolist() if row not in self._queued), None)
        return None if row is None else self._append(row, stream)

    def _append(self, row: int, stream: Stream) -> QueueItem | None:
        """Append an item and return it, or the item that another process has appended first."""
        position = self.store.length()
        self.store.append(QueueItem(position, row, stream, self._questions(row, stream)))
        self._queued.add(row)
        return self.store.item(position)

    def _questions(self, row: int, stream: Stream) -> tuple[int, ...]:
        """Return the labels of a row to ask about."""
        q = self.given.shape[1]
        if stream != "random":
            order = np.lexsort((-np.nan_to_num(self.scores.score[row]), self.given[row] != 1))  # given labels first
            return tuple(order[:MAX_QUESTIONS].tolist())
        if q <= MAX_QUESTIONS:
            return tuple(range(q))
        # The choice must not depend on the given labels: that would bias the noise rates.
        chosen = np.random.default_rng([self._random_state, row]).choice(q, MAX_QUESTIONS, replace=False)
        return tuple(np.sort(chosen).tolist())


class TrustedRows(NamedTuple):
    """Rows with verified labels, as accepted by ``trusted=``; NaN if a label is not verified."""

    rows: NDArray[np.int64]
    Y: NDArray[np.float32]


def trusted_rows(answers: Iterable[LabelAnswer], n_labels: int) -> TrustedRows:
    """Return the rows with at least one "yes" or "no" answer and their verified labels."""
    known = [answer for answer in answers if answer.answer != "unsure"]
    rows, index = np.unique(np.array([answer.row for answer in known], dtype=np.int64), return_inverse=True)
    Y = np.full((len(rows), n_labels), np.nan, dtype=np.float32)
    for i, answer in zip(index.ravel(), known):
        Y[i, answer.label] = float(answer.answer == "yes")
    return TrustedRows(rows, Y)


def corrected_labels(given: NDArray[np.float32], trusted: TrustedRows) -> NDArray[np.float32]:
    """Return the given labels with the verified ones replaced."""
    Y = given.copy()
    Y[trusted.rows] = np.where(np.isnan(trusted.Y), Y[trusted.rows], trusted.Y)
    return Y
