"""Use of the answers: training in the background, row weights and export to files."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccmn._files import atomic_write
from ccmn._validation import FloatArray
from ccmn.data.npz import write_npz
from ccmn.estimation import NoiseRates
from ccmn.metrics import hamming_loss
from ccmn.models import CCMNClassifier
from ccmn.review.decisions import LabelAnswer
from ccmn.review.queue import TrustedRows, corrected_labels, trusted_rows
from ccmn.review.session import ReviewSession

DEFAULT_CLASSIFIER_PARAMS = {"loss": "hamming", "surrogate": "square"}
"""Parameters with a closed-form solution, which is computed before the next row is answered."""

RESIDUAL_VARIANCE = 0.1
"""Assumed variance of a true label around the prediction of a model; see :func:`row_weights`."""

State = Literal["idle", "running", "done", "failed"]


class Retraining:
    """Background job that trains a model with the answers and saves it.

    The noise rates are estimated with the complete rows of the random sample only. In training, each answer replaces
    the noisy label, and the complete rows of the random sample have a higher weight (:func:`row_weights`). The new
    rates are then used to rank suspicious rows.

    Parameters
    ----------
    session : ReviewSession
        Review whose answers are used. The model is saved in its folder as ``model.ccmn``.
    on_trained : callable, optional
        Called with the model before it is saved, for example to add notes to it.
    classifier_params : dict, optional
        Parameters of ``CCMNClassifier`` except ``noise`` and ``random_state``. The default is the Hamming loss with the
        square surrogate, which has a closed-form solution. Neither this nor the default of the estimator is more
        accurate on all data.

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
        on_trained: Callable[[CCMNClassifier], None] | None = None,
        classifier_params: dict[str, Any] | None = None,
    ) -> None:
        self._session, self._on_trained = session, on_trained
        self._params = classifier_params or DEFAULT_CLASSIFIER_PARAMS
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
        session.set_trained({**description, **self._test_losses(model)}, rates)

    def _fit(self, rates: NoiseRates, trusted: TrustedRows | None) -> CCMNClassifier:
        """Fit a classifier; without trusted rows, on the given labels alone."""
        dataset = self._session.dataset
        classifier = CCMNClassifier(noise=rates.noise, random_state=self._session.random_state, **self._params)
        if trusted is None or not len(trusted.rows):
            return classifier.fit(dataset.data.X, dataset.named_labels)
        weights = row_weights(dataset.data.n, rates, trusted, self._session.store.sampled_rows())
        return classifier.fit(dataset.data.X, dataset.named_labels, sample_weight=weights, trusted=trusted)

    def _test_losses(self, model: CCMNClassifier) -> dict[str, float]:
        """Return the Hamming loss on the clean test set, if there is one, with and without the answers."""
        if self._session.dataset.test is None:
            return {}
        X, Y = self._session.dataset.test

        def loss(fitted: CCMNClassifier) -> float:
            return float(np.asarray(hamming_loss(Y, fitted.predict(X))))

        trained = self._session.trained
        before = trained["test_before"] if trained else loss(self._fit(self._session.initial_rates, None))
        return {"test_before": before, "test_after": loss(model)}


def row_weights(n: int, rates: NoiseRates, trusted: TrustedRows, sampled_rows: Iterable[int]) -> FloatArray:
    r"""Return the weights of the rows in training: inverse label variances, scaled to 1 for rows with noisy labels.

    Around the true label, a debiased label has the variance

    .. math:: v_j = \frac{\pi_j \rho_{pos,j} (1 - \rho_{pos,j}) + (1 - \pi_j) \rho_{neg,j} (1 - \rho_{neg,j})}
                         {(1 - \rho_{pos,j} - \rho_{neg,j})^2}

    and a verified label the variance 0. Around the prediction of a model, both have the additional variance ``s``
    (``RESIDUAL_VARIANCE``). A row with verified labels is therefore weighted like :math:`1 + \bar v / s` noisy rows.
    Only complete rows of the random sample get this weight. Suspicious rows are not a random sample, so that a higher
    weight would bias the training. In an incomplete row, the weight would also apply to noisy labels.

    Parameters
    ----------
    n : int
        Number of rows.
    rates : NoiseRates
        Noise rates and label prevalence.
    trusted : TrustedRows
        Verified labels.
    sampled_rows : iterable of int
        Complete rows of the random sample.

    Returns
    -------
    ndarray of float64, shape (n,)
        Weights.
    """
    pos, neg, prior = rates.noise.rho_pos, rates.noise.rho_neg, np.nan_to_num(rates.prior, nan=0.5)
    variance = (prior * pos * (1 - pos) + (1 - prior) * neg * (1 - neg)) / (1 - pos - neg) ** 2
    complete = trusted.rows[~np.isnan(trusted.Y).any(1)]
    weights = np.ones(n)
    weights[np.intersect1d(complete, np.array(list(sampled_rows), dtype=np.int64))] += (
        variance.mean() / RESIDUAL_VARIANCE
    )
    return weights


def export_answers(session: ReviewSession) -> list[Path]:
    """Write the answers of a review to files in its folder; overwrite earlier exports.

    - ``trusted.csv``: one answer per line.
    - ``trusted.npz``: ``rows``, ``Y`` (NaN if not verified) and ``random``, which marks the complete rows of the
      random sample. Only these rows are suitable for estimating noise rates.
    - ``corrected.npz``: the data with corrected labels, for ``ccmn fit``.
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
    files = [folder / name for name in ("trusted.csv", "trusted.npz", "corrected.npz", "rates.json", "review.json")]
    _write_csv(session, answers, sampled, files[0])
    with atomic_write(files[1]) as stream:
        random = np.isin(trusted.rows, list(sampled))
        names = np.array(dataset.label_names, dtype=str)
        np.savez_compressed(stream, allow_pickle=False, label_names=names, random=random, **trusted._asdict())
    write_npz(replace(dataset.data, Y=corrected), files[2])
    _write_json(_rates_to_dict(session.rates()), files[3])
    changed = int((corrected != dataset.given)[~np.isnan(corrected)].sum())
    description = {**dataset.metadata, **session.store.progress(), "labels_changed": changed}
    _write_json({**description, "files": [path.name for path in files[:-1]]}, files[4])
    return files


def _write_csv(session: ReviewSession, answers: list[LabelAnswer], sampled: set[int], path: Path) -> None:
    given, names = session.dataset.given, session.dataset.label_names
    with atomic_write(path) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "label", "given", "answer", "counts_for_rates"])
        for row, label, answer in answers:
            value = given[row, label]
            writer.writerow([row, names[label], "" if np.isnan(value) else int(value), answer, int(row in sampled)])


def _rates_to_dict(rates: NoiseRates) -> dict[str, Any]:
    """Return rates in the format of ``--noise FILE``: the noise model, and further results under "estimate"."""
    model = rates.noise.to_dict()
    shared = ("rho_pos", "rho_neg", "label_names")
    return {**model, "estimate": {name: value for name, value in rates.to_dict().items() if name not in shared}}


def _write_json(content: dict[str, Any], path: Path) -> None:
    with atomic_write(path) as stream:
        stream.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")
