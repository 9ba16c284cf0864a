"""Use of the answers: training in the background, row weights and export to files."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ccmn._files import atomic_write
from ccmn._validation import FloatArray
from ccmn.app.classifiers import make_review_classifier
from ccmn.app.rates_files import write_rates
from ccmn.app.review.decisions import LabelAnswer
from ccmn.app.review.queue import TrustedRows, corrected_labels, trusted_rows
from ccmn.app.review.review_data import ReviewDataset
from ccmn.app.review.session import ReviewSession
from ccmn.data import write_file
from ccmn.estimation import NoiseRates
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL

IntArray = NDArray[np.int64]

MIN_ROWS_FOR_COMPARISON = 20
"""The accuracy before and after the answers is compared on at least this number of complete random rows."""

N_FOLDS = 5
"""Number of parts of the complete random rows; each part is predicted by models that were not trained on it."""

EXPORTED_FILES = {
    "corrected.csv": "your table with corrected labels and all its columns",
    "trusted.csv": "one answer per line",
    "trusted.npz": "verified rows for trusted= and --trusted",
    "corrected.npz": "features and corrected labels as numbers",
    "votes.csv": "answers of each reviewer, for --votes",
    "notes.csv": "notes about rows",
    "rates.json": "estimated noise rates, for --noise",
    "review.json": "description of the data and of the progress",
}
"""Files of an export with their contents."""

TRUSTED_COLUMNS = ("row", "label", "given", "answer", "chosen", "counts_for_rates")

State = Literal["idle", "running", "done", "failed"]


class Retraining:
    """Background job that trains a model with the answers and saves it.

    The noise rates and the order of the rows are learned from the complete rows of the random sample only. In training,
    these rows are trusted samples; answers for other rows replace the noisy labels.

    Parameters
    ----------
    session : ReviewSession
        Review whose answers are used. The model is saved in its folder as ``model.ccmn``.
    on_trained : callable, optional
        Called with the model before it is saved, for example to add notes to it.

    Attributes
    ----------
    state : {"idle", "running", "done", "failed"}
        State of the job.
    error : str
        Error message of a failed training.
    """

    def __init__(
        self,
        session: ReviewSession,
        on_trained: Callable[[Any], None] | None = None,
    ) -> None:
        self._session, self._on_trained = session, on_trained
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._started = 0.0
        self.state: State = "idle"
        self.error = ""

    @property
    def path(self) -> Path:
        """File of the model."""
        return self._session.folder / "model.ccmn"

    def start(self) -> bool:
        """Start the training; return False if one is running already."""
        with self._lock:
            if self.state == "running":
                return False
            self.state, self.error, self._started = "running", "", time.time()
            self._thread = threading.Thread(target=self._run, name="retraining", daemon=True)
            self._thread.start()
            return True

    def wait(self) -> None:
        """Wait until the training has ended."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._train()
        except Exception as error:  # the page shows the error; the server must keep running
            self.state, self.error = "failed", f"{type(error).__name__}: {error}"
        else:
            self.state = "done"

    def _train(self) -> None:
        session = self._session
        rates, trusted = session.rates(), trusted_rows(session.store.answers(), session.dataset.data.q)
        model = self._fit(rates, trusted)
        if self._on_trained is not None:
            self._on_trained(model)
        model.save(self.path)
        description = {
            "labels": int((~np.isnan(trusted.Y)).sum()),
            "rows": len(trusted.rows),
            "seconds": time.time() - self._started,
            "finished": time.time(),
        }
        session.set_trained({**description, "comparison": self._compare(model, rates, trusted)}, rates)

    def _fit(self, rates: NoiseRates, trusted: TrustedRows | None, left_out: IntArray | None = None) -> Any:
        """Fit a classifier, if requested without some rows; without trusted rows, on the given labels alone."""
        session, dataset = self._session, self._session.dataset
        n = dataset.data.n
        kept = np.arange(n) if left_out is None else np.setdiff1d(np.arange(n), left_out)
        classifier = make_review_classifier(rates, session.random_state)
        if trusted is None:
            return classifier.fit(dataset.data.X[kept], dataset.named(dataset.given[kept]))
        sample = _select_rows(session.sample(), kept)
        Y = dataset.named(corrected_labels(dataset.given, trusted)[kept])
        if not len(sample.rows):
            return classifier.fit(dataset.data.X[kept], Y)
        return classifier.fit(
            dataset.data.X[kept], Y, trusted=(np.searchsorted(kept, sample.rows), sample.Y.astype(np.float64))
        )

    def _compare(self, model: Any, rates: NoiseRates, trusted: TrustedRows) -> dict[str, Any] | None:
        """Compare models without and with the answers on the test set, or on verified rows by cross-validation.

        Returns None if there is no test set and there are too few complete rows of the random sample.
        """
        session, initial = self._session, self._session.rates(sampled=False)
        if session.dataset.test is not None:
            X, Y = session.dataset.test
            before, after = (_row_errors(Y, fitted.predict(X)) for fitted in (self._fit(initial, None), model))
            return {"on": "test set", **compare_errors(before, after)}
        sample = session.sample()
        if len(sample.rows) < MIN_ROWS_FOR_COMPARISON:
            return None
        before, after = np.empty(len(sample.rows)), np.empty(len(sample.rows))
        folds = np.random.default_rng(session.random_state).permutation(len(sample.rows)) % N_FOLDS
        for fold in range(N_FOLDS):
            rows, true = sample.rows[folds == fold], sample.Y[folds == fold]
            X = session.dataset.data.X[rows]
            before[folds == fold] = _row_errors(true, self._fit(initial, None, rows).predict(X))
            after[folds == fold] = _row_errors(true, self._fit(rates, trusted, rows).predict(X))
        return {"on": "random sample", **compare_errors(before, after)}


