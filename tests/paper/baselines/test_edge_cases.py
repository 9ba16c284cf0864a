"""Edge cases of the input: every method returns finite scores, and warnings describe what was done."""

import warnings

import numpy as np
import pandas as pd
import pytest

from ccmn.paper.baselines import BASELINES, PARTICLE, CandidateLogistic, CandidateRidge
from paper.baselines import reference


def edge_cases():
    X, _, S = reference.make_task(n=40)
    empty, one_class, no_candidates = S.copy(), S.copy(), np.zeros_like(S)
    empty[::3] = 0
    one_class[:, 0], one_class[:, 1] = 1, 0
    constant = X.copy()
    constant[:, 2], constant[:, 3] = 7.0, 0.0
    repeated = np.repeat(np.arange(4), 10)
    return {
        "empty candidate sets": (X, empty),
        "no candidates": (X, no_candidates),
        "one-class labels": (X, one_class),
        "constant features": (constant, S),
        "all-zero features": (np.zeros_like(X), S),
        "duplicate rows": (X[repeated], S),
        "fewer rows than k": (X[:6], S[:6]),
        "two rows": (X[:2], S[:2]),
        "one row": (X[:1], S[:1]),
        "one label": (X, S[:, :1]),
        "a missing true label": (X, np.where(np.arange(160).reshape(40, 4) % 7 == 0, 0, S)),
        "more features than rows": (np.tile(X, (1, 12)), S),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", edge_cases())
@pytest.mark.parametrize("name", BASELINES)
def test_finite_scores_and_consistent_predictions(name, case):
    X, S = edge_cases()[case]
    clf = BASELINES[name].make().fit(X, S)
    scores = clf.decision_function(X)
    assert scores.shape == S.shape
    assert np.isfinite(scores).all()
    assert (clf.predict(X) == (scores >= 0)).all()


def messages(clf, X, S):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, S)
    return " | ".join(str(w.message) for w in caught)


def test_warnings_describe_what_was_done():
    cases = edge_cases()
    for clf, case, parts in (
        (PARTICLE(), "empty candidate sets", ["16 of 40 samples have an empty candidate set"]),
        (PARTICLE(), "fewer rows than k", ["n_folds=10 exceeds", "using n_folds=6", "k=10 exceeds", "using k=4"]),
        (PARTICLE(), "one row", ["Too few samples for a neighbor search"]),
        (PARTICLE(), "one-class labels", ["no negative training samples for labels 0, 1 and 3 (of 4)"]),
        (CandidateLogistic(), "one-class labels", ["constant for labels 0 and 1 (of 4)"]),
    ):
        text = messages(clf, *cases[case])
        assert all(part in text for part in parts), text
    for name in ("PMLNI", "PMLLRS", "fPML", "ridge"):
        assert messages(BASELINES[name].make(), *cases["one-class labels"]) == ""


@pytest.mark.parametrize("name", BASELINES)
def test_names_of_labels_are_kept(name):
    X, _, S = reference.make_task(n=40)
    named = BASELINES[name].make().fit(pd.DataFrame(X).add_prefix("x"), pd.DataFrame(S).add_prefix("label "))
    assert named.label_names_[1] == named.classes_[1] == "label 1"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BASELINES)
def test_invalid_input_is_rejected(name):
    X, _, S = reference.make_task(n=40)
    clf = BASELINES[name].make()
    for features, candidates, message in (
        (X, 2 * S - 1, r"candidates must be 0 or 1 for every label; got \[-1, 1\]"),
        (X, np.where(S == 1, np.nan, 0), "contains NaN"),
        (X, S[:, 0], r"candidates must be a matrix of shape \(n, q\).*label_binarize"),
        (X * 1e300, S, r"features must be at most 1e\+150 .*Scale"),  # squares of 1e300 overflow
    ):
        with pytest.raises(ValueError, match=message):
            clf.fit(features, candidates)
    with pytest.raises(ValueError, match=r"features must be at most 1e\+150 .*Scale"):
        clf.fit(X, S).predict(X * 1e300)


def test_candidate_regressions_match_their_definitions():
    X, _, S = reference.make_task()
    Phi = np.hstack([X, np.ones((60, 1))])
    ridge = CandidateRidge(lam=2.0).fit(X, S)
    assert ridge.decision_function(X) == pytest.approx(
        Phi @ np.linalg.solve(Phi.T @ Phi + 2 * np.eye(6), Phi.T @ S) - 0.5
    )
    logistic = CandidateLogistic(C=1e6).fit(X, S)
    p = 1 / (1 + np.exp(-logistic.decision_function(X)))
    # At the maximum of the likelihood the residuals are orthogonal to all features and sum to 0.
    assert np.abs(Phi.T @ (S - p)).max() < 0.05
