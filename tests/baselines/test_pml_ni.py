"""PML-NI: two solvers, one optimum, its optimality conditions; cuts that need what they need."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler

from baselines import reference
from ccmn.baselines import PMLNI, CandidateRidge
from ccmn.baselines.decomposition import with_ones
from ccmn.baselines.ni_solvers import NIProblem, proximal_gradient
from ccmn.baselines.thresholds import best_cuts
from ccmn.data import load_dataset
from ccmn.noise import PartialNoise

PENALTIES = [(10, 0.5, 0.5), (1, 5.0, 3.0), (1, 3.0, 1.5), (0.0, 1.0, 0.4), (2.0, 0.5, 2.0)]


def fitted(penalties, X, S, **options):
    lam, beta, gamma = penalties
    return PMLNI(lam, beta, gamma, max_iter=options.pop("max_iter", 2000), **options).fit(X, S)


def gradient(clf, X, S):
    Phi = with_ones(X)
    W = clf.U_ + clf.V_
    return (Phi.T @ (Phi @ W.T - S) + clf.lam * W.T).T


@pytest.mark.parametrize("penalties", PENALTIES)
def test_follows_the_released_iteration_exactly(penalties):
    X, _, S = reference.make_task()
    U, V, iterations = reference.ni_alm(X, S, *penalties, max_iter=2000)
    clf = fitted(penalties, X, S)
    assert clf.n_iter_ == iterations
    assert np.abs(clf.U_ - U).max() < 1e-10
    assert np.abs(clf.V_ - V).max() < 1e-10


@pytest.mark.parametrize("steps", [1, 60, 75, 100])
def test_follows_it_at_every_step(steps):
    X, _, S = reference.make_task(seed=1)
    U, V, _ = reference.ni_alm(X, S, 1, 5.0, 3.0, max_iter=steps)
    with pytest.warns(ConvergenceWarning, match=f"max_iter={steps} iterations without"):
        clf = PMLNI(1, 5.0, 3.0, max_iter=steps).fit(X, S)
    assert np.abs(clf.U_ - U).max() < 1e-10
    assert np.abs(clf.V_ - V).max() < 1e-10


@pytest.mark.parametrize("penalties", PENALTIES[:3])
def test_an_independent_proximal_gradient_reaches_the_same_optimum(penalties):
    X, _, S = reference.make_task()
    twin = reference.ni_objective(X, S, *penalties, *reference.ni_accelerated(X, S, *penalties))
    for solver in ("alm", "proximal"):
        clf = fitted(penalties, X, S, solver=solver, max_iter=20000)
        value = reference.ni_objective(X, S, *penalties, clf.U_, clf.V_)
        assert value == pytest.approx(twin, rel=1e-8)


@pytest.mark.parametrize("penalties", PENALTIES)
def test_optimality_conditions(penalties):
    X, _, S = reference.make_task(seed=3)
    _, beta, gamma = penalties
    clf = fitted(penalties, X, S, solver="proximal", max_iter=50000)
    G = gradient(clf, X, S)
    spectral = np.linalg.norm(G, 2)
    assert spectral <= beta * (1 + 1e-6)
    assert np.abs(G).max() <= gamma * (1 + 1e-6)
    if clf.U_.any():
        assert spectral == pytest.approx(beta, rel=1e-6)
    support = clf.V_ != 0
    assert G[support] == pytest.approx(-gamma * np.sign(clf.V_[support]), rel=1e-5)


def test_both_parts_are_active_only_between_the_two_bounds():
    X, _, S = reference.make_task(seed=3)
    both = fitted((1, 5.0, 3.0), X, S)
    assert both.U_.any()
    assert both.V_.any()
    q, columns = both.U_.shape
    only_sparse = fitted((1, 0.1 * np.sqrt(q * columns), 0.1), X, S, solver="proximal", max_iter=50000)
    assert np.abs(only_sparse.U_).max() < 1e-8


@pytest.mark.parametrize("gamma", [0.5, 2.0, np.inf])
def test_gamma_not_below_beta_gives_v_zero(gamma):
    X, _, S = reference.make_task()
    clf = PMLNI(beta=0.5, gamma=gamma).fit(X, S)
    assert not clf.V_.any()
    assert not clf.noise_scores(X).any()


def test_no_penalty_is_ridge():
    X, _, S = reference.make_task()
    clf = PMLNI(lam=3.0, beta=0, gamma=0).fit(X, S)
    ridge = CandidateRidge(lam=3.0).fit(X, S)
    W = clf.U_ + clf.V_
    assert pytest.approx(ridge.coef_, abs=1e-7) == W[:, :-1]
    assert pytest.approx(ridge.intercept_, abs=1e-7) == W[:, -1]


def test_published_penalties_are_close_to_ridge():
    """A result far from it would be a mistake: the penalties are weak beside a sum over rows."""
    X, _, S = reference.make_task(n=500)
    scores = PMLNI().fit(X, S).decision_function(X)
    ridge = CandidateRidge().fit(X, S).decision_function(X)
    assert np.corrcoef(scores.ravel(), ridge.ravel())[0, 1] > 0.995


@pytest.mark.skipif(not os.environ.get("CCMN_DATA"), reason="CCMN_DATA names no folder with yeast.npz")
def test_published_penalties_are_close_to_ridge_on_yeast():
    data = load_dataset("yeast")
    X = MinMaxScaler((-1, 1)).fit_transform(data.X)
    S = PartialNoise(0.3, n_labels=14).corrupt(np.asarray(data.Y), random_state=0)
    scores, ridge = (clf.fit(X, S).decision_function(X) for clf in (PMLNI(), CandidateRidge()))
    assert np.corrcoef(scores.ravel(), ridge.ravel())[0, 1] > 0.999


def test_large_lambda_shrinks_like_its_inverse():
    X, _, S = reference.make_task()
    lam = 1e7
    clf = PMLNI(lam=lam, beta=1e-6, gamma=1e-6).fit(X, S)
    A = S.T @ with_ones(X)
    assert lam * (clf.U_ + clf.V_) == pytest.approx(A, rel=1e-4, abs=1e-4)


def test_penalties_above_the_dual_norms_give_nothing():
    X, _, S = reference.make_task()
    A = S.T @ with_ones(X)
    for solver in ("alm", "proximal"):
        clf = PMLNI(1, 1.01 * np.linalg.norm(A, 2), 1.01 * np.abs(A).max(), solver=solver, max_iter=2000).fit(X, S)
        assert np.abs(clf.U_).max() < 1e-9
        assert np.abs(clf.V_).max() < 1e-9


def test_proximal_gradient_without_acceleration_never_rises():
    X, _, S = reference.make_task()
    problem = NIProblem(with_ones(X), S.astype(float), 1.0, 5.0, 3.0)
    values = []
    for steps in range(1, 80):
        found = proximal_gradient(problem, steps, accelerate=False)
        values.append(problem.objective(found.U, found.V))
        assert values[-1] == pytest.approx(reference.ni_objective(X, S, 1.0, 5.0, 3.0, found.U, found.V), rel=1e-10)
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
def test_permutations_of_labels_and_features(labels, features):
    X, _, S = reference.make_task()
    clf, other = PMLNI(1, 5.0, 3.0).fit(X, S), PMLNI(1, 5.0, 3.0).fit(X[:, features], S[:, labels])
    assert pytest.approx(clf.U_[np.ix_(labels, [*features, 5])], abs=1e-9) == other.U_
    assert pytest.approx(clf.decision_function(X)[:, labels], abs=1e-8) == other.decision_function(X[:, features])


def test_fixed_cut_is_one_half():
    X, _, S = reference.make_task()
    clf = PMLNI().fit(X, S)
    assert clf.decision_function(X) == pytest.approx(with_ones(X) @ clf.U_.T - 0.5)
    assert (clf.predict(X) == (clf.decision_function(X) >= 0)).all()


def test_size_predictor_regresses_the_best_cuts():
    X, Y, S = reference.make_task(q=4, d=6)
    for options, more, target in (
        ({"threshold": "size_candidate"}, {}, S),
        ({"threshold": "size_true"}, {"true_labels": Y}, Y),
    ):
        clf = PMLNI(**options).fit(X, S, **more)
        scores = with_ones(X) @ clf.U_.T
        design = with_ones(scores)
        cuts = design @ (np.linalg.pinv(design) @ best_cuts(scores, target))
        assert clf.decision_function(X) == pytest.approx(scores - cuts[:, None], abs=1e-8)


def test_the_released_cut_forgets_its_bias():
    X, Y, S = reference.make_task(q=4, d=6)
    right = PMLNI(threshold="size_true").fit(X, S, true_labels=Y)
    released = PMLNI(threshold="size_true", released_test_cut=True).fit(X, S, true_labels=Y)
    difference = released.decision_function(X) - right.decision_function(X)
    assert difference == pytest.approx(np.full_like(difference, right.size_predictor_.bias))


def test_truth_is_refused_unless_asked_for_and_needed_when_it_is():
    X, Y, S = reference.make_task()
    with pytest.raises(ValueError, match=r"size_true' fits the cut to the true training labels.*true_labels="):
        PMLNI(threshold="size_true").fit(X, S)
    with pytest.raises(ValueError, match="true_labels are not used with threshold='fixed'"):
        PMLNI().fit(X, S, true_labels=Y)
    with pytest.raises(ValueError, match="needs threshold='size_true'"):
        PMLNI(released_test_cut=True).fit(X, S)
    with pytest.raises(ValueError, match=r"true_labels must have the shape of candidates, \(60, 4\)"):
        PMLNI(threshold="size_true").fit(X, S, true_labels=Y[:, :2])


def test_no_candidate_at_all():
    X, _, S = reference.make_task()
    clf = PMLNI().fit(X, np.zeros_like(S))
    assert not clf.U_.any()
    assert not clf.predict(X).any()
