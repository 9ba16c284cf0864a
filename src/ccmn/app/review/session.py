"""A review in progress: open it, look at a row, answer, undo, and estimate the noise rates."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._files import PathLike
from ccmn._validation import FloatArray, check_choice
from ccmn.app.demo_task import make_demo
from ccmn.app.review.decisions import Answer, DecisionStore, Note, QueueItem, UndoneAction
from ccmn.app.review.queue import FlipCounts, LabelIssueScores, ReviewQueue, VoteScores, count_flips, trusted_rows
from ccmn.app.review.review_data import FeaturePictures, ReviewDataset
from ccmn.audit import audit_labels
from ccmn.data.dataset import MultiLabelData
from ccmn.data.synthetic import DIGIT_SCENE_SHAPE
from ccmn.estimation import NOISE_TYPES, NoiseRates, estimate_noise
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.votes import InferredLabels, infer_labels


def open_session(
    dataset: ReviewDataset,
    folder: PathLike,
    noise: str | NoiseModel | NoiseRates = "both",
    random_state: int = 0,
    *,
    pred_proba: FloatArray | None = None,
) -> ReviewSession:
    """Audit the given labels and start or resume a review.

    Parameters
    ----------
    dataset : ReviewDataset
        Data to review.
    folder : path
        Folder of the answers, exports and models. It is created if it does not exist. The same data, folder and
        ``random_state`` resume a review.
    noise : {"both", "partial", "missing"}, NoiseModel or NoiseRates, default="both"
        Initial noise rates. With "both", both rates of each label are estimated from the data; "partial" and
        "missing" assume that labels were only added or only removed. The rates of a noise model are fixed.
    random_state : int, default=0
        Seed of the random sample, the estimation and the training.
    pred_proba : array of shape (n, q), optional
        Out-of-fold probabilities of the given labels, if they are known.

    Returns
    -------
    ReviewSession
        The review. Close it after use.

    Raises
    ------
    OSError
        If the folder cannot be used.
    ValueError
        If the folder contains the answers for other data.

    Examples
    --------
    >>> import tempfile
    >>> from ccmn.data import MultiLabelData, make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> from ccmn.app.review import ReviewDataset, open_session
    >>> noise = PartialNoise([0.2, 0.5])
    >>> task = make_noisy_multilabel(400, 5, 2, noise=noise, random_state=0)
    >>> folder = tempfile.TemporaryDirectory()
    >>> session = open_session(ReviewDataset(MultiLabelData(task.X, task.Y_noisy)), folder.name, noise)
    >>> item = session.latest()
    >>> session.answer(item, label=0, answer="yes")
    >>> session.store.progress()["answers"]
    1
    >>> session.close(); folder.cleanup()
    """
    _open_store(dataset, folder, random_state).close()  # reports errors before the audit, which may take minutes
    votes = dataset.data.votes
    if isinstance(noise, str) and votes is not None:
        noise_type = check_choice(noise, "noise", NOISE_TYPES)
        noise = estimate_noise(Y_noisy=dataset.named_labels, noise_type=noise_type, votes=votes)
    if isinstance(noise, str):
        check_choice(noise, "noise", NOISE_TYPES)
        noise = _estimate_rates(dataset, noise, random_state)
    audit = audit_labels(dataset.data.X, dataset.named_labels, noise, random_state=random_state, pred_proba=pred_proba)
    rates = audit.noise
    if isinstance(rates, ClassConditionalNoise):
        rates = NoiseRates.known(rates, dataset.named_labels)
    assert isinstance(rates, NoiseRates)  # the audit accepts no other noise
    inferred = None if votes is None else infer_labels(votes, dataset.data.X, random_state)
    return ReviewSession(dataset, audit.pred_proba, rates, folder, random_state, inferred)


def _estimate_rates(
    dataset: ReviewDataset, noise_type: str | Sequence[str], random_state: int, trusted: Any = None
) -> NoiseRates:
    """Estimate the rates; issues are shown as flags on the page, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X, labels = dataset.data.X, dataset.named_labels
        return estimate_noise(X, labels, noise_type=noise_type, trusted=trusted, random_state=random_state)


