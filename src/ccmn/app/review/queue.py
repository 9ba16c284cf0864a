"""Order in which rows are shown, and statistics of the answers: flip counts and trusted rows."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.app.review.decisions import AnswerCount, DecisionStore, LabelAnswer, QueueItem, Stream
from ccmn.audit.label_issues import score_labels
from ccmn.estimation import NoiseRates
from ccmn.estimation.noise_rates import Rate
from ccmn.estimation.trusted import jeffreys_rate
from ccmn.noise import NoiseModel
from ccmn.votes import InferredLabels, next_votes

MAX_QUESTIONS = 24
"""Maximum number of labels per row in question. Random rows use a random subset, suspicious rows the worst labels."""

INITIAL_RANDOM_ROWS = 100
"""Number of random rows before the share of suspicious rows rises: about as many as useful noise rates require."""

INITIAL_PERIOD = 8
"""Every eighth row is suspicious until the random sample has ``INITIAL_RANDOM_ROWS`` rows."""

PERIOD = 2
"""Every second row is suspicious afterwards."""

MIN_P_WRONG = 0.5
"""A row is suspicious if the estimated error probability of one of its labels reaches this value..."""

MIN_RELATIVE_P_WRONG = 0.5
"""...or this share of the highest one: without verified rows, error probabilities may all be below 0.5."""

_BLOCK_SIZE = 2**16


class LabelIssueScores:
    """Estimated error probabilities of the given labels.

    Parameters
    ----------
    given : ndarray of float32, shape (n, q)
        Given labels; NaN if not observed.
    pred_proba : ndarray of float64, shape (n, q)
        Out-of-fold probabilities of the noisy labels.
    noise : NoiseModel or NoiseRates
        Noise rates of the given labels.
    trusted : TrustedRows or None, default=None
        Verified rows, from which the error probabilities are learned.

    Attributes
    ----------
    max_p_wrong : ndarray of float64, shape (n,)
        Highest error probability of each row; 0 if no label of the row is observed.
    order : ndarray of int64, shape (n,)
        Rows by descending ``max_p_wrong``.
    min_p_wrong : float
        Rows are suspicious from this value of ``max_p_wrong`` on.
    """

    def __init__(
        self,
        given: NDArray[np.float32],
        pred_proba: FloatArray,
        noise: NoiseModel | NoiseRates,
        trusted: TrustedRows | None = None,
    ) -> None:
        self._given, self._pred_proba = given, pred_proba
        self._score = score_labels(given, pred_proba, noise, trusted).score
        step = max(1, _BLOCK_SIZE // given.shape[1])
        blocks = [self._p_wrong(slice(i, i + step)) for i in range(0, len(given), step)]
        self.max_p_wrong: FloatArray = np.concatenate([np.nan_to_num(block).max(1) for block in blocks])
        self.order = np.argsort(-self.max_p_wrong, kind="stable")
        self.min_p_wrong = min(MIN_P_WRONG, MIN_RELATIVE_P_WRONG * float(self.max_p_wrong.max()) or MIN_P_WRONG)

    def row_scores(self, row: int) -> FloatArray:
        """Return the error probability of each label of a row; NaN if not observed."""
        scores: FloatArray = self._p_wrong(slice(row, row + 1))[0]
        return scores

    def label_scores(self, label: int) -> FloatArray:
        """Return the error probability of one label in each row; 0 if not observed."""
        step = max(1, _BLOCK_SIZE // self._given.shape[1])
        blocks = (self._p_wrong(slice(i, i + step)) for i in range(0, len(self._given), step))
        return np.concatenate([np.nan_to_num(block[:, label]) for block in blocks])

    def _p_wrong(self, rows: slice) -> FloatArray:
        return self._score(self._given[rows], self._pred_proba[rows])


class VoteScores(LabelIssueScores):
    """Error probabilities of the majority of votes; rows are ordered by the expected gain of another vote.

    Parameters
    ----------
    given : ndarray of float32, shape (n, q)
        Majority of the votes; NaN where nobody voted.
    inferred : InferredLabels
        Result of :func:`ccmn.infer_labels`.
    """

    def __init__(self, given: NDArray[np.float32], inferred: InferredLabels) -> None:
        wrong = np.where(given == 1, 1 - inferred.proba, inferred.proba)
        self._wrong: FloatArray = np.where(np.isnan(given), np.nan, wrong)
        self.max_p_wrong = np.nan_to_num(self._wrong).max(1)
        queue = next_votes(inferred, given.size)
        self.order = queue.row.drop_duplicates().to_numpy()
        self.min_p_wrong = 0.0

    def row_scores(self, row: int) -> FloatArray:
        """Return the error probability of each label of a row; NaN if nobody voted."""
        scores: FloatArray = self._wrong[row]
        return scores

    def label_scores(self, label: int) -> FloatArray:
        """Return the error probability of one label in each row; 0 if nobody voted."""
        return np.nan_to_num(self._wrong[:, label])


class ReviewQueue:
    """Queue of rows to review. Items are created on demand and stored.

    Most of the first rows are a random sample, later every second one; the others are the most suspicious rows. The
    order of the random sample is fixed in advance by ``random_state``. It is therefore a simple random sample,
    independent of all answers. A row that was shown as suspicious can be drawn again as a random row, and only then
    contributes to the noise rates: to exclude it would remove the noisiest rows from the sample.

    Parameters
    ----------
    store : DecisionStore
        Store of the queue and of the answers.
    given : ndarray of float32, shape (n, q)
        Given labels; NaN if not observed.
    scores : LabelIssueScores
        Error probabilities of the given labels. May be replaced when better noise rates are known.
    random_state : int
        Seed of the random sample.
    """

    def __init__(
        self, store: DecisionStore, given: NDArray[np.float32], scores: LabelIssueScores, random_state: int
    ) -> None:
        self.store = store
        self.given = given
        self.scores = scores
        self._random_state = random_state
        self._sample_order = np.random.default_rng(random_state).permutation(len(given))
        self._queued = store.queued_rows()
        self._lock = threading.Lock()

    def after(self, position: int) -> QueueItem | None:
        """Return the item after a position and create it if necessary; None at the end of the data."""
        with self._lock:
            item = self.store.item(position + 1)
            while item is None:
                added = self._extend()
                if added is None:
                    return None
                # A random row may have been answered completely before, as a suspicious row: there is nothing to ask.
                if not set(added.asked) <= self.store.row_answers(added.row).keys():
                    item = added
            return item

    def select(self, row: int) -> QueueItem:
        """Return the item of a row; a row that is not in the queue is appended as a selected row.

        Selected rows do not contribute to the noise rates, because they are not a random sample.
        """
        with self._lock:
            found = self.store.position_of(row)
            while found is None:
                self.store.append(QueueItem(self.store.length(), row, "selected", self._questions(row, "selected")), ())
                self._queued.add(row)
                found = self.store.position_of(row)  # None if another process has taken the position
            item = self.store.item(found)
            assert item is not None
            return item

    def _extend(self) -> QueueItem | None:
        """Append an item and return it, or the item that another process has appended first."""
        position, n_drawn = self.store.length(), self.store.progress()["drawn"]
        period = INITIAL_PERIOD if n_drawn < INITIAL_RANDOM_ROWS else PERIOD
        row = self._most_suspicious() if position % period == period - 1 else None
        stream: Stream = "random" if row is None else "suspicious"
        if row is None:
            if n_drawn >= len(self._sample_order):
                return None
            row = int(self._sample_order[n_drawn])
        item = QueueItem(position, row, stream, self._questions(row, stream))
        given = self.given[row]
        self.store.append(item, [None if np.isnan(given[j]) else int(given[j]) for j in item.asked])
        self._queued.add(row)
        return self.store.item(position)

    def _most_suspicious(self) -> int | None:
        """Return the most suspicious row that is not in the queue."""
        for row in self.scores.order:
            if self.scores.max_p_wrong[row] < self.scores.min_p_wrong:
                return None
            if int(row) not in self._queued:
                return int(row)
        return None

    def _questions(self, row: int, stream: Stream) -> tuple[int, ...]:
        """Return the labels of a row to ask about, in display order."""
        q = self.given.shape[1]
        if stream != "random":
            worst = np.argsort(-np.nan_to_num(self.scores.row_scores(row)), kind="stable")
            return tuple(worst[:MAX_QUESTIONS].tolist())
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
