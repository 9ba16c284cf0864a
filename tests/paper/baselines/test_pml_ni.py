"""PML-NI: iterates of the authors' code, and the optimum of an independent solver."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from ccmn.paper.baselines import PMLNI
from ccmn.paper.runner import COMPETING_METHODS
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


def test_more_columns_than_rows_and_sparse_features():
    X, _, S = reference.make_task(n=20, d=40)
    X = np.where(np.abs(X) < 0.7, 0, X)
    U, V, _ = reference.ni_alm(X, S, 10, 0.5, 0.3)
    for features in (X, scipy.sparse.csr_array(X)):
        clf = PMLNI(gamma=0.3).fit(features, S)
        assert np.abs(clf.U_ - U).max() < 1e-9
        assert np.abs(clf.V_ - V).max() < 1e-9


def test_range_scaler_is_the_map_of_the_authors():
    """Each feature: (x - min) / (max - min) * 2 - 1 with the training range; NaN, of constant features, becomes 0."""
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(30, 4)), rng.normal(size=(9, 4))
    X[:, 2] = 5.0
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = (X_test - X.min(0)) / (X.max(0) - X.min(0)) * 2 - 1
    expected[:, 2] = 0
    for container in (np.asarray, scipy.sparse.csr_array):
        scaler = COMPETING_METHODS["PMLNI"].make()[0].fit(container(X))
        np.testing.assert_allclose(scaler.transform(container(X_test)), expected)
        np.testing.assert_allclose(np.abs(scaler.transform(container(X))[:, [0, 1, 3]]).max(0), 1)
