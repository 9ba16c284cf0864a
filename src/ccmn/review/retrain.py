"""Training with what was decided, in the background, one at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccmn.estimation import NoiseRates
from ccmn.metrics import hamming_loss
from ccmn.models import CCMNClassifier
from ccmn.review.session import Session
from ccmn.review.trusted import TrustedRows, trusted_rows
from ccmn.review.weights import row_weights

CLOSED_FORM = {"loss": "hamming", "surrogate": "square"}

State = Literal["idle", "running", "done", "failed"]


class Retraining:
    """A background job that trains a model, saves it, and lets the queue go by the new rates.

    The rates rest on the rows drawn by lot alone; every answer, whatever row it is about, takes the place of the noisy
    label in training, where rows that were drawn by lot and answered in full weigh more (:func:`row_weights`).

    Parameters
    ----------
    session : Session
    finish : callable, optional
        Called with the model before it is saved, to keep notes with it.
    settings : dict, optional
        Of ``CCMNClassifier``, beyond noise and seed. By default the closed form, which is ready before the next row
        is answered; which of it and the estimator's default errs less differs from one draw of noise to the next.
    """

    def __init__(
        self,
        session: Session,
        finish: Callable[[CCMNClassifier], None] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._session, self._finish, self._settings = session, finish, settings or CLOSED_FORM
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.state: State = "idle"
        self.error = ""
        self.started = 0.0

    @property
    def path(self) -> Path:
        """Where the model is saved."""
        return self._session.folder / "model.ccmn"

    def start(self) -> bool:
        """Begin, unless it is under way already."""
        with self._lock:
            if self.state == "running":
                return False
            self.state, self.error, self.started = "running", "", time.time()
            self._thread = threading.Thread(target=self._run, name="retraining", daemon=True)
            self._thread.start()
            return True

    def wait(self) -> None:
        """Until it is over."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._train()
        except Exception as error:  # whatever it is, the page is where it is seen
            self.state, self.error = "failed", f"{type(error).__name__}: {error}"
        else:
            self.state = "done"

    def _train(self) -> None:
        session = self._session
        rates, trusted = session.rates(), trusted_rows(session.store.entries(), session.subject.data.q)
        model = self._fit(rates, trusted)
        if self._finish is not None:
            self._finish(model)
        model.save(self.path)
        seconds = time.time() - self.started
        known = int((~np.isnan(trusted.Y)).sum())
        about = {"labels": known, "rows": len(trusted.rows), "seconds": seconds, "finished": time.time()}
        session.keep_trained({**about, **self._gain(model)}, rates)

    def _fit(self, rates: NoiseRates, trusted: TrustedRows | None) -> CCMNClassifier:
        subject = self._session.subject
        classifier = CCMNClassifier(noise=rates.noise, random_state=self._session.seed, **self._settings)
        if trusted is None or not len(trusted.rows):
            return classifier.fit(subject.data.X, subject.named_labels)
        weights = row_weights(subject.data.n, rates, trusted, self._session.store.sampled_rows())
        return classifier.fit(subject.data.X, subject.named_labels, sample_weight=weights, trusted=trusted)

    def _gain(self, model: CCMNClassifier) -> dict[str, Any]:
        """Where clean test labels are to be had: the Hamming loss on them, and that of a model without the review."""
        if self._session.subject.test is None:
            return {}
        X, Y = self._session.subject.test
        trained = self._session.trained
        before = trained["test_before"] if trained else _loss(self._fit(self._session.before, None), X, Y)
        return {"test_before": before, "test_after": _loss(model, X, Y)}


def _loss(model: CCMNClassifier, X: Any, Y: Any) -> float:
    return float(np.asarray(hamming_loss(Y, model.predict(X))))
