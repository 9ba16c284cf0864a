"""What the models look at: scales, wide and sparse features, other labels, nothing that gives a label away."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from ccmn.estimation.out_of_fold import (
    heads,
    kernel_features,
    label_features,
    narrow,
    rescale,
    squared_distances,
    standardise,
)

RNG = np.random.default_rng(0)


def test_scales():
    X = RNG.normal(3, [1, 10, 0.1], size=(50, 3))
    assert np.allclose(standardise(X).mean(0), 0)
    assert np.allclose(standardise(X).std(0), 1)
    assert np.isclose(np.square(rescale(X)).mean(), 1)
    constant = np.full((50, 2), 0.1)
    assert not standardise(constant).any()
    assert not rescale(np.ones((5, 2))).any()


def test_wide_features_are_narrowed_whatever_holds_them():
    X = (RNG.random((60, 1000)) < 0.05).astype(float)
    for features in (X, scipy.sparse.csr_array(X)):
        found = narrow(features, 0)
        assert found.shape == (60, 59)
        assert np.allclose(found.mean(0), 0)
    few = narrow(scipy.sparse.csr_array(X[:, :5]), 0)
    np.testing.assert_allclose(few, standardise(X[:, :5]))


def test_kernel_features_reproduce_the_kernel_of_the_landmarks():
    X = RNG.normal(size=(40, 3))
    F = kernel_features(X, 0)
    apart = squared_distances(X, X)
    K = np.exp(-apart / np.median(apart[np.triu_indices(40, 1)]))
    K = K - K.mean(0) - K.mean(1)[:, None] + K.mean()
    # Every row is a landmark here: the features' products are the centred kernel, up to one factor.
    np.testing.assert_allclose(F @ F.T / (F @ F.T).max(), K / K.max(), atol=1e-3)
    assert [head.shape[0] for head in heads(X, 0)] == [40, 40]


def test_distances_by_a_double_loop():
    A, B = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3))
    expected = [[sum((a - b) ** 2) for b in B] for a in A]
    np.testing.assert_allclose(squared_distances(A, B), expected, atol=1e-12)


def test_other_labels_and_their_places():
    Y = np.array([[1, 0, 0, 1], [0, 0, 1, np.nan], [1, 0, 1, 0], [0, 0, 0, 1.0]])
    features, place = label_features(Y)
    assert place.tolist() == [0, -1, 1, 2]
    assert features.shape == (4, 3)
    assert features[1, 2] == 0
    np.testing.assert_allclose(features[:, 0], [1, -1, 1, -1])


def test_classes_do_not_give_each_other_away():
    features, place = label_features(np.eye(3)[RNG.integers(3, size=20)])
    assert features.shape == (20, 0)
    assert (place == -1).all()
    assert label_features(np.ones((5, 1)))[0].shape == (5, 0)
