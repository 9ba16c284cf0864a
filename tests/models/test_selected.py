"""The selected configuration (``selected_``) and the warnings about a selection at the edge of its grid."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from ccmn import CCMNClassifier, load_model
from ccmn.metrics import hamming_loss

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6))
Y = (X[:, :3] + 0.3 * RNG.normal(size=(300, 3)) > 0.2).astype(int)
VALIDATION = (X[200:], Y[200:])


def fit(**parameters):
    settings = {"noise": None, "random_state": 0, **parameters}
    return CCMNClassifier(**settings).fit(X[:200], Y[:200], validation=VALIDATION, validation_is_clean=True)


@pytest.mark.parametrize("model", ["linear", lambda d, q: torch.nn.Linear(d, q)])
def test_adam_reports_learning_rate_and_epoch(model):
    clf = fit(loss="hamming", model=model, lr=(1e-4, 0.05), epochs=30)
    selected, history = clf.selected_, clf.history_
    assert (selected["criterion"], selected["lr"], selected["epochs"]) == ("hamming_loss", 0.05, 30)
    row = history[(history["lr"] == selected["lr"]) & (history["epoch"] == selected["epoch"])].iloc[0]
    assert selected["value"] == row["hamming_loss"] == history["hamming_loss"].min()
    assert selected["loss"] == pytest.approx(row["loss"])
    assert selected["value"] == pytest.approx(hamming_loss(VALIDATION[1], clf.predict(VALIDATION[0])))


def test_selected_is_saved_with_the_model(tmp_path):
    clf = fit(epochs=3)
    clf.save(tmp_path / "m.ccmn")
    assert load_model(tmp_path / "m.ccmn").selected_ == clf.selected_


def warnings_of(**parameters):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(**parameters)
    return [str(w.message) for w in caught]


ADAM = {"loss": "hamming", "surrogate": "sigmoid", "scale": False}


def test_one_warning_names_the_edge_of_the_grid_and_the_last_epoch():
    (message,) = warnings_of(**ADAM, lr=(1e-2, 1e-4, 1e-3), epochs=3, batch_size=10)
    assert "learning rate 0.01 is the largest of lr=[0.01, 0.0001, 0.001]; a larger one may be better." in message
    assert "The best epoch is the last one (3)" in message
    assert "Increase epochs" in message


def test_warning_for_the_smallest_learning_rate():
    (message,) = warnings_of(**ADAM, lr=(0.05, 50.0), epochs=60)
    assert "learning rate 0.05 is the smallest of lr=[0.05, 50.0]; a smaller one may be better." in message


@pytest.mark.parametrize(
    "parameters",
    [
        {"lr": 0.05, "epochs": 60},
        {"lr": (1e-6, 0.05, 50.0), "epochs": 60},
        # The largest learning rate has converged before the last epochs.
        {"lr": (1e-5, 0.3), "epochs": 60},
        # With one epoch there is nothing to compare.
        {"lr": 0.05, "epochs": 1},
        # Learning rates of 0 reach the same criterion.
        {"lr": (1e-12, 2e-12), "epochs": 5},
    ],
)
def test_no_warning_for_a_selection_inside_the_grid(parameters):
    assert warnings_of(**ADAM, **parameters) == []


def test_no_edge_warning_after_an_interruption(monkeypatch):
    def interrupt(progress):
        if progress.epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("ccmn.models.ccmn_classifier.show_progress", lambda *_: nullcontext(interrupt))
    (message,) = warnings_of(**ADAM, epochs=50, verbose=1)
    assert message.startswith("The fit was interrupted")