def _select_rows(trusted: TrustedRows, rows: IntArray) -> TrustedRows:
    inside = np.isin(trusted.rows, rows)
    return TrustedRows(trusted.rows[inside], trusted.Y[inside])


def _row_errors(true: Any, predicted: Any) -> FloatArray:
    """Return the share of wrong predictions of each row, over its verified labels."""
    true, predicted = np.asarray(true, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    known = ~np.isnan(true)
    errors: FloatArray = ((true != predicted) & known).sum(1) / np.maximum(known.sum(1), 1)
    return errors


def compare_errors(before: FloatArray, after: FloatArray) -> dict[str, Any]:
    """Return mean errors of two models on the same rows with normal confidence intervals.

    Parameters
    ----------
    before, after : ndarray of float64, shape (n,)
        Errors per row of the two models.

    Returns
    -------
    dict
        Number of rows ``n_rows``, and ``before``, ``after`` and ``difference`` (after minus before): mean and ends of
        the interval, clipped to [0, 1] for the two errors. The interval of the difference is that of paired rows.

    Examples
    --------
    >>> found = compare_errors(np.array([0.5, 0.5, 0.0, 1.0]), np.array([0.25, 0.25, 0.0, 0.5]))
    >>> [round(value, 3) for value in found["difference"]]
    [-0.25, -0.418, -0.082]
    """
    width = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2) / np.sqrt(len(before))

    def interval(values: FloatArray) -> list[float]:
        mean, half = float(values.mean()), float(width * values.std(ddof=1))
        return [mean, mean - half, mean + half]

    shares = {name: np.clip(interval(e), 0, 1).tolist() for name, e in (("before", before), ("after", after))}
    parts = {**shares, "difference": interval(after - before)}
    return {"n_rows": len(before), **parts}


