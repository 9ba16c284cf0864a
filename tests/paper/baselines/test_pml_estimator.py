"""Thresholds and the catalog of the partial multi-label methods."""

from __future__ import annotations

import inspect
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.paper import baselines
from ccmn.paper.baselines import BASELINES, FPML, PARTICLE, PMLLRS, PMLNI, PartialLabelClassifier
from ccmn.paper.baselines.pml_estimator import ThresholdPredictor, best_thresholds
from helpers import run_bare
from paper.baselines import reference


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_best_thresholds_match_exhaustive_search(seed, q):
    rng = np.random.default_rng(seed)
    scores, Y = rng.integers(0, 6, (5, q)) / 4, rng.integers(0, 2, (5, q))
    for row, y, found in zip(scores, Y, best_thresholds(scores, Y)):
        s = sorted(row)
        thresholds = [s[0] - 0.1, *((a + b) / 2 for a, b in pairwise(s)), s[-1] + 0.1]
        errors = [sum((f >= t) != (label == 1) for f, label in zip(row, y)) for t in thresholds]
        assert found == thresholds[errors.index(min(errors))]


def test_threshold_predictor_has_minimum_norm_for_low_rank_scores():
    scores = np.repeat(np.arange(10.0)[:, None], 3, axis=1)
    predictor = ThresholdPredictor.fit(scores, np.ones((10, 3)))
    assert np.allclose(predictor.weights, predictor.weights[0])
    assert np.allclose(predictor.predict(scores)[:, 0], scores[:, 0] - 0.1)


def test_catalog_names_are_those_of_the_table():
    assert list(BASELINES) == ["PMLNI", "PARVLS", "PARMAP", "PMLLRS", "fPML", "ridge", "logistic"]
    assert BASELINES["PARMAP"].make(k=3).get_params()["k"] == 3
    assert (BASELINES["PARMAP"].make().variant, BASELINES["PARVLS"].make().variant) == ("map", "vls")
    with pytest.raises(ValueError, match="'FPML'; did you mean 'fPML'"):
        BASELINES["FPML"]


@pytest.mark.parametrize("name", BASELINES)
def test_settings_and_grids_are_constructor_parameters(name):
    entry = BASELINES[name]
    assert entry.name == name
    assert {*entry.settings, *entry.search_grid} <= set(entry.estimator().get_params())


def test_only_methods_without_published_defaults_have_a_grid():
    assert {name for name, entry in BASELINES.items() if entry.search_grid} == {"PMLLRS", "fPML"}
    assert max(BASELINES["PMLLRS"].search_grid["beta"]) < 1


def test_every_estimator_is_in_the_catalog():
    found = {c for c in vars(baselines).values() if isinstance(c, type) and issubclass(c, PartialLabelClassifier)}
    assert found - {PartialLabelClassifier} == {entry.estimator for entry in BASELINES.values()}
    assert PARTICLE in found


@pytest.mark.parametrize(
    ("estimator", "parameters"),
    [
        (PMLNI, {"lam": 10, "beta": 0.5, "gamma": 0.5, "max_iter": 500, "solver": "alm", "threshold": "fixed"}),
        (
            PARTICLE,
            {"variant": "vls", "k": 10, "alpha": 0.95, "thr": 0.9, "C": 1.0, "n_folds": 10, "random_state": None},
        ),
        (PMLLRS, {"gamma": 0.01, "beta": 0.1, "eta": 1.0, "fit_intercept": False}),
        (FPML, {"rank": None, "lambda1": 1.0, "lambda2": 1.0, "lambda3": 10.0, "fit_intercept": False}),
    ],
)
def test_positional_parameters_and_defaults(estimator, parameters):
    signature = inspect.signature(estimator).parameters.values()
    positional = {p.name: p.default for p in signature if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert list(positional.items()) == list(parameters.items())


@pytest.mark.parametrize("name", BASELINES)
def test_fit_accepts_keywords(name):
    X, _, S = reference.make_task(n=40)
    clf = BASELINES[name].make()
    assert clf.fit(X=X, y=S) is clf
    assert (clf.decision_function(X) == BASELINES[name].make().fit(X, S).decision_function(X)).all()


def test_baselines_import_only_the_base_libraries():
    code = """
import ccmn.paper.baselines
import sys
assert "ccmn.models" not in sys.modules
print("fine")
"""
    assert run_bare(code) == "fine"
