"""Choice of the solver, and the state after a failed fit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from ccmn.models.solvers import choose_solver
from sklearn.exceptions import NotFittedError

from ccmn import CCMNClassifier
from ccmn.data import make_noisy_multilabel
from ccmn.models.training_data import ResolvedNoise, Sample, Split, prepare
from ccmn.noise import ClassConditionalNoise

ROWS = Sample(np.zeros((60, 2)), np.zeros((60, 3), dtype=np.float32), None)
UNSEEN = Sample(np.zeros((60, 2)), np.full((60, 3), np.nan, dtype=np.float32), None)
HAMMING = {"loss": "hamming", "surrogate": "square"}
LOGISTIC = {"loss": "hamming", "surrogate": "logistic"}


def chosen(parameters, training):
    noise = ResolvedNoise(ClassConditionalNoise(0.1, 0.1, n_labels=3))
    config = CCMNClassifier(**parameters)._config(noise, prepare(np.zeros((60, 2)), np.eye(60, 3)), 60, 0)
    return config.model, choose_solver(config, Split(training, ROWS))


@pytest.mark.parametrize(
    ("parameters", "training", "expected"),
    [
        ({}, ROWS, ("average", "newton")),
        ({"model": "linear"}, UNSEEN, ("linear", "newton")),
        ({"model": "mlp"}, ROWS, ("mlp", "adam")),
        ({"loss": "ranking"}, ROWS, ("linear", "adam")),
        ({"solver": "adam"}, ROWS, ("linear", "adam")),
        (HAMMING, ROWS, ("linear", "closed_form")),
        (LOGISTIC, ROWS, ("linear", "newton")),
        (LOGISTIC, UNSEEN, ("linear", "newton")),
        (HAMMING, UNSEEN, ("linear", "adam")),
        ({**HAMMING, "correction": "abs"}, ROWS, ("linear", "adam")),
        ({"correction": "abs"}, ROWS, ("linear", "adam")),
        ({**LOGISTIC, "model": "mlp"}, ROWS, ("mlp", "adam")),
        ({**HAMMING, "solver": "adam"}, ROWS, ("linear", "adam")),
        ({**LOGISTIC, "solver": "newton"}, ROWS, ("linear", "newton")),
    ],
)
def test_auto_selects_the_fastest_solver(parameters, training, expected):
    assert chosen(parameters, training) == expected


@pytest.mark.parametrize("solver", ["closed_form", "newton"])
def test_unsupported_solver_names_its_requirements(solver):
    with pytest.raises(ValueError, match=f"solver='{solver}' requires model='linear'"):
        chosen({"solver": solver, "loss": "ranking"}, ROWS)


@pytest.mark.parametrize("length", [1e3, 1e4])
def test_large_uninformative_feature_does_not_end_the_path(length):
    """At the first l2 weights of the path, only this feature has an effect."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    Y = (X @ rng.normal(size=(4, 3)) > 0).astype(float)
    X = np.hstack([X, length * (10 + rng.normal(size=(400, 1)))])
    clf = CCMNClassifier(noise=None, **LOGISTIC, solver="newton", random_state=0).fit(X[:300], Y[:300])
    assert (clf.predict(X[300:]) == Y[300:]).mean() > 0.93


def test_failed_refit_resets_the_fitted_state():
    X = np.random.default_rng(0).normal(size=(60, 3))
    clf = CCMNClassifier(noise=None, **LOGISTIC, random_state=0).fit(X, np.where(X[:, 0] > 0, "a", "b"))
    clf.set_params(solver="closed_form")
    with pytest.raises(ValueError, match="closed_form"):
        clf.fit(X, np.where(X[:, 0] > 0, "y", "x"))
    with pytest.raises(NotFittedError):
        clf.predict(X)


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"lr": 0.1}, "lr has"),
        ({"epochs": 3, "batch_size": 2}, "epochs, batch_size have"),
        (HAMMING | {"lr": 0.1}, "lr has"),
    ],
)
def test_parameters_of_adam_without_adam_are_named(parameters, names):
    task = make_noisy_multilabel(80, 3, 2, random_state=0)
    with pytest.warns(UserWarning, match=f"{names} no effect with solver="):
        CCMNClassifier(None, random_state=0, **parameters).fit(task.X, task.Y)


def test_default_parameters_have_no_unused_ones():
    task = make_noisy_multilabel(80, 3, 2, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*no effect with solver")
        CCMNClassifier(None, random_state=0).fit(task.X, task.Y)


@pytest.mark.parametrize("parameters", [{"loss": "ranking"}, {"correction": "abs"}])
def test_average_model_requires_the_plugin_loss(parameters):
    task = make_noisy_multilabel(80, 3, 2, random_state=0)
    with pytest.raises(ValueError, match="model='average' requires"):
        CCMNClassifier(None, model="average", random_state=0, **parameters).fit(task.X, task.Y)