def export_answers(session: ReviewSession) -> list[Path]:
    """Write the answers of a review to files in its folder; overwrite earlier exports.

    - ``corrected.csv``: the reviewed table with all its columns and corrected labels, if the data are a table.
    - ``trusted.csv``: one answer per line, with the list that its row was chosen from.
    - ``trusted.npz``: ``rows``, ``Y`` (NaN if not verified) and ``random``, which marks the complete rows of the
      random sample. Only these rows are suitable for estimating noise rates.
    - ``corrected.npz``: features and corrected labels as numbers.
    - ``votes.csv``: the answers of each reviewer, as votes.
    - ``notes.csv``: notes about rows, if there are any.
    - ``rates.json``: the estimated noise rates, for ``--noise``.
    - ``review.json``: description of the data and of the progress.

    Each file is written atomically.

    Parameters
    ----------
    session : ReviewSession
        Review to export.

    Returns
    -------
    list of Path
        The files.
    """
    folder, answers, dataset = session.folder, session.store.answers(), session.dataset
    sampled = set(session.store.sampled_rows())
    trusted = trusted_rows(answers, dataset.data.q)
    corrected = corrected_labels(dataset.given, trusted)
    names = np.array(dataset.label_names, dtype=str)
    files = {name: folder / name for name in EXPORTED_FILES}
    if dataset.table is None:
        del files["corrected.csv"]
    else:
        table = dataset.table()
        if len(table) != dataset.data.n:
            raise OSError(
                f"the data file has changed since the review started: it has {len(table)} rows instead of "
                f"{dataset.data.n}; start the review again"
            )
        table = _correct_table(table, dataset, corrected)
        with atomic_write(files["corrected.csv"]) as stream:
            table.to_csv(stream, index=False, lineterminator="\n")
    _write_lines(files["trusted.csv"], TRUSTED_COLUMNS, _trusted_lines(session, answers, sampled))
    with atomic_write(files["trusted.npz"]) as stream:
        random = np.isin(trusted.rows, list(sampled))
        np.savez_compressed(stream, label_names=names, random=random, **trusted._asdict())
    write_file(replace(dataset.data, Y=corrected), files["corrected.npz"])
    votes = session.store.reviewer_answers()
    known = (vote for vote in votes if vote.answer != "unsure")
    lines = ((v.row, v.reviewer or "reviewer", names[v.label], int(v.answer == "yes")) for v in known)
    _write_lines(files["votes.csv"], ("row", "annotator", "label", "value"), lines)
    if notes := session.store.notes():
        _write_lines(files["notes.csv"], ("row", "reviewer", "note"), notes)
    else:
        del files["notes.csv"]
    write_rates(session.rates(), files["rates.json"])
    changed = int((corrected != dataset.given)[~np.isnan(corrected)].sum())
    description = {**dataset.metadata, **session.store.progress(), "labels_changed": changed}
    _write_json({**description, "files": [name for name in files if name != "review.json"]}, files["review.json"])
    return list(files.values())


def _correct_table(table: Any, dataset: ReviewDataset, corrected: NDArray[np.float32]) -> Any:
    """Return a table with corrected labels; cells whose labels have not changed keep their text.

    Lists of labels become texts.
    """
    changed = (corrected != dataset.given) & ~np.isnan(corrected)
    if dataset.tags is not None:
        column, separator = dataset.tags
        cells = table[column].tolist()
        lists = np.array([not isinstance(cell, str) and np.ndim(cell) > 0 for cell in cells], dtype=bool)
        for i in np.flatnonzero(changed.any(1) | lists):
            present = [name for name, value in zip(dataset.label_names, corrected[i]) if value == 1]
            cells[i] = separator.join(present)
        return table.assign(**{column: cells})
    for j in np.flatnonzero(changed.any(0)):
        cells = table[dataset.label_names[j]].astype(object).tolist()
        for i in np.flatnonzero(changed[:, j]):
            cells[i] = str(int(corrected[i, j]))
        table[dataset.label_names[j]] = cells
    return table


def _trusted_lines(session: ReviewSession, answers: list[LabelAnswer], sampled: set[int]) -> Iterator[tuple[Any, ...]]:
    given, names = session.dataset.given, session.dataset.label_names
    for row, label, answer, chosen in answers:
        value = given[row, label]
        yield row, names[label], "" if np.isnan(value) else int(value), answer, chosen, int(row in sampled)


def _write_lines(path: Path, head: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    with atomic_write(path) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(lines)


def _write_json(content: dict[str, Any], path: Path) -> None:
    with atomic_write(path) as stream:
        stream.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")
