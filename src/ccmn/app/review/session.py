"""A review in progress: open it, look at a row, answer, undo, and estimate the noise rates."""

from __future__ import annotations

import re
import threading
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._files import PathLike
from ccmn._validation import FloatArray
from ccmn.app.demo_task import make_demo
from ccmn.app.evidence import feature_evidence
from ccmn.app.issues import (
    N_ROWS_FOR_PROBABILITIES,
    Suspicions,
    evidence_of,
    find_suspicions,
    predict_out_of_fold,
    suspicions_of_votes,
)
from ccmn.app.review.decisions import Answer, DecisionStore, QueueItem
from ccmn.app.review.queue import ReviewQueue, TrustedRows, trusted_rows
from ccmn.app.review.review_data import ReviewDataset, pixel_pictures
from ccmn.audit.label_issues import DEFAULT_MIN_P_WRONG
from ccmn.data.dataset import MultiLabelData
from ccmn.data.synthetic import DIGIT_SCENE_SHAPE
from ccmn.estimation import NoiseRates
from ccmn.estimation.estimate import rates_of
from ccmn.estimation.noise_rates import NOISE_TYPES
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.votes import InferredLabels, infer_labels

MAX_REASONS = 3
"""Number of suspicious labels whose reasons are shown."""
MAX_FEATURES = 5
"""Number of words or features in a reason."""


def open_session(
    dataset: ReviewDataset,
    folder: PathLike,
    noise: str | NoiseModel | NoiseRates | None = None,
    random_state: int = 0,
) -> ReviewSession:
    """Predict the given labels out of fold and start or resume a review.

    Parameters
    ----------
    dataset : ReviewDataset
        Data to review.
    folder : path
        Folder of the answers, exports and models. It is created if it does not exist. The same data, folder and
        ``random_state`` resume a review.
    noise : {"both", "partial", "missing"}, NoiseModel, NoiseRates or None, default=None
        Declared errors of the labels: their type, or known rates. Without a declaration, labels are ranked, and error
        probabilities are learned from verified random rows.
    random_state : int, default=0
        Seed of the random sample, the estimation and the training.

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
    >>> item = session.start()
    >>> session.store.record(item, {0: "yes"})
    >>> session.store.progress()["answers"]
    1
    >>> session.close(); folder.cleanup()
    """
    _open_store(dataset, folder, random_state).close()  # reports errors before the predictions, which may take minutes
    data = dataset.data
    inferred = None if data.votes is None else infer_labels(data.votes, data.X, random_state)
    pred_proba = predict_out_of_fold(data.X, dataset.given, random_state)
    return ReviewSession(dataset, pred_proba, noise, folder, random_state, inferred)


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
    dataset = ReviewDataset(data, picture=pixel_pictures(task.X, DIGIT_SCENE_SHAPE), test=(task.X_test, task.Y_test))
    return open_session(dataset, folder, "both", random_state)


class LabelQuestion(NamedTuple):
    """One label of the displayed row."""

    label: int
    name: str
    given: int | None
    """0, 1 or None (not observed)."""
    p_wrong: float | None
    """Error probability of the given label; None if it is not known."""
    suggested: bool
    """Whether the other value is more probable than the given one."""
    answer: Answer | None

    @property
    def value(self) -> int | None:
        """Value of the label after the answer."""
        return self.given if self.answer in (None, "unsure") else int(self.answer == "yes")


