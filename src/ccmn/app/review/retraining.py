"""Use of the answers: training in the background, row weights and export to files."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccmn._files import atomic_write
from ccmn._validation import FloatArray
from ccmn.app.files import write_csv, write_text
from ccmn.app.rates_files import rates_text
from ccmn.app.review.decisions import LabelAnswer, ReviewerAnswer
from ccmn.app.review.queue import TrustedRows, corrected_labels
from ccmn.app.review.review_data import ReviewDataset
from ccmn.app.review.session import ReviewSession
from ccmn.data import write_file
from ccmn.estimation import NoiseRates
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL
from ccmn.models import CCMNClassifier

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

    def __init__(self, session: ReviewSession, on_trained: Callable[[Any], None] | None = None) -> None:
        self._session, self._on_trained = session, on_trained
        self._lock = threading.Lock()
        self.path = session.folder / "model.ccmn"
        self.state: State = "idle"
        self.error = ""

    def start(self) -> None:
        """Start the training, if none is running."""
        with self._lock:
            if self.state != "running":
                self.state, self.error = "running", ""
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._train(time.time())
        except Exception as error:  # the page shows the error; the server must keep running
            self.state, self.error = "failed", f"{type(error).__name__}: {error}"
        else:
            self.state = "done"

    def _train(self, started: float) -> None:
        session = self._session
        rates, trusted = session.rates(), session.trusted()
        model = self._fit(rates, trusted)
        if self._on_trained is not None:
            self._on_trained(model)
        model.save(self.path)
        seconds, comparison = time.time() - started, self._compare(model, rates, trusted)
        labels = int((~np.isnan(trusted.Y)).sum())
        session.set_trained({"labels": labels, "seconds": seconds, "comparison": comparison}, rates)

    def _fit(self, rates: NoiseRates, trusted: TrustedRows | None, left_out: Sequence[int] | IntArray = ()) -> Any:
        """Fit a fast classifier without some rows; without trusted rows, to the given labels alone."""
        session, dataset = self._session, self._session.dataset
        kept = np.setdiff1d(np.arange(dataset.data.n), left_out)
        Y = dataset.given if trusted is None else corrected_labels(dataset.given, trusted)
        sample = session.sample()
        used = np.isin(sample.rows, kept) & (trusted is not None)
        verified = np.searchsorted(kept, sample.rows[used]), sample.Y[used].astype(np.float64)
        classifier = CCMNClassifier(rates.noise, loss="hamming", surrogate="square", random_state=session.random_state)
        trusted_kept = verified if used.any() else None
        return classifier.fit(dataset.data.X[kept], dataset.named(Y[kept]), trusted=trusted_kept)

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


def _row_errors(true: Any, predicted: Any) -> FloatArray:
    """Return the share of wrong predictions of each row, over its verified labels."""
    errors: FloatArray = np.nanmean(np.where(np.isnan(true), np.nan, true != predicted), axis=1)
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


def export_answers(session: ReviewSession) -> None:
    """Write the answers of a review to ``EXPORTED_FILES`` in its folder, each atomically; overwrite earlier exports.

    ``corrected.csv`` is written if the data are a table, ``notes.csv`` if there are notes. In ``trusted.npz``, ``Y`` is
    NaN where a label is not verified, and ``random`` marks the complete rows of the random sample. Only these rows are
    suitable for estimating noise rates.
    """
    store, dataset, names = session.store, session.dataset, np.array(session.dataset.label_names, dtype=str)
    numbers = {"row": int, "label": int}  # also without answers
    answers = pd.DataFrame(store.answers(), columns=LabelAnswer._fields).astype(numbers)
    votes = pd.DataFrame(store.reviewer_answers(), columns=ReviewerAnswer._fields).astype(numbers)
    votes = votes[votes.answer != "unsure"]
    trusted, sampled = session.trusted(), store.sampled_rows()
    corrected = corrected_labels(dataset.given, trusted)
    tables = {}
    if dataset.table is not None:
        tables["corrected.csv"] = _corrected_table(dataset, corrected)
    given = pd.Series(dataset.given[answers.row, answers.label]).map("{:.0f}".format).replace("nan", "")
    answers.insert(2, "given", given.to_numpy(dtype=object))
    tables["trusted.csv"] = answers.assign(label=names[answers.label], counts_for_rates=answers.row.isin(sampled) * 1)
    tables["votes.csv"] = pd.DataFrame(
        {
            "row": votes.row,
            "annotator": votes.reviewer.replace("", "reviewer"),
            "label": names[votes.label],
            "value": (votes.answer == "yes") * 1,
        }
    )
    if notes := store.notes():
        tables["notes.csv"] = pd.DataFrame(notes, columns=("row", "reviewer", "note"))
    for name, table in tables.items():
        write_csv(table, session.folder / name)
    with atomic_write(session.folder / "trusted.npz") as stream:
        random = np.isin(trusted.rows, sampled)
        np.savez_compressed(stream, label_names=names, random=random, **trusted._asdict())
    write_file(replace(dataset.data, Y=corrected), session.folder / "corrected.npz")
    write_text(session.folder / "rates.json", rates_text(session.rates()))
    changed = int((corrected != dataset.given)[~np.isnan(corrected)].sum())
    description = {**dataset.metadata, **store.progress(), "labels_changed": changed}
    write_text(session.folder / "review.json", json.dumps(description, indent=2, ensure_ascii=False) + "\n")


def _corrected_table(dataset: ReviewDataset, corrected: NDArray[np.float32]) -> pd.DataFrame:
    """Return the reviewed table with corrected labels; cells whose labels have not changed keep their text.

    Lists of labels become texts.
    """
    assert dataset.table is not None
    table: pd.DataFrame = dataset.table()
    if len(table) != dataset.data.n:
        raise OSError(
            f"the data file has changed since the review started: it has {len(table)} rows instead of "
            f"{dataset.data.n}; start the review again"
        )
    changed = (corrected != dataset.given) & ~np.isnan(corrected)
    if dataset.tags is None:
        for j in np.flatnonzero(changed.any(0)):
            name = dataset.label_names[j]
            values = np.array([f"{value:.0f}" for value in corrected[:, j]], dtype=object)
            table[name] = table[name].astype(object).mask(changed[:, j], values)
        return table
    column, separator = dataset.tags
    cells = [
        separator.join(name for name, value in zip(dataset.label_names, values) if value == 1)
        if is_changed or (not isinstance(cell, str) and np.ndim(cell) > 0)
        else cell
        for cell, values, is_changed in zip(table[column], corrected, changed.any(1))
    ]
    return table.assign(**{column: cells})
