from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from pandas.testing import assert_frame_equal

from ccmn import ClassConditionalNoise, PartialNoise, find_label_issues
from ccmn.audit import Audit, audit_labels, label_summary
from ccmn.data import make_noisy_multilabel
from ccmn.estimation import NoiseRates


@pytest.fixture(scope="module")
def task():
    noise = ClassConditionalNoise([0.1, 0.2], [0.2, 0.1])
    return make_noisy_multilabel(300, 5, 2, strength=8, noise=noise, random_state=0)


def test_known_rates(task):
    found = audit_labels(task.X, task.Y_noisy, task.noise)
    assert isinstance(found, Audit)
    assert found.noise is task.noise
    assert_frame_equal(found.issues, find_label_issues(task.Y_noisy, found.pred_proba, task.noise))
    assert_frame_equal(found.summary, label_summary(task.Y_noisy, task.noise))
    wrong = (task.Y_noisy != task.Y)[found.issues.row, found.issues.label]
    assert wrong.mean() > 0.7


@pytest.mark.parametrize("noise", ["estimate", "partial", "missing"])
def test_estimated_rates(task, noise):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = audit_labels(task.X, task.Y_noisy, noise, min_p_wrong=0.8)
    assert isinstance(found.noise, NoiseRates)
    assert (found.issues.p_wrong >= 0.8).all()
    if noise != "estimate":
        assert set(found.noise.noise_type) == {noise}
        assert (found.issues.given == (1 if noise == "partial" else 0)).all()


def test_containers_and_seeds(task):
    expected = audit_labels(task.X, task.Y_noisy, PartialNoise(0.2, n_labels=2), random_state=3).issues
    frame = pd.DataFrame(task.X.astype(float))
    found = audit_labels(frame, scipy.sparse.csr_array(task.Y_noisy), PartialNoise(0.2, n_labels=2), random_state=3)
    assert_frame_equal(found.issues, expected)
    sparse = audit_labels(scipy.sparse.csr_array(task.X), task.Y_noisy, task.noise)
    assert sparse.pred_proba.shape == task.Y.shape
    masked = np.where(np.arange(300)[:, None] < 100, np.nan, task.Y_noisy)
    assert (audit_labels(task.X, masked, task.noise, 0).issues.row >= 100).all()


def test_refuses_other_words(task):
    with pytest.raises(ValueError, match="noise must be 'estimate' or 'partial' or 'missing'; got 'none'"):
        audit_labels(task.X, task.Y_noisy, "none")


def test_refuses_features_that_do_not_fit(task):
    with pytest.raises(ValueError, match="X and Y_noisy must have the same rows; got 9 and 300"):
        audit_labels(task.X[:9], task.Y_noisy, task.noise)
    with pytest.raises(ValueError, match="NaN"):
        audit_labels(task.X * np.nan, task.Y_noisy, task.noise)