def demo_session(folder: PathLike, n: int = 8000, random_state: int = 0) -> ReviewSession:
    """Start or resume a review of the pictures of ``ccmn demo`` with their noisy labels.

    Parameters
    ----------
    folder : path
        Folder of the answers, exports and models.
    n : int, default=8000
        Number of pictures. One half is reviewed; the other half, in different handwriting, is the test set.
    random_state : int, default=0
        Seed of the data and of the review.

    Returns
    -------
    ReviewSession
        The review. Close it after use.
    """
    task = make_demo(n, random_state)
    data = MultiLabelData(task.X, task.Y_noisy, label_names=task.noise.label_names, name="digit scenes")
    dataset = ReviewDataset(data, picture=FeaturePictures(task.X, DIGIT_SCENE_SHAPE), test=(task.X_test, task.Y_test))
    return open_session(dataset, folder, random_state=random_state)


@dataclass(frozen=True)
class LabelQuestion:
    """One label of the displayed row."""

    label: int
    name: str
    given: int | None
    """0, 1 or None (not observed)."""
    p_wrong: float | None
    """Estimated error probability of the given label; None if not observed."""
    answer: Answer | None


@dataclass(frozen=True)
class RowView:
    """Contents of the page of one row."""

    item: QueueItem
    questions: tuple[LabelQuestion, ...]
    """Questions in display order, highest error probability first."""
    can_undo: bool
    notes: list[Note]

    @property
    def open(self) -> tuple[LabelQuestion, ...]:
        """Questions without an answer."""
        return tuple(question for question in self.questions if question.answer is None)


