"""Trusted rows as (rows, Y_true) and as an array with NaN for labels that are not verified."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV

from ccmn import CCMNClassifier, ClassConditionalNoise
from ccmn.data import make_noisy_multilabel

NOISE = ClassConditionalNoise([0.2, 0.1, 0.0], [0.1, 0.0, 0.2])
TASK = make_noisy_multilabel(400, 5, 3, strength=6, noise=NOISE, random_state=0)
X, Y, Z = TASK.X, TASK.Y, TASK.Y_noisy
ROWS = np.array([3, 40, 41, 299])


def scores(trusted, noise=NOISE):
    clf = CCMNClassifier(noise, loss="hamming", epochs=10, random_state=0)
    return clf.fit(X, Z, trusted=trusted).decision_function(X)


def verified(labels=Y[ROWS]):
    array = np.full(Y.shape, np.nan)
    array[ROWS] = labels
    return array


@pytest.mark.parametrize("wrap", [np.asarray, pd.DataFrame])
def test_array_form_equals_the_pair(wrap):
    expected = scores((ROWS, Y[ROWS]))
    assert not np.array_equal(expected, scores(None))
    assert np.array_equal(scores(wrap(verified())), expected)


def test_single_labels_can_be_verified():
    labels = Y[ROWS].astype(float)
    labels[:, 1:] = np.nan
    assert np.array_equal(scores(verified(labels)), scores((ROWS, labels)))


def test_array_without_verified_labels():
    assert np.array_equal(scores(np.full(Y.shape, np.nan)), scores(None))


def test_array_with_the_wrong_number_of_rows_is_rejected():
    with pytest.raises(ValueError, match=r"trusted.*400"):
        scores(verified()[:10])
    with pytest.raises(ValueError, match=r"Expected 3 label columns .* got 2"):
        scores(verified()[:, :2])


def test_metadata_routing_slices_the_array():
    trusted = np.where(np.arange(len(Y))[:, None] % 2 == 0, Y, np.nan)
    with sklearn.config_context(enable_metadata_routing=True):
        clf = CCMNClassifier(NOISE, loss="hamming", epochs=10, random_state=0).set_fit_request(trusted=True)
        search = GridSearchCV(clf, {"weight_decay": [1e-4, 1e-2]}, cv=2, scoring="accuracy", error_score="raise")
        search.fit(X, Z, trusted=trusted)
    assert search.best_estimator_.coef_.shape == (3, 5)
