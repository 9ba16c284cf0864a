"""A review: the queue, the decisions, and what they come to; what every page and every button calls."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccmn._validation import FloatArray
from ccmn.data.files import PathLike
from ccmn.estimation import GrowingEstimate, NoiseRates
from ccmn.review.doubt import Doubt
from ccmn.review.queue import ReviewQueue
from ccmn.review.rates import Counted, counted
from ccmn.review.store import Answer, DecisionStore, Item, Undone
from ccmn.review.subject import Subject
from ccmn.review.trusted import trusted_rows


@dataclass(frozen=True)
class Question:
    """One label of the row that is shown."""

    label: int
    name: str
    given: int | None
    """0 or 1; None: not observed."""
    p_wrong: float | None
    answer: Answer | None


@dataclass(frozen=True)
class View:
    """Everything that a page shows about a row and the state of the review."""

    item: Item
    questions: tuple[Question, ...]
    progress: dict[str, int]
    counts: tuple[Counted, ...]
    can_undo: bool

    @property
    def open(self) -> tuple[Question, ...]:
        """The labels that have no answer yet."""
        return tuple(question for question in self.questions if question.answer is None)


class Session:
    """A review under way.

    Parameters
    ----------
    subject : Subject
    pred_proba : float64 (n, q)
        Held-out probabilities of the noisy labels.
    before : NoiseRates
        The rates as they are thought to be before anybody looks.
    folder : path
        Where decisions, exports and models are kept; made if it is not there.
    seed : int
        Of the lot and of training.
    growing : GrowingEstimate, optional
        What ``before`` was estimated by, if it was: it need not be fitted again.
    """

    def __init__(
        self,
        subject: Subject,
        pred_proba: FloatArray,
        before: NoiseRates,
        folder: PathLike,
        seed: int = 0,
        growing: GrowingEstimate | None = None,
    ) -> None:
        self.subject, self.before, self.folder, self.seed = subject, before, Path(folder), seed
        self.store = open_store(subject, folder, seed)
        self._pred_proba = pred_proba
        self._growing = growing
        self._estimated: tuple[bytes, NoiseRates] | None = None
        self._lock, self._estimating = threading.Lock(), threading.Lock()
        trained = self.store.fact("trained")
        used = before if trained is None else NoiseRates.from_dict(trained["rates"])
        self.queue = ReviewQueue(self.store, subject.given, Doubt(subject.given, pred_proba, used), seed)

    # -- looking

    def latest(self) -> Item:
        """Where to go on: the last place that was reached."""
        item = self.store.item(self.store.length() - 1) or self.queue.after(-1)
        assert item is not None  # there is at least one row
        return item

    def view(self, item: Item) -> View:
        """What there is to show about a place of the queue."""
        given, doubt = self.subject.given[item.row], self.queue.doubt.of_row(item.row)
        answers = self.store.answers_of(item.row)
        questions = tuple(
            Question(
                label,
                self.subject.label_names[label],
                None if np.isnan(given[label]) else int(given[label]),
                None if np.isnan(doubt[label]) else float(doubt[label]),
                answers.get(label),
            )
            for label in item.asked
        )
        return View(item, questions, self.store.progress(), tuple(self.counts()), self.store.can_undo())

    def counts(self) -> list[Counted]:
        """Flips counted on the rows drawn by lot."""
        return counted(self.store.tallies(), self.subject.data.q)

    def rates(self) -> NoiseRates:
        """The rates by all that is known now: what was thought before, and the rows drawn by lot; known ones stay."""
        trusted = trusted_rows(self.store.sampled_entries(), self.subject.data.q)
        if not len(trusted.rows) or "known" in self.before.kind:
            return self.before
        key = trusted.rows.tobytes() + trusted.Y.tobytes()
        with self._estimating:  # an export and a training may ask at once
            if self._growing is None:
                subject = self.subject
                self._growing = GrowingEstimate(subject.data.X, subject.named_labels, self.before.sides, self.seed)
            if self._estimated is None or self._estimated[0] != key:
                self._estimated = key, self._growing.rates(trusted)
            return self._estimated[1]

    @property
    def trained(self) -> dict[str, Any] | None:
        """What is known of the latest model that was trained here."""
        found: dict[str, Any] | None = self.store.fact("trained")
        return found

    # -- doing

    def answer(self, item: Item, label: int, answer: Answer) -> None:
        """Keep one answer."""
        if label not in item.asked:
            raise ValueError(f"label {label} is not asked about here")
        self.store.answer(item, {label: answer})

    def accept_rest(self, item: Item) -> None:
        """The labels without an answer are right as they were given; those that were not observed: unsure."""
        given = self.subject.given[item.row]
        words: dict[int, Answer] = {j: _word(float(given[j])) for j in item.asked}
        self.store.answer(item, words, open_only=True)

    def undo(self) -> Undone | None:
        """Take back the latest action."""
        return self.store.undo()

    def keep_trained(self, trained: dict[str, Any], rates: NoiseRates) -> None:
        """A model was trained with these rates: the queue goes by them from now on."""
        doubt = Doubt(self.subject.given, self._pred_proba, rates)
        with self._lock:
            self.store.keep_fact("trained", {**trained, "rates": rates.to_dict()})
            self.queue.doubt = doubt

    def close(self) -> None:
        """Let go of the files."""
        self.store.close()


def open_store(subject: Subject, folder: PathLike, seed: int) -> DecisionStore:
    """The decisions in the folder of a review, which is made if it is not there; those about other data are refused."""
    Path(folder).mkdir(exist_ok=True)
    return DecisionStore(Path(folder) / "decisions.db", {**subject.facts, "seed": seed})


def _word(given: float) -> Answer:
    return "unsure" if np.isnan(given) else "yes" if given == 1 else "no"
