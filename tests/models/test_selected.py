"""The selected configuration (``selected_``) and the warnings about a selection at the edge of its grid."""

from __future__ import annotations

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


@pytest.mark.parametrize("surrogate", ["square", "logistic"])
def test_path_solvers_report_the_criterion_of_the_fitted_model(surrogate):
    clf = fit(loss="hamming", surrogate=surrogate)
    history = clf.history_
    used = history["l2"][history["labels"] > 0]
    assert clf.selected_ == {
        "criterion": "hamming_loss",
        "value": pytest.approx(hamming_loss(VALIDATION[1], clf.predict(VALIDATION[0]))),
        "l2_min": used.min(),
        "l2_max": used.max(),
        "n_labels": 3,
    }


@pytest.mark.parametrize("model", ["linear", lambda d, q: torch.nn.Linear(d, q)])
def test_adam_reports_learning_rate_and_epoch(model):
    clf = fit(loss="hamming", solver="adam", model=model, lr=(1e-4, 0.05), epochs=30)
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
