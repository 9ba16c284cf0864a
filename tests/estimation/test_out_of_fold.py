"""Folds, reduced features and kernel features."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from ccmn.estimation.out_of_fold import (
    feature_maps,
    kernel_features,
    reduce_features,
    rescale,
    squared_distances,
    standardize,
    stratified_folds,
)

RNG = np.random.default_rng(0)


def test_folds_are_a_stratified_partition():
    rng = np.random.default_rng(0)
    Y = (rng.random((503, 6)) < [0.5, 0.3, 0.1, 0.05, 0.02, 0.01]).astype(float)
    folds = stratified_folds(Y, 5, rng)
    assert sorted(np.concatenate(folds)) == list(range(503))
    assert {len(fold) for fold in folds} == {100, 101}
    shares = np.array([Y[fold].sum(0) for fold in folds])
    rarest = Y.sum(0).argmin()
    assert np.ptp(shares[:, rarest]) <= 1


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
