from __future__ import annotations

import threading

import numpy as np

from ccmn.models import load_model
from ccmn.review import Retraining
from ccmn.review.retrain import CCMNClassifier
from review.table import TRUE, answer_truly, make_session

QUICK = {"epochs": 15, "lr": 0.05}


def test_rates_rest_on_the_lot_and_labels_on_every_answer(session, monkeypatch):
    answer_truly(session, 21)
    seen = {}
    fit = CCMNClassifier.fit

    def spy(self, X, y, **kwargs):
        seen.update(kwargs, noise=self.noise)
        return fit(self, X, y, **kwargs)

    monkeypatch.setattr(CCMNClassifier, "fit", spy)
    training = Retraining(session, settings=QUICK)
    training.start()
    training.wait()
    assert training.error == ""
    rows, Y = seen["trusted"]
    assert len(rows) == session.store.progress()["rows"] > len(session.store.sampled_rows())
    np.testing.assert_array_equal(Y, TRUE[rows])
    np.testing.assert_array_equal(seen["noise"].rho_neg, session.rates().rho_neg)


def test_the_queue_goes_by_the_new_rates_also_after_a_restart(session):
    answer_truly(session, 60)
    before = session.queue.doubt.highest
    training = Retraining(session, settings=QUICK)
    training.start()
    training.wait()
    after = session.queue.doubt.highest
    assert not np.array_equal(before, after)
    again = make_session(session.folder)
    np.testing.assert_array_equal(again.queue.doubt.highest, after)
    assert again.trained == session.trained
    again.close()


def test_one_at_a_time_and_failures_are_told(session, monkeypatch):
    go = threading.Event()

    def stuck(*_, **__):
        go.wait()
        raise RuntimeError("no memory")

    monkeypatch.setattr(CCMNClassifier, "fit", stuck)
    training = Retraining(session)
    assert training.start()
    assert not training.start()
    assert training.state == "running"
    go.set()
    training.wait()
    assert (training.state, training.error) == ("failed", "RuntimeError: no memory")
    assert session.trained is None
    assert not training.path.exists()


def test_without_a_single_answer_it_trains_on_what_there_is(session):
    training = Retraining(session, finish=lambda model: model.extra_.update(note="mine"), settings=QUICK)
    training.start()
    training.wait()
    assert training.state == "done"
    assert load_model(training.path).extra_ == {"note": "mine"}
    assert session.trained["labels"] == 0
