"""Scaling of features inside the estimator: reference values."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.preprocessing import StandardScaler

from ccmn.models.training_data import Scaling


def scaled(X, weights=None):
    """Return the features on which a network is trained."""
    return Scaling.of(X, weights).transform(X)


def test_mean_and_standard_deviation_without_tails():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1, 1e4, 1e-6] + [0, -2e4, 5e-6]
    expected = StandardScaler().fit_transform(X) / np.sqrt(3)  # rows have a mean squared norm of about 1
    np.testing.assert_allclose(scaled(X), expected, atol=0.1)
    with_outlier = X.copy()
    with_outlier[0] *= 1e6
    np.testing.assert_allclose(np.diff(scaled(with_outlier)[1:], axis=0), np.diff(expected[1:], axis=0), atol=0.2)


def test_constant_columns_keep_their_unit():
    X = np.column_stack((np.full(50, 7.0), np.arange(50.0), np.zeros(50), np.arange(50) == 3))
    np.testing.assert_allclose(scaled(X)[:, [0, 2]], 0, atol=1e-12)
    # A column that is almost always constant has no spread without its tails.
    assert 0.1 < abs(scaled(X)[3, 3]) < 10


def test_sparse_features_are_not_centered_and_keep_their_relation():
    X = scipy.sparse.random(200, 30, 0.1, format="csr", random_state=0)
    assert scaled(X).nnz == X.nnz
    assert np.ptp(scaled(X)[X.nonzero()] / X[X.nonzero()]) == pytest.approx(0)
    large = X.tolil()
    large[:, 0] = 1e5  # a column in another unit is scaled down
    assert 0.1 < np.sqrt(scaled(large.tocsr()).multiply(scaled(large.tocsr())).sum(1).mean()) < 2
    assert abs(scaled(large.tocsr())[:, [1]]).max() > 1e-3
