"""PML-LRS: equivalence to Huber regression for gamma=0, optimality conditions, and limits of the penalties."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from ccmn.paper.baselines import PMLLRS
from paper.baselines import reference


@pytest.fixture(scope="module")
def task():
    X, _, S = reference.make_task(n=50)
    return X, S.astype(float)


def fitted(X, Y, *penalties):
    return PMLLRS(*penalties, tol=1e-11, max_iter=50_000).fit(X, Y)


@pytest.mark.parametrize(("beta", "eta"), [(0.1, 1.0), (0.3, 0.5), (0.05, 0.1)])
def test_gamma_zero_is_huber_regression(task, beta, eta):
    X, Y = task
    clf = fitted(X, Y, 0.0, beta, eta)
    W, value = reference.huber_trace(X, Y, beta, eta)
    assert reference.lrs_objective(X, clf.U_, clf.V_, clf.W_, 0.0, beta, eta) == pytest.approx(value, rel=1e-8)
    assert pytest.approx(W, abs=1e-7) == clf.W_


@pytest.mark.parametrize("weights", [(0.01, 0.1, 1.0), (0.3, 0.2, 0.5), (0.0, 0.1, 1.0)])
def test_optimality_conditions(task, weights):
    X, Y = task
    gamma, beta, eta = weights
    clf = fitted(X, Y, *weights)
    residual = clf.U_ - X @ clf.W_
    assert clf.W_.any()
    assert np.linalg.norm(X.T @ residual, 2) == pytest.approx(eta, rel=1e-6)
    assert np.abs(residual).max() <= beta + gamma + 1e-8
    if gamma == 0:
        assert np.abs(residual).max() == pytest.approx(beta, abs=1e-8)
    assert pytest.approx(clf.U_ + clf.V_) == Y


def test_intercept_is_the_weight_of_a_column_of_ones(task):
    X, Y = task
    clf, expected = PMLLRS(fit_intercept=True).fit(X, Y), PMLLRS().fit(np.hstack([X, np.ones((50, 1))]), Y)
    assert pytest.approx(expected.W_) == np.vstack([clf.W_, clf.intercept_])


def test_convergence_warning(task):
    with pytest.warns(ConvergenceWarning, match="tol=1e-06 in max_iter=3 iterations"):
        PMLLRS(max_iter=3).fit(*task)