class ReviewSession:
    """Review in progress. :func:`open_session` creates it from data.

    Parameters
    ----------
    dataset : ReviewDataset
        Data to review.
    pred_proba : ndarray of float64, shape (n, q)
        Out-of-fold probabilities of the noisy labels.
    initial_rates : NoiseRates
        Noise rates before the first answer.
    folder : path
        Folder of the answers, exports and models. It is created if it does not exist.
    random_state : int, default=0
        Seed of the random sample, the estimation and the training.
    inferred : InferredLabels, optional
        Labels inferred from votes. Rows are then ordered by the expected gain of another vote.
    """

    def __init__(
        self,
        dataset: ReviewDataset,
        pred_proba: FloatArray,
        initial_rates: NoiseRates,
        folder: PathLike,
        random_state: int = 0,
        inferred: InferredLabels | None = None,
    ) -> None:
        self.dataset, self.initial_rates = dataset, initial_rates
        self.folder, self.random_state = Path(folder), random_state
        self.store = _open_store(dataset, folder, random_state)
        self._pred_proba = pred_proba
        self._inferred = inferred
        self._cached_rates: tuple[bytes, NoiseRates] | None = None
        self._training_lock, self._estimation_lock = threading.Lock(), threading.Lock()
        scores = self._scores(self.rates_in_use(), learn=self.trained is not None)
        self.queue = ReviewQueue(self.store, dataset.given, scores, random_state)

    def latest(self) -> QueueItem:
        """Return the last item of the queue, where the review continues."""
        item = self.store.item(self.store.length() - 1) or self.queue.after(-1)
        assert item is not None  # data have at least one row
        return item

    def view(self, item: QueueItem, reviewer: str = "") -> RowView:
        """Return the contents of the page of an item, with the answers of a reviewer."""
        given, p_wrong = self.dataset.given[item.row], self.queue.scores.row_scores(item.row)
        answers = self.store.row_answers(item.row, reviewer)
        asked = sorted(item.asked, key=lambda label: -np.nan_to_num(p_wrong[label], nan=-1.0))
        questions = tuple(
            LabelQuestion(
                label,
                self.dataset.label_names[label],
                None if np.isnan(given[label]) else int(given[label]),
                None if np.isnan(p_wrong[label]) else float(p_wrong[label]),
                answers.get(label),
            )
            for label in asked
        )
        return RowView(item, questions, self.store.can_undo(reviewer), self.store.notes(item.row))

    def answer(self, item: QueueItem, label: int, answer: Answer, reviewer: str = "") -> None:
        """Store the answer of a reviewer for one label of an item."""
        if label not in item.asked:
            raise ValueError(f"label {label} is not in question at position {item.position}")
        self.store.record(item, {label: answer}, reviewer=reviewer)

    def accept_rest(self, item: QueueItem, reviewer: str = "") -> None:
        """Confirm the given labels that have no answer; labels that were not observed become "unsure"."""
        given = self.dataset.given[item.row]
        answers: dict[int, Answer] = {
            j: "unsure" if np.isnan(given[j]) else "yes" if given[j] == 1 else "no" for j in item.asked
        }
        self.store.record(item, answers, reviewer=reviewer, only_open=True)

    def undo(self, reviewer: str = "") -> UndoneAction | None:
        """Undo the latest action of a reviewer; return None if there is no action."""
        return self.store.undo(reviewer)

    def find_rows(self, label: int | None = None, given: int | None = None, text: str = "") -> NDArray[np.int64]:
        """Return the rows with a given value of a label whose text contains ``text``, most suspicious first.

        With ``label``, the rows are ordered by the error probability of this label.

        Parameters
        ----------
        label : int, optional
            Label to filter by.
        given : {0, 1}, optional
            Given value of the label; any value by default. Without ``label``, all rows match.
        text : str, default=""
            Part of the text of the row, in any case. Rows without text do not match.

        Returns
        -------
        ndarray of int64
            Rows.
        """
        scores = self.queue.scores
        matches = np.ones(self.dataset.data.n, dtype=bool)
        if label is not None and given is not None:
            matches &= self.dataset.given[:, label] == given
        if text:
            texts, part = self.dataset.texts or [""] * len(matches), text.casefold()
            matches &= np.array([part in content.casefold() for content in texts], dtype=bool)
        p_wrong = scores.max_p_wrong if label is None else scores.label_scores(label)
        order = np.argsort(-p_wrong, kind="stable")
        rows: NDArray[np.int64] = order[matches[order]]
        return rows

    def flip_counts(self) -> list[FlipCounts]:
        """Return the flips of each label on the complete rows of the random sample."""
        return count_flips(self.store.sampled_counts(), self.dataset.data.q)

    def rates(self) -> NoiseRates:
        """Estimate the noise rates from the data and the complete rows of the random sample.

        Returns
        -------
        NoiseRates
            The estimate. Without a complete row, and if the rates are known, these are the initial rates.
        """
        trusted = trusted_rows(self.store.sampled_answers(), self.dataset.data.q)
        if not len(trusted.rows) or "known" in self.initial_rates.kind:
            return self.initial_rates
        key = trusted.rows.tobytes() + trusted.Y.tobytes()
        with self._estimation_lock:  # an export and a training may run at the same time
            if self._cached_rates is None or self._cached_rates[0] != key:
                noise_type = self.initial_rates.noise_type
                self._cached_rates = key, _estimate_rates(self.dataset, noise_type, self.random_state, trusted)
            return self._cached_rates[1]

    def rates_in_use(self) -> NoiseRates:
        """Return the rates of the latest training, or the initial rates if no model has been trained."""
        trained = self.trained
        return self.initial_rates if trained is None else NoiseRates.from_dict(trained["rates"])

    @property
    def trained(self) -> dict[str, Any] | None:
        """Description of the latest model that was trained in this review."""
        description: dict[str, Any] | None = self.store.metadata("trained")
        return description

    def set_trained(self, description: dict[str, Any], rates: NoiseRates) -> None:
        """Store the description of a trained model and use its rates to rank suspicious rows."""
        scores = self._scores(rates, learn=True)
        with self._training_lock:
            self.store.set_metadata("trained", {**description, "rates": rates.to_dict()})
            self.queue.scores = scores

    def _scores(self, rates: NoiseRates, learn: bool) -> LabelIssueScores:
        """Return the scores of suspicious rows; with ``learn``, from all answers."""
        if self._inferred is not None:
            return VoteScores(self.dataset.given, self._inferred)
        trusted = trusted_rows(self.store.answers(), self.dataset.data.q) if learn else None
        known = trusted if trusted is not None and len(trusted.rows) else None
        return LabelIssueScores(self.dataset.given, self._pred_proba, rates, known)

    def close(self) -> None:
        """Close the store of answers."""
        self.store.close()


def _open_store(dataset: ReviewDataset, folder: PathLike, random_state: int) -> DecisionStore:
    """Open the answers in the folder of a review; create the folder if it does not exist."""
    Path(folder).mkdir(exist_ok=True)
    return DecisionStore(Path(folder) / "decisions.db", {**dataset.metadata, "seed": random_state})
