"""PML-LRS: equivalence to Huber regression for gamma=0, optimality conditions, and limits of the penalties."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from ccmn.paper.baselines import PMLLRS
from ccmn.paper.baselines.pml_lrs import solve_pml_lrs
from paper.baselines import reference

EXACT = {"tol": 1e-11, "max_iter": 50000}


@pytest.fixture(scope="module")
def task():
    X, _, S = reference.make_task(n=50)
    return X, S.astype(float)


@pytest.mark.parametrize(("beta", "eta"), [(0.1, 1.0), (0.3, 0.5), (0.05, 0.1)])
def test_gamma_zero_is_huber_regression(task, beta, eta):
    X, Y = task
    found = solve_pml_lrs(X, Y, 0.0, beta, eta, **EXACT)
    W, value = reference.huber_trace(X, Y, beta, eta)
    assert reference.lrs_objective(X, found.U, found.V, found.W, 0.0, beta, eta) == pytest.approx(value, rel=1e-8)
    assert pytest.approx(W, abs=1e-7) == found.W


@pytest.mark.parametrize("weights", [(0.01, 0.1, 1.0), (0.3, 0.2, 0.5), (0.0, 0.1, 1.0)])
def test_optimality_conditions(task, weights):
    X, Y = task
    gamma, beta, eta = weights
    found = solve_pml_lrs(X, Y, *weights, **EXACT)
    residual = found.U - X @ found.W
    assert found.W.any()
    assert np.linalg.norm(X.T @ residual, 2) == pytest.approx(eta, rel=1e-6)
    assert np.abs(residual).max() <= beta + gamma + 1e-8
    if gamma == 0:
        assert np.abs(residual).max() == pytest.approx(beta, abs=1e-8)
    assert pytest.approx(found.U + found.V) == Y


@pytest.mark.parametrize("mu", [0.2, 5.0])
def test_optimum_does_not_depend_on_the_solver_penalty(task, mu):
    X, Y = task
    weights = 0.1, 0.2, 0.5
    one, other = solve_pml_lrs(X, Y, *weights, **EXACT), solve_pml_lrs(X, Y, *weights, mu=mu, **EXACT)
    values = [reference.lrs_objective(X, f.U, f.V, f.W, *weights) for f in (one, other)]
    assert values[0] == pytest.approx(values[1], rel=1e-8)
    assert pytest.approx(other.W, abs=1e-8) == one.W


def test_convergence_warning(task):
    with pytest.warns(ConvergenceWarning, match="tol=1e-06 in max_iter=3 iterations"):
        PMLLRS(max_iter=3).fit(*task)
