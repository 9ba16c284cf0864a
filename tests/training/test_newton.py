"""Newton path: equal to logistic regression on true labels, and a zero gradient on debiased labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from ccmn.noise import ClassConditionalNoise
from ccmn.training.newton import LogisticPath


def problem(n=120, d=6, q=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(0.3, 3, d) + 0.5
    Y = (X @ rng.normal(size=(d, q)) + rng.normal(size=(n, q)) > 0.4).astype(float)
    return X, Y, rng


def test_clean_labels_give_logistic_regression():
    X, Y, _ = problem()
    path = LogisticPath(X, Y)
    for l2 in (1.0, 0.1, 0.01):
        path.solve(l2, np.arange(3), tolerance=1e-5)
        weights, bias = path.solution()
        for j in range(3):
            twin = LogisticRegression(C=1 / (len(X) * l2), tol=1e-10, max_iter=1000).fit(X, Y[:, j])
            np.testing.assert_allclose(weights[:, j], twin.coef_[0], atol=2e-3)
            np.testing.assert_allclose(bias[j], twin.intercept_[0], atol=2e-3)


@pytest.mark.parametrize(("d", "l2"), [(6, 0.05), (200, 5.0)], ids=["more rows", "more features"])
@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_debiased_targets_and_weights_are_solved_to_a_zero_gradient(d, l2, wrap):
    X, Y, rng = problem(d=d)
    noise = ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.3, 0.2])
    p, share = noise.debias(noise.corrupt(Y, random_state=1)), rng.uniform(0.5, 2, len(X))
    path = LogisticPath(wrap(X), p, share[:, None])
    path.solve(l2, np.arange(3), tolerance=1e-5)
    weights, bias = path.solution()
    residual = (expit(X @ weights + bias) - p) * (share / share.sum())[:, None]
    np.testing.assert_allclose(X.T @ residual + l2 * weights, 0, atol=1e-3)
    np.testing.assert_allclose(residual.sum(0), 0, atol=1e-4)


def test_only_the_given_labels_change():
    X, Y, _ = problem()
    path = LogisticPath(X, Y)
    before = path.weights.copy()
    path.solve(0.1, np.array([2]))
    np.testing.assert_array_equal(path.weights[:, :2], before[:, :2])
    assert (path.weights[:, 2] != 0).any()
    scores = path.scores(path.centered(X), np.array([2]))[:, 0]
    weights, bias = path.solution()
    np.testing.assert_allclose(scores, X @ weights[:, 2] + bias[2], rtol=1e-4, atol=1e-4)


def test_bias_is_bounded_if_the_mean_is_outside_zero_and_one():
    X, Y, _ = problem()
    path = LogisticPath(X, np.column_stack((Y[:, 0] + 1.5, Y[:, 1] - 1.5)))
    path.solve(1.0, np.arange(2))
    most = np.log(2 * len(X))
    np.testing.assert_allclose(path.bias, [most, -most])
    assert np.isfinite(path.weights).all()


def test_constant_features_leave_the_bias():
    _, Y, _ = problem()
    path = LogisticPath(np.ones((len(Y), 2)), Y)
    path.solve(0.1, np.arange(3))
    np.testing.assert_allclose(expit(path.bias), Y.mean(0), atol=1e-3)


def test_missing_and_weighted_labels_equal_fits_to_the_observed_rows():
    X, Y, rng = problem()
    weights = rng.uniform(0.5, 2, Y.shape)
    targets = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)
    path = LogisticPath(X, targets, weights)
    path.solve(0.05, np.arange(3), tolerance=1e-5)
    for j in range(3):
        seen = ~np.isnan(targets[:, j])
        twin = LogisticPath(X[seen], targets[seen, j : j + 1], weights[seen, j : j + 1])
        twin.solve(0.05, np.arange(1), tolerance=1e-5)
        for part, expected in zip(path.solution(), twin.solution()):
            np.testing.assert_allclose(part[..., j], expected[..., 0], atol=1e-3)


def test_a_path_can_start_from_any_solution():
    X, Y, _ = problem()
    first, second = LogisticPath(X, Y), LogisticPath(X, Y)
    first.solve(0.05, np.arange(3), tolerance=1e-5)
    second.start_from(np.full(first.weights.shape, 30.0), np.full(3, -2.0))
    second.solve(0.05, np.arange(3), tolerance=1e-5)
    np.testing.assert_allclose(second.weights, first.weights, atol=1e-3)
