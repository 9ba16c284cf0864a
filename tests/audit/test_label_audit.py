import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from scipy.special import expit

from ccmn import find_label_issues
from ccmn.audit import audit_labels
from ccmn.data import make_noisy_multilabel
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise


@pytest.fixture(scope="module")
def task():
    noise = ClassConditionalNoise([0.1, 0.2], [0.2, 0.1])
    return make_noisy_multilabel(300, 5, 2, strength=8, noise=noise, random_state=0)


def test_audit_declares_nothing_by_default(task):
    found = audit_labels(task.X, task.Y_noisy)
    assert found.noise is None
    assert found.summary is None
    assert_frame_equal(found.issues, find_label_issues(task.Y_noisy, found.pred_proba))
    table = found._repr_html_()
    assert "would also exist if all labels were right" in table
    assert "p_wrong" not in table
    assert "suspicion<" not in table


def test_summary_is_the_sum_of_the_error_probabilities(task):
    masked = pd.DataFrame(np.where(np.arange(300)[:, None] < 100, np.nan, task.Y_noisy), columns=["sea", "sky"])
    found = audit_labels(task.X, masked, task.noise, min_p_wrong=0)
    assert found.noise is task.noise
    assert "p_wrong" in found._repr_html_()
    assert found.summary.label.tolist() == ["sea", "sky"]
    assert found.summary.observed.tolist() == [200, 200]
    assert found.summary.given.tolist() == masked.sum().tolist()
    for line in found.summary.itertuples():
        own = found.issues[found.issues.label == line.label]
        assert line.false == pytest.approx(own[own.given == 1].p_wrong.sum())
        assert line.missing == pytest.approx(own[own.given == 0].p_wrong.sum())
    assert_frame_equal(found.summary, audit_labels(task.X, masked, task.noise).summary)
    flips = (task.Y_noisy != task.Y)[100:].sum()
    assert abs(found.summary[["false", "missing"]].to_numpy().sum() - flips) < 0.4 * flips


@pytest.mark.parametrize("noise", ["both", "partial", "missing"])
def test_audit_with_declared_noise(task, noise):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = audit_labels(task.X, task.Y_noisy, noise, min_p_wrong=0.3)
    assert isinstance(found.noise, NoiseRates)
    assert (found.issues.p_wrong >= 0.3).all()
    if noise != "both":
        assert set(found.noise.noise_type) == {noise}
        assert (found.issues.given == (1 if noise == "partial" else 0)).all()


def test_audit_with_trusted_rows(task):
    trusted = (np.arange(80), task.Y[:80])
    found = audit_labels(task.X, task.Y_noisy, trusted=trusted, min_p_wrong=0)
    expected = find_label_issues(task.Y_noisy, found.pred_proba, None, trusted, min_p_wrong=0)
    assert_frame_equal(found.issues, expected)
    assert found.summary is not None
    verified = found.issues[found.issues.row < 80]
    assert_allclose(verified.p_wrong, (task.Y_noisy != task.Y)[verified.row, verified.label])


def gated_and_nested(rng):
    """Return correct labels: children occur only if a gate holds, and the parent label holds if any child does."""
    X, V = rng.normal(size=(600, 20)), rng.normal(size=(20, 5)) / np.sqrt(20)
    gate = rng.random(600) < expit(1.2 * X[:, 0] - 1)
    children = gate[:, None] & (rng.random((600, 5)) < expit(0.7 * X @ V))
    return X, np.column_stack([children.any(1), children]).astype(float)


def independent(rng):
    X = rng.normal(size=(600, 20))
    return X, (rng.random((600, 6)) < expit(2 * X[:, :6] - 1)).astype(float)


def rows_without_labels(rng):
    X, Y = independent(rng)
    return X, Y * (rng.random((600, 1)) < 0.7)


def weak_features(rng):
    X = rng.normal(size=(300, 20))
    return X, (rng.random((300, 6)) < expit(0.3 * X[:, :6] - 1.5)).astype(float)


@pytest.mark.parametrize("make", [independent, gated_and_nested, rows_without_labels, weak_features])
def test_correct_labels_are_not_accused(make):
    X, Y = make(np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        declared = audit_labels(X, Y, "both")
    assert len(declared.issues) <= 0.01 * Y.size
    ranked = audit_labels(X, Y, pred_proba=declared.pred_proba)
    assert len(ranked.issues) == Y.size
    assert ranked.issues.p_wrong.isna().all()
    assert ranked.summary is None


def test_invalid_arguments(task):
    with pytest.raises(ValueError, match="noise must be"):
        audit_labels(task.X, task.Y_noisy, "none")
    with pytest.raises(ValueError, match="got 9 and 300"):
        audit_labels(task.X[:9], task.Y_noisy, task.noise)
    with pytest.raises(ValueError, match="features X or probabilities pred_proba"):
        audit_labels(None, task.Y_noisy)
