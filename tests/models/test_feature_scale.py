"""Scaling of features inside the estimator: reference values, and a fit without scaling."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.preprocessing import StandardScaler

from ccmn import CCMNClassifier
from ccmn.data import make_noisy_multilabel
from ccmn.metrics import micro_f1
from ccmn.models.training_data import Scaling
from ccmn.noise import ClassConditionalNoise


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


NOISE = ClassConditionalNoise([0.2, 0.1, 0.1], [0.1, 0.2, 0.1])
TASK = make_noisy_multilabel(1000, 5, 3, strength=6, noise=NOISE, random_state=0)
UNITS, CENTERS = np.array([12, 20_000, 0.1, 1, 300]), np.array([40, 50_000, 1.7, 0, 2015])
RAW = pd.DataFrame(TASK.X * UNITS + CENTERS, columns=["age", "income", "height", "score", "year"])
TRAIN, TEST = slice(0, 700), slice(700, 1000)


def test_scaling_can_be_turned_off():
    settings = {"loss": "ranking", "epochs": 3, "random_state": 0}
    raw = CCMNClassifier(NOISE, scale=False, **settings).fit(RAW.iloc[TRAIN], TASK.Y_noisy[TRAIN])
    scaled = CCMNClassifier(NOISE, **settings).fit(RAW.iloc[TRAIN], TASK.Y_noisy[TRAIN])
    f1 = [micro_f1(TASK.Y[TEST], clf.predict(RAW.iloc[TEST])) for clf in (raw, scaled)]
    assert f1[0] < f1[1] - 0.05
