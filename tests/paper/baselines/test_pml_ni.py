"""PML-NI: iterates of the authors' code, the optimum of an independent solver, optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler

from ccmn.data import load_dataset
from ccmn.noise import PartialNoise
from ccmn.paper.baselines import PMLNI, CandidateRidge
from ccmn.paper.baselines.pml_estimator import append_ones, best_thresholds
from ccmn.paper.baselines.pml_ni import RangeScaler
from paper.baselines import reference

PENALTIES = [(10, 0.5, 0.5), (1, 5.0, 3.0), (1, 3.0, 1.5), (0.0, 1.0, 0.4), (2.0, 0.5, 2.0)]


def fitted(penalties, X, S):
    return PMLNI(*penalties, max_iter=2000).fit(X, S)


@pytest.mark.parametrize("penalties", PENALTIES)
def test_result_matches_the_authors_program(penalties):
    X, _, S = reference.make_task()
    U, V, iterations = reference.ni_alm(X, S, *penalties, max_iter=2000)
    clf = fitted(penalties, X, S)
    assert clf.n_iter_ == iterations
    assert np.abs(clf.U_ - U).max() < 1e-10
    assert np.abs(clf.V_ - V).max() < 1e-10


@pytest.mark.parametrize("steps", [1, 60, 75, 100])
def test_iterates_match_the_authors_program(steps):
    X, _, S = reference.make_task(seed=1)
    U, V, _ = reference.ni_alm(X, S, 1, 5.0, 3.0, max_iter=steps)
    with pytest.warns(ConvergenceWarning, match=f"max_iter={steps} iterations"):
        clf = PMLNI(1, 5.0, 3.0, max_iter=steps).fit(X, S)
    assert np.abs(clf.U_ - U).max() < 1e-10
    assert np.abs(clf.V_ - V).max() < 1e-10


@pytest.mark.parametrize("penalties", PENALTIES)
def test_optimum_matches_proximal_gradient(penalties):
    X, _, S = reference.make_task()
    expected = reference.ni_objective(X, S, *penalties, *reference.ni_proximal(X, S, *penalties))
    clf = fitted(penalties, X, S)
    assert reference.ni_objective(X, S, *penalties, clf.U_, clf.V_) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("penalties", PENALTIES)
@pytest.mark.parametrize("solver", ["alm", "reference"])
def test_optimality_conditions(penalties, solver):
    X, _, S = reference.make_task(seed=3)
    lam, beta, gamma = penalties
    if solver == "alm":
        clf = fitted(penalties, X, S)
        U, V, tolerance = clf.U_, clf.V_, 1e-3
    else:
        U, V = reference.ni_proximal(X, S, *penalties)
        tolerance = 1e-5
    Phi, W = append_ones(X), U + V
    gradient = (Phi.T @ (Phi @ W.T - S) + lam * W.T).T
    spectral = np.linalg.norm(gradient, 2)
    assert spectral <= beta * (1 + tolerance)
    assert np.abs(gradient).max() <= gamma * (1 + tolerance)
    if U.any():
        assert spectral == pytest.approx(beta, rel=tolerance)
    support = V != 0
    assert gradient[support] == pytest.approx(-gamma * np.sign(V[support]), rel=tolerance)


def test_both_parts_are_nonzero_only_between_the_bounds():
    X, _, S = reference.make_task(seed=3)
    both = fitted((1, 5.0, 3.0), X, S)
    assert both.U_.any()
    assert both.V_.any()
    q, columns = both.U_.shape
    U, _ = reference.ni_proximal(X, S, 1, 0.1 * np.sqrt(q * columns), 0.1)
    assert np.abs(U).max() < 1e-8


@pytest.mark.parametrize("gamma", [0.5, 2.0, np.inf])
def test_noise_part_is_zero_for_gamma_at_least_beta(gamma):
    X, _, S = reference.make_task()
    clf = PMLNI(beta=0.5, gamma=gamma).fit(X, S)
    assert not clf.V_.any()


def test_zero_penalties_are_ridge_regression():
    X, _, S = reference.make_task()
    clf = PMLNI(lam=3.0, beta=0, gamma=0).fit(X, S)
    ridge = CandidateRidge(lam=3.0).fit(X, S)
    W = clf.U_ + clf.V_
    assert pytest.approx(ridge.coef_, abs=1e-7) == W[:, :-1]
    assert pytest.approx(ridge.intercept_, abs=1e-7) == W[:, -1]


def test_published_penalties_are_close_to_ridge():
    X, _, S = reference.make_task(n=500)
    scores = PMLNI().fit(X, S).decision_function(X)
    ridge = CandidateRidge().fit(X, S).decision_function(X)
    assert np.corrcoef(scores.ravel(), ridge.ravel())[0, 1] > 0.995


@pytest.mark.usefixtures("real_data")
def test_published_penalties_are_close_to_ridge_on_yeast():
    data = load_dataset("yeast")
    X = MinMaxScaler((-1, 1)).fit_transform(data.X)
    S = PartialNoise(0.3, n_labels=14).corrupt(np.asarray(data.Y), random_state=0)
    scores, ridge = (clf.fit(X, S).decision_function(X) for clf in (PMLNI(), CandidateRidge()))
    assert np.corrcoef(scores.ravel(), ridge.ravel())[0, 1] > 0.999


def test_weights_are_inversely_proportional_to_large_lambda():
    X, _, S = reference.make_task()
    lam = 1e7
    clf = PMLNI(lam=lam, beta=1e-6, gamma=1e-6).fit(X, S)
    A = S.T @ append_ones(X)
    assert lam * (clf.U_ + clf.V_) == pytest.approx(A, rel=1e-4, abs=1e-4)


def test_solution_is_zero_for_penalties_above_the_dual_norms():
    X, _, S = reference.make_task()
    A = S.T @ append_ones(X)
    penalties = 1, 1.01 * np.linalg.norm(A, 2), 1.01 * np.abs(A).max()
    clf = fitted(penalties, X, S)
    for U, V in ((clf.U_, clf.V_), reference.ni_proximal(X, S, *penalties)):
        assert np.abs(U).max() < 1e-9
        assert np.abs(V).max() < 1e-9


def test_reference_without_acceleration_decreases_monotonically():
    X, _, S = reference.make_task()
    values = []
    for steps in range(1, 80):
        U, V = reference.ni_proximal(X, S, 1.0, 5.0, 3.0, steps, accelerate=False)
        values.append(reference.ni_objective(X, S, 1.0, 5.0, 3.0, U, V))
    assert np.diff(values).max() <= 1e-10


def test_more_columns_than_rows_and_sparse_features():
    X, _, S = reference.make_task(n=20, d=40)
    X = np.where(np.abs(X) < 0.7, 0, X)
    U, V, _ = reference.ni_alm(X, S, 10, 0.5, 0.3)
    for features in (X, scipy.sparse.csr_array(X)):
        clf = PMLNI(gamma=0.3).fit(features, S)
        assert np.abs(clf.U_ - U).max() < 1e-9
        assert np.abs(clf.V_ - V).max() < 1e-9


@given(st.permutations(range(4)), st.permutations(range(5)))
@settings(max_examples=5)
def test_permutations_of_labels_and_features_permute_the_result(labels, features):
    X, _, S = reference.make_task()
    clf, other = PMLNI(1, 5.0, 3.0).fit(X, S), PMLNI(1, 5.0, 3.0).fit(X[:, features], S[:, labels])
    assert pytest.approx(clf.U_[np.ix_(labels, [*features, 5])], abs=1e-9) == other.U_
    assert pytest.approx(clf.decision_function(X)[:, labels], abs=1e-8) == other.decision_function(X[:, features])


def test_fixed_threshold_is_one_half():
    X, _, S = reference.make_task()
    clf = PMLNI().fit(X, S)
    assert clf.decision_function(X) == pytest.approx(append_ones(X) @ clf.U_.T - 0.5)
    assert (clf.predict(X) == (clf.decision_function(X) >= 0)).all()


def test_size_candidate_regresses_the_best_thresholds():
    X, _, S = reference.make_task(q=4, d=6)
    clf = PMLNI(threshold="size_candidate").fit(X, S)
    scores = append_ones(X) @ clf.U_.T
    design = append_ones(scores)
    thresholds = design @ (np.linalg.pinv(design) @ best_thresholds(scores, S))
    assert clf.decision_function(X) == pytest.approx(scores - thresholds[:, None], abs=1e-8)


@pytest.mark.parametrize(
    "options", [{"solver": "proximal"}, {"threshold": "size_true"}, {"threshold": "best"}, {"max_iter": 0}]
)
def test_invalid_parameters_are_rejected(options):
    X, _, S = reference.make_task()
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} must be"):
        PMLNI(**options).fit(X, S)


def test_without_candidates_nothing_is_predicted():
    X, _, S = reference.make_task()
    clf = PMLNI().fit(X, np.zeros_like(S))
    assert not clf.U_.any()
    assert not clf.predict(X).any()


def test_range_scaler_is_the_map_of_the_authors():
    """Each feature: (x - min) / (max - min) * 2 - 1 with the training range; NaN, of constant features, becomes 0."""
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(30, 4)), rng.normal(size=(9, 4))
    X[:, 2] = 5.0
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = (X_test - X.min(0)) / (X.max(0) - X.min(0)) * 2 - 1
    expected[:, 2] = 0
    for container in (np.asarray, scipy.sparse.csr_array):
        scaler = RangeScaler().fit(container(X))
        np.testing.assert_allclose(scaler.transform(container(X_test)), expected)
        np.testing.assert_allclose(np.abs(scaler.transform(container(X))[:, [0, 1, 3]]).max(0), 1)
