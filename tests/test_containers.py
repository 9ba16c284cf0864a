"""Conversion of label containers, and labels of unusual types at the public entry points."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier
from ccmn._containers import to_dense_array, unwrap
from ccmn.audit import find_label_issues
from ccmn.baselines import PMLNI
from ccmn.metrics import hamming_loss

NOISE = ClassConditionalNoise(0.1, 0.1, n_labels=3)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = (X @ RNG.normal(size=(4, 3)) + RNG.normal(size=(60, 3)) > 0).astype(np.float64)


def with_missing(value, *, dataframe=False):
    """Return Y with ``value`` as its first entry."""
    if dataframe:
        frame = pd.DataFrame(Y, columns=["a", "b", "c"]).astype("Int64")
        frame.iloc[0, 0] = value
        return frame
    array = Y.astype(object)
    array[0, 0] = value
    return array


MISSING = {
    "None in an array": with_missing(None),
    "pd.NA in an array": with_missing(pd.NA),
    "pd.NA in a DataFrame": with_missing(pd.NA, dataframe=True),
}


def test_bfloat16_is_converted_and_restored():
    labels = torch.tensor([[0.0, 1.0]], dtype=torch.bfloat16)
    array, rewrap = unwrap(labels)
    assert array.dtype == np.float32
    assert rewrap(array).dtype == torch.bfloat16
    assert rewrap(array.astype(np.float64)).dtype == torch.float64


@pytest.mark.parametrize("labels", MISSING.values(), ids=MISSING)
def test_missing_values_become_nan(labels):
    array = to_dense_array(labels)
    assert array.dtype == np.float64
    assert np.flatnonzero(np.isnan(array)).tolist() == [0]
    assert (array.ravel()[1:] == Y.ravel()[1:]).all()


def test_other_objects_are_not_converted():
    for values in ([["1", None]], [["a", "b"]], [[1, 0]]):
        array = np.array(values, dtype=object)
        assert to_dense_array(array) is array


def test_bfloat16_at_the_entry_points():
    features, labels = torch.tensor(X).bfloat16(), torch.tensor(Y).bfloat16()
    rounded = features.float().numpy()
    noisy = NOISE.corrupt(labels, random_state=0)
    assert noisy.dtype == torch.bfloat16
    assert (noisy.float().numpy() == NOISE.corrupt(Y, random_state=0)).all()
    options = {"epochs": 2, "random_state": 0, "device": "cpu"}
    found = CCMNClassifier(NOISE, **options).fit(features, labels).decision_function(features)
    expected = CCMNClassifier(NOISE, **options).fit(rounded, Y).decision_function(rounded)
    np.testing.assert_allclose(found, expected)
    assert PMLNI().fit(features, labels).predict(features).shape == Y.shape
    assert CorrectedClassifier(LogisticRegression(), NOISE).fit(X, labels).predict(X).shape == Y.shape
    assert float(hamming_loss(labels, labels)) == 0


@pytest.mark.parametrize("labels", MISSING.values(), ids=MISSING)
def test_missing_labels_at_the_entry_points(labels):
    observed = Y.copy()
    observed[0, 0] = np.nan
    np.testing.assert_array_equal(np.asarray(NOISE.debias(labels)), NOISE.debias(observed))
    options = {"epochs": 2, "random_state": 0, "device": "cpu"}
    for clf in (CCMNClassifier(NOISE, **options), CorrectedClassifier(LogisticRegression(), NOISE)):
        found = clf.fit(X, labels).decision_function(X)
        np.testing.assert_allclose(found, clf.fit(X, observed).decision_function(X))
    assert len(find_label_issues(labels, np.full(Y.shape, 0.5), NOISE)) <= Y.size - 1
    with pytest.raises(ValueError, match="contains NaN"):
        hamming_loss(labels, Y)
    with pytest.raises(ValueError, match="contains NaN"):
        PMLNI().fit(X, labels)
