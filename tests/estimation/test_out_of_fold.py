"""Out-of-fold scores, and the features of the models: folds, accuracy, sparse input, scaling."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import out_of_fold
from ccmn.estimation.out_of_fold import (
    feature_maps,
    kernel_features,
    label_features,
    number_of_folds,
    out_of_fold_scores,
    reduce_features,
    rescale,
    scale_features,
    squared_distances,
    standardize,
    stratified_folds,
    training_rows,
)
from ccmn.noise import ClassConditionalNoise

NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.2])


@pytest.fixture(scope="module")
def task():
    return make_noisy_multilabel(1500, 6, 3, noise=NOISE, random_state=0)


def test_folds_are_a_stratified_partition():
    rng = np.random.default_rng(0)
    Y = (rng.random((503, 6)) < [0.5, 0.3, 0.1, 0.05, 0.02, 0.01]).astype(float)
    folds = stratified_folds(Y, 5, rng)
    assert sorted(np.concatenate(folds)) == list(range(503))
    assert {len(fold) for fold in folds} == {100, 101}
    shares = np.array([Y[fold].sum(0) for fold in folds])
    rarest = Y.sum(0).argmin()
    assert np.ptp(shares[:, rarest]) <= 1
    for k, rows in enumerate(training_rows(folds, range(5), rng)):
        assert len(rows) == 402
        assert not np.isin(rows, folds[k]).any()


def test_number_of_folds():
    assert number_of_folds(np.tile([[0.0], [1.0]], (200, 1))) == 5
    assert number_of_folds(np.tile([[0.0], [1.0]], (50, 1))) == 3
    assert number_of_folds(np.zeros((2, 4))) == 2


def test_scores_approximate_the_noisy_posterior(task):
    scores = out_of_fold_scores(task.X, task.Y_noisy.astype(float), 0)
    noisy = NOISE.rho_neg + (1 - NOISE.rho_pos - NOISE.rho_neg) * task.posterior
    assert scores.shape == (1500, 3)
    assert np.abs(scores - noisy).mean() < 0.08
    for j in range(3):
        assert scipy.stats.spearmanr(scores[:, j], noisy[:, j]).statistic > 0.95


def test_scores_do_not_depend_on_the_scored_row():
    # Random labels cannot be predicted; a model trained on the row would reproduce them with this many features.
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 150)), (rng.random((200, 2)) < 0.5).astype(float)
    scores = out_of_fold_scores(X, Y, 0)
    assert ((scores > 0.5) == Y).mean() < 0.6


def test_random_state(task):
    Y = task.Y_noisy[:300].astype(float)
    first = out_of_fold_scores(task.X[:300], Y, 1)
    np.testing.assert_array_equal(out_of_fold_scores(task.X[:300], Y, 1), first)
    assert (out_of_fold_scores(task.X[:300], Y, 2) != first).any()


def test_scores_are_invariant_to_feature_scale(task):
    Y = task.Y_noisy[:600].astype(float)
    X = task.X[:600].astype(float)
    expected = out_of_fold_scores(X, Y, 0)
    np.testing.assert_allclose(out_of_fold_scores(X * 1e5 + 1e7, Y, 0), expected, atol=1e-3)
    constant = np.column_stack([X, np.full(600, 0.1)])
    assert np.isfinite(out_of_fold_scores(constant, Y, 0)).all()


def test_unobserved_labels_are_ignored(task):
    Y = task.Y_noisy.astype(float)
    Y[::3, 0] = np.nan
    Y[:, 2] = np.nan
    scores = out_of_fold_scores(task.X, Y, 0)
    assert np.isfinite(scores).all()
    noisy = NOISE.rho_neg + (1 - NOISE.rho_pos - NOISE.rho_neg) * task.posterior
    assert scipy.stats.spearmanr(scores[:, 0], noisy[:, 0]).statistic > 0.9


@pytest.mark.parametrize("d", [300, 5000])
def test_sparse_features(d, monkeypatch):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(400, d, density=20 / d, format="csr", random_state=0, dtype=np.float64)
    Y = (X @ rng.standard_normal((d, 2)) > 0).astype(float)
    monkeypatch.setattr(scipy.sparse.csr_array, "todense", None)
    scores = out_of_fold_scores(X, Y, 0)
    assert scores.shape == (400, 2)
    assert ((scores > 0.5) == Y).mean() > 0.55


def test_scaled_csr_shares_index_arrays():
    X = scipy.sparse.csr_array(np.array([[0, 3.0], [4.0, 0]]))
    scaled = scale_features(X)
    assert np.shares_memory(scaled.indices, X.indices)
    assert np.square(scaled.data).mean() == pytest.approx(1)
    assert X.data.tolist() == [3, 4]
    assert scale_features(scipy.sparse.csr_array((3, 2))).nnz == 0


def test_sequential_folds_approximate_parallel_folds(task, monkeypatch):
    Y = task.Y_noisy[:300].astype(float)
    parallel = out_of_fold_scores(task.X[:300], Y, 0)
    monkeypatch.setattr(out_of_fold, "MAX_DENSE_FEATURES", 2)
    assert np.abs(out_of_fold_scores(task.X[:300], Y, 0) - parallel).max() < 0.1


def test_tiny_data():
    for n in (1, 2, 3, 7):
        scores = out_of_fold_scores(np.arange(2.0 * n).reshape(n, 2), np.eye(n)[:, :2] if n > 1 else np.ones((1, 1)), 0)
        assert len(scores) == n
        assert np.isfinite(scores).all()


def test_keyboard_interrupt_is_raised(task, monkeypatch):
    class Interrupted:
        interrupted = True

    monkeypatch.setattr(out_of_fold, "train", lambda *args, **kwargs: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        out_of_fold_scores(task.X, task.Y_noisy.astype(float), 0)


RNG = np.random.default_rng(0)


def test_scaling_of_features():
    X = RNG.normal(3, [1, 10, 0.1], size=(50, 3))
    assert np.allclose(standardize(X).mean(0), 0)
    assert np.allclose(standardize(X).std(0), 1)
    assert np.isclose(np.square(rescale(X)).mean(), 1)
    constant = np.full((50, 2), 0.1)
    assert not standardize(constant).any()
    assert not rescale(np.ones((5, 2))).any()


def test_wide_features_are_reduced_in_any_container():
    X = (RNG.random((60, 1000)) < 0.05).astype(float)
    for features in (X, scipy.sparse.csr_array(X)):
        found = reduce_features(features, 0)
        assert found.shape == (60, 59)
        assert np.allclose(found.mean(0), 0)
    few = reduce_features(scipy.sparse.csr_array(X[:, :5]), 0)
    np.testing.assert_allclose(few, standardize(X[:, :5]))


def test_kernel_features_reproduce_the_kernel():
    X = RNG.normal(size=(40, 3))
    F = kernel_features(X, 0)
    distances = squared_distances(X, X)
    K = np.exp(-distances / np.median(distances[np.triu_indices(40, 1)]))
    K = K - K.mean(0) - K.mean(1)[:, None] + K.mean()
    # Every row is a landmark here, so the inner products of the features are the centered kernel up to a factor.
    np.testing.assert_allclose(F @ F.T / (F @ F.T).max(), K / K.max(), atol=1e-3)
    assert [features.shape[0] for features in feature_maps(X, 0)] == [40, 40]


def test_distances_equal_double_loop():
    A, B = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3))
    expected = [[sum((a - b) ** 2) for b in B] for a in A]
    np.testing.assert_allclose(squared_distances(A, B), expected, atol=1e-12)


def test_other_labels_as_features():
    Y = np.array([[1, 0, 0, 1], [0, 0, 1, np.nan], [1, 0, 1, 0], [0, 0, 0, 1.0]])
    features, column = label_features(Y)
    assert column.tolist() == [0, -1, 1, 2]
    assert features.shape == (4, 3)
    assert features[1, 2] == 0
    np.testing.assert_allclose(features[:, 0], [1, -1, 1, -1])


def test_exclusive_classes_are_not_used_as_features():
    features, column = label_features(np.eye(3)[RNG.integers(3, size=20)])
    assert features.shape == (20, 0)
    assert (column == -1).all()
    assert label_features(np.ones((5, 1)))[0].shape == (5, 0)
