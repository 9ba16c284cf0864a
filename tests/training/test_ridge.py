"""Ridge path on debiased targets: all algorithms, dense and sparse features, sample weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from ccmn.losses import HammingLoss
from ccmn.noise import ClassConditionalNoise
from ccmn.training import KeepBest, Objective, Rows, StackedAdam, StackedLinear, ridge, train
from ccmn.training.batches import DenseLabels, Features
from ccmn.training.ridge import l2_path, ridge_path


def problem(n=80, d=6, q=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    Y = (X @ rng.normal(size=(d, q)) > 0.4).astype(float)
    noise = ClassConditionalNoise([0.2, 0.1, 0.0][:q], [0.1, 0.3, 0.2][:q])
    return X, noise.corrupt(Y, random_state=1), noise


@pytest.mark.slow
def test_closed_form_is_the_limit_of_the_loop():
    """Full-batch Adam with a fixed l2 weight converges to the closed form."""
    X, Z, noise = problem()
    path = ridge_path(X, noise.debias(Z), np.array([0.1]))
    net = StackedLinear(6, 3, [[0]], dtype=torch.float64)
    lr = torch.tensor([[0.02]], dtype=torch.float64)
    optimizer = StackedAdam(net.parameters, lr, torch.full_like(lr, 0.1))
    rows = Rows([np.arange(80)], 80, [0])
    objective = Objective.of(HammingLoss("square", noise))
    features, labels = Features(X, dtype=torch.float64), torch.tensor(Z)

    def penalized_loss(network):
        W = network.parameters[0].values
        losses = objective(network.outputs(features.gather(rows.rows)), DenseLabels(labels.double()), rows.rows)
        return losses + 0.05 * W[:, :-1].square().sum((1, 3))

    # The best epoch is used, because Adam with a constant learning rate does not converge exactly.
    train(net, objective, features, labels, rows, optimizer, KeepBest(penalized_loss), epochs=4000)
    W = net.parameters[0].values.detach()[0, :, 0].numpy()
    weights, bias = path.solution(np.zeros(3, int))
    np.testing.assert_allclose(weights, W[:-1], atol=1e-4)
    np.testing.assert_allclose(bias, W[-1], atol=1e-4)


@pytest.mark.parametrize("n", [80, 5], ids=["more rows", "more features"])
@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("largest", [3000, 1], ids=["decomposition", "conjugate gradients"])
def test_all_algorithms_solve_the_normal_equations(n, wrap, largest, monkeypatch):
    monkeypatch.setattr(ridge, "MAX_DECOMPOSITION_SIZE", largest)
    X, Z, noise = problem(n=n)
    weights = np.random.default_rng(2).uniform(0.5, 2, n)
    l2 = np.array([1e-2, 1.0])
    path = ridge_path(wrap(X), noise.debias(Z), l2, weights)
    s, t = weights / weights.sum(), 2 * noise.debias(Z) - 1
    Xc, tc = X - s @ X, t - s @ t
    for i, (lam, scores) in enumerate(zip(path.l2, path.scores(wrap(X)))):
        W, b = path.solution(np.full(3, i))
        np.testing.assert_allclose(scores, X @ W + b, rtol=1e-4, atol=1e-5)
        expected = np.linalg.solve(Xc.T @ (s[:, None] * Xc) + lam / 2 * np.eye(6), Xc.T @ (s[:, None] * tc))
        np.testing.assert_allclose(W, expected, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(b, s @ t - s @ X @ W, rtol=2e-4, atol=2e-5)


def test_sample_weights_count_rows():
    X, Z, noise = problem()
    weights = np.random.default_rng(2).integers(0, 3, 80)
    a = ridge_path(X, noise.debias(Z), np.array([0.1]), weights.astype(float))
    rows = np.repeat(np.arange(80), weights)
    b = ridge_path(X[rows], noise.debias(Z)[rows], np.array([0.1]))
    np.testing.assert_allclose(a.solution(np.zeros(3, int))[0], b.solution(np.zeros(3, int))[0], rtol=1e-9)


def test_path():
    path = l2_path(1e-4, 10.0)
    assert path[0] == pytest.approx(10)
    assert path[-1] == pytest.approx(1e-4)
    assert len(path) == 11
    assert (np.diff(path) < 0).all()
    assert len(l2_path(0.0, 0.0)) == 2


@pytest.mark.parametrize("largest", [3000, 1], ids=["decomposition", "conjugate gradients"])
def test_l2_per_label(largest, monkeypatch):
    monkeypatch.setattr(ridge, "MAX_DECOMPOSITION_SIZE", largest)
    X, Z, noise = problem()
    path = ridge_path(X, noise.debias(Z), np.array([1e-2, 1.0, 10.0]))
    mixed, _ = path.solution(np.array([0, 2, 1]))
    for j, i in enumerate((0, 2, 1)):
        np.testing.assert_allclose(mixed[:, j], path.solution(np.full(3, i))[0][:, j])


@pytest.mark.parametrize("constant", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_nearly_constant_feature_loses_no_digits(constant, spread):
    rng = np.random.default_rng(0)
    sparse = scipy.sparse.random(200, 40, density=0.03, format="csr", random_state=0)
    steady = scipy.sparse.csr_matrix(constant + spread * rng.normal(size=(200, 1)))
    X, p, l2 = scipy.sparse.hstack([sparse, steady], format="csr"), rng.random((200, 2)), l2_path(1e-6, 1.0)
    centered = X.toarray() - X.toarray().mean(0)
    of_sparse, of_centered = ridge_path(X, p, l2), ridge_path(centered, p, l2)
    for number in range(len(l2)):
        found, expected = (path.solution(np.full(2, number))[0] for path in (of_sparse, of_centered))
        np.testing.assert_allclose(centered @ found, centered @ expected, atol=1e-6)


def test_scores_of_equal_rows_with_different_labels():
    """The solutions of the row system are as large as 1 / l2 and almost cancel."""
    rng = np.random.default_rng(0)
    X, p = np.repeat(rng.normal(size=(10, 60)), 2, axis=0), rng.integers(0, 2, (20, 3)).astype(float)
    path = ridge_path(X, p, l2_path(1e-8, 1.0))
    for number, scores in enumerate(path.scores(X[:4])):
        weights, bias = path.solution(np.full(3, number))
        np.testing.assert_allclose(scores, X[:4] @ weights + bias, atol=1e-4)


def test_too_large_features_are_rejected():
    """The squared norm of features of 1e300 overflows."""
    with pytest.raises(ValueError, match="scale the features"):
        l2_path(1e-4, np.inf)
