"""Lists of rows to review, and statistics of the answers: flip counts and trusted rows."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn.app.issues import Suspicions
from ccmn.app.review.decisions import AnswerCount, DecisionStore, LabelAnswer, QueueItem, Stream
from ccmn.estimation.trusted import Rate, jeffreys_rate

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
        self.store = store
        self.given = given
        self.scores = scores
        self._random_state = random_state
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
            found = self.store.position_of(row, "selected")
            while found is None:
                self.store.append(QueueItem(self.store.length(), row, "selected", self._questions(row, "selected")), ())
                self._queued.add(row)
                found = self.store.position_of(row, "selected")  # None if another process has taken the position
            item = self.store.item(found)
            assert item is not None
            return item

    def _extend(self, stream: Stream) -> QueueItem | None:
        """Append an item to a list and return it, or the item that another process has appended first."""
        position = self.store.length()
        if stream == "random":
            n_drawn = self.store.progress()["drawn"]
            row = int(self._sample_order[n_drawn]) if n_drawn < len(self._sample_order) else None
        else:
            row = next((int(row) for row in self.scores.order if int(row) not in self._queued), None)
        if row is None:
            return None
        item = QueueItem(position, row, stream, self._questions(row, stream))
        given = self.given[row]
        self.store.append(item, [None if np.isnan(given[j]) else int(given[j]) for j in item.asked])
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


_interval = lru_cache(maxsize=4096)(jeffreys_rate)  # an answer changes the counts of one or two labels only


class FlipCounts(NamedTuple):
    """Flips of one label on complete random rows: ``missing`` of ``positives`` and ``added`` of ``negatives``."""

    missing: int = 0
    positives: int = 0
    added: int = 0
    negatives: int = 0

    @property
    def rho_pos(self) -> Rate:
        """False-negative rate from the counts alone."""
        return _interval(self.missing, self.positives)

    @property
    def rho_neg(self) -> Rate:
        """False-positive rate from the counts alone."""
        return _interval(self.added, self.negatives)


def count_flips(counts: Iterable[AnswerCount], n_labels: int) -> list[FlipCounts]:
    """Count the flips of each label; "unsure" answers are ignored.

    Examples
    --------
    >>> count_flips([AnswerCount(0, 0, "yes", 2), AnswerCount(0, 1, "yes", 8), AnswerCount(0, 1, "unsure", 1)], 1)
    [FlipCounts(missing=2, positives=10, added=0, negatives=0)]
    """
    table = np.zeros((n_labels, 2, 2), dtype=int)  # label, true value, given value
    for label, given, answer, n_rows in counts:
        if answer != "unsure":
            table[label, int(answer == "yes"), given] += n_rows
    return [FlipCounts(int(t[1, 0]), int(t[1].sum()), int(t[0, 1]), int(t[0].sum())) for t in table]


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