class ReviewSession:
    """Review in progress. :func:`open_session` creates it from data.

    Parameters
    ----------
    dataset : ReviewDataset
        Data to review.
    pred_proba : ndarray of float64, shape (n, q)
        Out-of-fold probabilities of the noisy labels.
    noise : {"both", "partial", "missing"}, NoiseModel, NoiseRates or None
        Declared errors of the labels.
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
        noise: str | NoiseModel | NoiseRates | None,
        folder: PathLike,
        random_state: int = 0,
        inferred: InferredLabels | None = None,
    ) -> None:
        self.dataset, self.declared = dataset, noise
        self.folder, self.random_state = Path(folder), random_state
        self.store = _open_store(dataset, folder, random_state)
        self._pred_proba, self._inferred = pred_proba, inferred
        self._cached_rates: dict[bytes, NoiseRates] = {}
        self._training_lock, self._estimation_lock = threading.Lock(), threading.Lock()
        self.queue = ReviewQueue(self.store, dataset.given, self._scores(), random_state)

    def start(self) -> QueueItem:
        """Return the row where the review continues: the latest one, at first the most suspicious one."""
        item = self.store.item(self.store.length() - 1) or self.queue.after(-1, "suspicious")
        assert item is not None  # data have at least one row
        return item

    def following(self, item: QueueItem, rows: NDArray[np.int64] | None = None) -> QueueItem | None:
        """Return the next row of the list that an item belongs to; of selected rows, the next one of ``rows``."""
        if item.stream != "selected":
            return self.queue.after(item.position, item.stream)
        listed = [] if rows is None else rows.tolist()
        place = listed.index(item.row) + 1 if item.row in listed else len(listed)
        return self.queue.select(listed[place]) if place < len(listed) else None

    def questions(self, item: QueueItem, reviewer: str = "") -> list[LabelQuestion]:
        """Return the labels of an item with the answers of a reviewer: given labels first, then the suspicious ones."""
        given, scores = self.dataset.given[item.row], self.queue.scores
        score = np.nan_to_num(scores.score[item.row], nan=-1.0)
        answers = self.store.row_answers(item.row, reviewer, bulk=item.stream != "random")
        return [
            LabelQuestion(
                label,
                self.dataset.label_names[label],
                None if np.isnan(given[label]) else int(given[label]),
                float(score[label]) if scores.known and score[label] >= 0 else None,
                bool(score[label] >= DEFAULT_MIN_P_WRONG),
                answers.get(label),
            )
            for label in sorted(item.asked, key=lambda label: (given[label] != 1, -score[label]))
        ]

    def reasons(self, item: QueueItem) -> list[str]:
        """Return why the most suspicious labels of an item are suspicious."""
        score = np.nan_to_num(self.queue.scores.score[item.row], nan=-1.0)
        labels = sorted(item.asked, key=lambda label: -score[label])
        shown = [label for label in labels if score[label] >= DEFAULT_MIN_P_WRONG] or labels[:1]
        return [self._reason(item.row, label) for label in shown[:MAX_REASONS] if score[label] >= 0]

    def _reason(self, row: int, label: int) -> str:
        """Return why a label is suspicious: the prediction, its features, and who gave the label."""
        data, given = self.dataset, self.dataset.given[row, label] == 1
        p = self._pred_proba[row, label]
        share = "less than 1 %" if p < 0.01 else f"{100 * p:.0f} %"
        parts = [
            f"{data.short_name(label)} is {'given' if given else 'not given'}; the model expects it in {share} of "
            f"similar {'texts' if data.data.texts is not None else 'rows'}."
        ]
        values, evidence = self._evidence(row, label)
        sign = -1 if given else 1
        names = data.data.feature_names
        strongest = np.argsort(-sign * evidence, kind="stable")[:MAX_FEATURES]
        # Of a text, only words that occur in it are named.
        kept = [j for j in strongest if sign * evidence[j] > 0 and (data.data.texts is None or values[j] != 0)]
        if kept and data.picture is None:
            # A feature of a text is named "column: word".
            words = [f"x{j}" if names is None else re.sub(r"^.*?: *(.*?) *$", r"“\1”", str(names[j])) for j in kept]
            parts.append(f"{'Against' if given else 'For'} it: {', '.join(words)}.")
        if self._inferred is not None:
            parts.append(self._voters(row, label))
        return " ".join(parts)

    def _voters(self, row: int, label: int) -> str:
        assert self._inferred is not None
        votes = self._inferred.votes[[row]]
        cast, names = votes.label == label, votes.annotator_names or range(votes.shape[1])
        people = [str(names[a]) for a in votes.annotator[cast & (votes.value > 0.5)]]
        return f"{len(people)} of {int(cast.sum())} annotators gave it{': ' * bool(people)}{', '.join(people)}."

    @cached_property
    def _evidence(self) -> Any:
        return feature_evidence(self.dataset.data.X, np.asarray(self.dataset.given, dtype=np.float64))

    def accept_rest(self, item: QueueItem, reviewer: str = "", *, suggestions: bool = False) -> None:
        """Confirm the given labels that have no answer, or the suggested ones.

        Labels that were not observed become "unsure".
        """
        given = self.dataset.given[item.row]
        wrong = np.nan_to_num(self.queue.scores.score[item.row]) >= DEFAULT_MIN_P_WRONG
        values = np.where(wrong, 1 - given, given) if suggestions else given
        answers: dict[int, Answer] = {
            j: "unsure" if np.isnan(given[j]) else "yes" if values[j] == 1 else "no" for j in item.asked
        }
        self.store.record(item, answers, reviewer=reviewer, only_open=True)

    def accept_suggestions(self, label: int, least: float, reviewer: str = "") -> int:
        """Accept the other value of a label in all rows with at least this error probability; return their number."""
        rows = np.flatnonzero(np.nan_to_num(self.queue.scores.score[:, label]) >= least)
        given = self.dataset.given
        answers: list[tuple[int, int, Answer]] = [
            (int(row), label, "no" if given[row, label] == 1 else "yes") for row in rows
        ]
        return self.store.record_many(answers, reviewer=reviewer)

    def find_rows(self, label: int | None = None, given: int | None = None, text: str = "") -> NDArray[np.int64]:
        """Return the rows with a given value of a label whose text contains ``text``, most suspicious first.

        With ``label``, the rows are ordered by how suspicious this label is.

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
            texts, part = self.dataset.data.texts or [""] * len(matches), text.casefold()
            matches &= np.array([part in content.casefold() for content in texts], dtype=bool)
        order = scores.order if label is None else np.argsort(-np.nan_to_num(scores.score[:, label]), kind="stable")
        rows: NDArray[np.int64] = order[matches[order]]
        return rows

    def rates(self, *, sampled: bool = True) -> NoiseRates:
        """Estimate the noise rates from the data and the complete rows of the random sample.

        Parameters
        ----------
        sampled : bool, default=True
            Whether to use the random sample.

        Returns
        -------
        NoiseRates
            The estimate; the declared rates if they are known.
        """
        data, declared = self.dataset, self.declared
        if isinstance(declared, NoiseRates):
            return declared
        if isinstance(declared, ClassConditionalNoise):
            return NoiseRates.known(declared, data.named_labels)
        sample = self.sample() if sampled else trusted_rows((), data.data.q)
        key = sample.rows.tobytes() + sample.Y.tobytes()
        verified = (*sample, np.ones(len(sample.rows), dtype=bool))
        kind = declared if isinstance(declared, str) else NOISE_TYPES[0]
        with self._estimation_lock:  # an export and a training may run at the same time
            if key not in self._cached_rates:
                evidence = evidence_of(data.data, kind, verified, self.random_state)
                self._cached_rates[key] = rates_of(evidence)
            return self._cached_rates[key]

    def sample(self) -> TrustedRows:
        """Return the complete rows of the random sample with their verified labels."""
        return trusted_rows(self.store.sampled_answers(), self.dataset.data.q)

    def trusted(self) -> TrustedRows:
        """Return all rows with a verified label."""
        return trusted_rows(self.store.answers(), self.dataset.data.q)

    def rates_in_use(self) -> NoiseRates | None:
        """Return the rates of the latest training, or the declared rates; None if there are none."""
        if self.trained is not None:
            return NoiseRates.from_dict(self.trained["rates"])
        return None if self.declared is None else self.rates(sampled=False)

    @property
    def trained(self) -> Any:
        """Description of the latest model that was trained in this review."""
        return self.store.metadata("trained")

    def set_trained(self, description: dict[str, Any], rates: NoiseRates) -> None:
        """Store the description of a trained model and order the rows with its rates and the random sample."""
        with self._training_lock:
            self.store.set_metadata("trained", {**description, "rates": rates.to_dict()})
            self.queue.scores = self._scores()

    def _scores(self) -> Suspicions:
        """Return the order of the rows; error probabilities are declared, or learned from enough random rows."""
        if self._inferred is not None:
            return suspicions_of_votes(self.dataset.given, self._inferred)
        sample = self.sample() if self.trained is not None else trusted_rows((), self.dataset.data.q)
        learned = len(sample.rows) >= N_ROWS_FOR_PROBABILITIES
        known = learned or self.declared is not None
        rates = None if self.declared is None else self.rates_in_use()
        knowledge = {"trusted": sample} if len(sample.rows) and known else {}
        return find_suspicions(self.dataset.given, self._pred_proba, rates, known=known, **knowledge)

    def close(self) -> None:
        """Close the store of answers."""
        self.store.close()


def _open_store(dataset: ReviewDataset, folder: PathLike, random_state: int) -> DecisionStore:
    """Open the answers in the folder of a review; create the folder if it does not exist."""
    Path(folder).mkdir(exist_ok=True)
    return DecisionStore(Path(folder) / "decisions.db", {**dataset.metadata, "seed": random_state})
