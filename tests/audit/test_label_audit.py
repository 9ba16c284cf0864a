from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

from ccmn import ClassConditionalNoise, MissingNoise, PartialNoise, find_label_issues
from ccmn.audit import (
    Audit,
    audit_labels,
    calibrate_to_noise,
    label_summary,
    out_of_fold_probabilities,
    p_wrong,
)
from ccmn.audit.label_audit import estimate_flips
from ccmn.audit.label_issues import RatesWithUncertainty, rates_with_uncertainty
from ccmn.data import make_noisy_multilabel
from ccmn.estimation import NoiseRates
from strategies import SEEDS

NOISE = ClassConditionalNoise([0.2, 0.1], [0.1, 0.3], label_names=["sea", "sky"])
RATES = st.floats(0.0, 0.45)


@pytest.fixture(scope="module")
def task():
    noise = ClassConditionalNoise([0.1, 0.2], [0.2, 0.1])
    return make_noisy_multilabel(300, 5, 2, strength=8, noise=noise, random_state=0)


def test_audit_with_known_rates(task):
    found = audit_labels(task.X, task.Y_noisy, task.noise)
    assert isinstance(found, Audit)
    assert found.noise is task.noise
    assert_frame_equal(found.issues, find_label_issues(task.Y_noisy, found.pred_proba, task.noise))
    assert_frame_equal(found.summary, label_summary(task.Y_noisy, task.noise))
    wrong = (task.Y_noisy != task.Y)[found.issues.row, found.issues.label]
    assert wrong.mean() > 0.7


@pytest.mark.parametrize("noise", ["both", "partial", "missing"])
def test_audit_with_estimated_rates(task, noise):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = audit_labels(task.X, task.Y_noisy, noise, min_p_wrong=0.8)
    assert isinstance(found.noise, NoiseRates)
    assert (found.issues.p_wrong >= 0.8).all()
    if noise != "both":
        assert set(found.noise.noise_type) == {noise}
        assert (found.issues.given == (1 if noise == "partial" else 0)).all()


def test_audit_with_trusted_rows(task):
    trusted = (np.arange(80), task.Y[:80])
    found = audit_labels(task.X, task.Y_noisy, task.noise, 0, trusted=trusted, diverse=True)
    expected = find_label_issues(task.Y_noisy, found.pred_proba, task.noise, trusted, 0, diverse=True)
    assert_frame_equal(found.issues, expected)
    verified = found.issues[found.issues.row < 80]
    wrong = (task.Y_noisy != task.Y)[verified.row, verified.label]
    assert_allclose(verified.p_wrong, wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        without, with_rows = (audit_labels(task.X, task.Y_noisy, trusted=t).noise for t in (None, trusted))
    assert with_rows.se_neg.mean() < without.se_neg.mean()


def test_out_of_fold_probabilities_predict_held_out_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    Y = (X[:, :2] + 0.3 * rng.normal(size=(300, 2)) > 0).astype(float)
    P = out_of_fold_probabilities(X, Y)
    assert ((P > 0.5) == Y).mean() > 0.85
    assert_allclose(P, out_of_fold_probabilities(X, Y))
    sparse = out_of_fold_probabilities(scipy.sparse.csr_array(np.hstack([X, np.zeros((300, 3))])), Y)
    assert ((sparse > 0.5) == Y).mean() > 0.85


def test_progress_of_out_of_fold_probabilities():
    """Every fold and every tree is reported, and the callback does not change the result."""
    task = make_noisy_multilabel(60, 4, 2, random_state=0)
    reports = []
    found = out_of_fold_probabilities(task.X, task.Y_noisy, on_phase=lambda *report: reports.append(report))
    assert reports[:10] == [("folds", number, 10) for number in range(1, 11)]
    n_trees = reports[-1][2]
    assert reports[10:] == [("trees", number, n_trees) for number in range(1, n_trees + 1)]
    np.testing.assert_array_equal(found, out_of_fold_probabilities(task.X, task.Y_noisy))


def test_out_of_fold_probabilities_do_not_see_their_own_label():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(1000, 100)), rng.integers(0, 2, (1000, 3)).astype(float)
    P = out_of_fold_probabilities(X, Y)
    # Predictions of random labels by a model that has seen them would be correlated with them.
    assert np.corrcoef(P.ravel(), Y.ravel())[0, 1] < 0.1
    assert 0.4 < P.mean() < 0.6


def test_out_of_fold_probabilities_of_unobserved_and_constant_labels():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 3))
    Y = np.stack([X[:, 0] > 0, np.zeros(120), X[:, 1] > 0], 1).astype(float)
    Y[:60, 2] = np.nan
    P = out_of_fold_probabilities(X, Y)
    assert np.isfinite(P).all()
    assert P[:, 1].max() < 0.02
    assert ((P[:60, 2] > 0.5) == (X[:60, 1] > 0)).mean() > 0.8
    assert_allclose(out_of_fold_probabilities(X[:1], Y[:1]), 0.5)


def test_audit_containers_and_random_state(task):
    expected = audit_labels(task.X, task.Y_noisy, PartialNoise(0.2, n_labels=2), random_state=3).issues
    frame = pd.DataFrame(task.X.astype(float))
    found = audit_labels(frame, scipy.sparse.csr_array(task.Y_noisy), PartialNoise(0.2, n_labels=2), random_state=3)
    assert_frame_equal(found.issues, expected)
    sparse = audit_labels(scipy.sparse.csr_array(task.X), task.Y_noisy, task.noise)
    assert sparse.pred_proba.shape == task.Y.shape
    masked = np.where(np.arange(300)[:, None] < 100, np.nan, task.Y_noisy)
    assert (audit_labels(task.X, masked, task.noise, 0).issues.row >= 100).all()


def test_audit_rejects_unknown_noise(task):
    with pytest.raises(ValueError, match="noise must be 'estimate' or 'partial' or 'missing'; got 'none'"):
        audit_labels(task.X, task.Y_noisy, "none")


def test_audit_rejects_invalid_features(task):
    with pytest.raises(ValueError, match="X and Y_noisy must have the same rows; got 9 and 300"):
        audit_labels(task.X[:9], task.Y_noisy, task.noise)
    with pytest.raises(ValueError, match="NaN"):
        audit_labels(task.X * np.nan, task.Y_noisy, task.noise)


@settings(max_examples=25)
@given(RATES, RATES, SEEDS)
def test_calibration_keeps_range_and_order(rho_pos, rho_neg, seed):
    rng = np.random.default_rng(seed)
    P = rng.random((80, 1))
    noisy = (rng.random((80, 1)) < P).astype(float)
    noisy[:5] = np.nan
    found = calibrate_to_noise(noisy, P, np.array([rho_pos]), np.array([rho_neg]))[:, 0]
    assert (found >= rho_neg - 1e-12).all()
    assert (found <= 1 - rho_pos + 1e-12).all()
    assert (np.diff(found[np.argsort(P[:, 0])]) >= -1e-12).all()
    assert (p_wrong(noisy[5:, 0], found[5:], np.array(rho_pos), np.array(rho_neg)) < 1).all()


@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0])
def test_calibration_of_overconfident_and_underconfident_predictions(slope):
    """Log-odds are multiplied by a factor; after calibration they are close to the truth."""
    noise = ClassConditionalNoise([0.2], [0.1])
    task = make_noisy_multilabel(8000, 5, 1, strength=6, noise=noise, random_state=0)
    true = noise.rho_neg + 0.7 * task.posterior
    wrong = scipy.special.expit(slope * scipy.special.logit(true))
    found = calibrate_to_noise(task.Y_noisy.astype(float), wrong, noise.rho_pos, noise.rho_neg)
    assert np.abs(2 * found - np.clip(wrong, 0.1, 0.8) - true).mean() < 0.03


def test_labels_with_few_rows_are_only_clipped():
    P = np.linspace(0, 1, 30)[:, None]
    for noisy in (np.zeros((30, 1)), np.full((30, 1), np.nan), (P > 0.5).astype(float)):
        found = calibrate_to_noise(noisy, P, np.array([0.2]), np.array([0.1]))
        np.testing.assert_array_equal(found, np.clip(P, 0.1, 0.8))


@given(st.integers(15, 40), st.floats(0.4, 0.6), st.floats(0.05, 0.2), st.floats(0.05, 0.2))
def test_flip_counts_are_unbiased_with_correct_variance(n, share, rho_pos, rho_neg):
    """Enumerate all numbers of removed and added labels with their probabilities, without clipping."""
    ones = round(n * share)
    removed, added = np.meshgrid(np.arange(ones + 1), np.arange(n - ones + 1), indexing="ij")
    p = scipy.stats.binom.pmf(removed, ones, rho_pos) * scipy.stats.binom.pmf(added, n - ones, rho_neg)
    r = 1 - rho_pos - rho_neg
    true = (ones - removed + added - rho_neg * n) / r
    for value, number, j in ((rho_neg * (n - true), added, 0), (rho_pos * true, removed, 1)):
        error = value - number
        assert abs((p * error).sum()) < 1e-11
        rates = rates_with_uncertainty(ClassConditionalNoise([rho_pos], [rho_neg]))
        expected_given = ones * (1 - rho_pos) + (n - ones) * rho_neg
        _, se = estimate_flips(np.array([n]), np.array([expected_given]), rates)[j]
        assert_allclose(se**2, (p * error**2).sum(), rtol=1e-9)


@given(st.floats(0.01, 0.4), st.floats(0.01, 0.4), st.integers(0, 1))
def test_flip_counts_with_uncertain_rates_by_delta_method(rho_pos, rho_neg, rate_index):
    n, k, h = np.array([1000.0]), np.array([600.0]), 1e-6

    def flips_at(a, b, se_pos=0.0, se_neg=0.0):
        rates = RatesWithUncertainty(*(np.array([v]) for v in (a, b, se_pos, se_neg)), None)
        return np.array(estimate_flips(n, k, rates))[:, :, 0]

    if not rho_neg + 0.05 < 0.6 < 1 - rho_pos - 0.05:
        return  # true positives are clipped; the estimate is not differentiable there
    step = (h, 0.0) if rate_index == 0 else (0.0, h)
    low, high = (flips_at(rho_pos + sign * step[0], rho_neg + sign * step[1]) for sign in (-1, 1))
    slope = (high - low)[:, 0] / (2 * h)
    uncertain = flips_at(rho_pos, rho_neg, *((0.1, 0.0) if rate_index == 0 else (0.0, 0.1)))[:, 1]
    assert_allclose(uncertain**2 - flips_at(rho_pos, rho_neg)[:, 1] ** 2, (0.1 * slope) ** 2, rtol=1e-4, atol=1e-6)


def test_summary_containers_and_unobserved_labels():
    Y = np.random.default_rng(0).integers(0, 2, (60, 2))
    expected = label_summary(Y, NOISE)
    assert expected.label.tolist() == ["sea", "sky"]
    assert expected.observed.tolist() == [60, 60]
    assert expected.given.tolist() == Y.sum(0).tolist()
    for labels in (Y.tolist(), scipy.sparse.csr_array(Y), pd.DataFrame(Y, columns=["sea", "sky"])):
        assert_frame_equal(label_summary(labels, NOISE), expected)
    masked = np.concatenate([Y.astype(float), np.full((9, 2), np.nan)])
    assert_frame_equal(label_summary(masked, NOISE), expected)
    assert_frame_equal(label_summary(scipy.sparse.csr_array(masked), NOISE), expected)


def test_summary_counts_are_in_range():
    for Y in (np.zeros((30, 2)), np.ones((30, 2)), np.full((30, 2), np.nan)):
        found = label_summary(Y, NOISE)
        for name, most in (("false", found.given), ("missing", found.observed - found.given)):
            low, value, high = found[f"{name}_low"], found[name], found[f"{name}_high"]
            assert ((low >= 0) & (low <= value) & (value <= high) & (high <= most)).all()


def test_summary_with_missing_noise():
    found = label_summary(np.eye(10)[:, :2], MissingNoise(0.2, n_labels=2))
    assert (found[["false", "false_low", "false_high"]] == 0).all(axis=None)
    assert_allclose(found.missing, 0.25)


def test_uncertain_rates_widen_the_interval():
    Y = np.random.default_rng(1).integers(0, 2, (500, 2))
    known = NoiseRates.known(NOISE, Y)
    assert_frame_equal(label_summary(Y, known), label_summary(Y, NOISE))
    uncertain = NoiseRates.from_dict(known.to_dict() | {"se_pos": [0.1, 0.1]})
    wide, narrow = label_summary(Y, uncertain), label_summary(Y, NOISE)
    assert (wide.missing_high - wide.missing_low > narrow.missing_high - narrow.missing_low).all()
    bound = label_summary(Y, NoiseRates.from_dict(known.to_dict() | {"kind": ["upper bound"] * 2}))
    assert (bound.missing < narrow.missing).all()
    assert (bound.missing_low <= 0.05 * narrow.missing).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 0, 1]], NOISE), "must have 2 labels"),
        (([[1, 2]], NOISE), "0 or 1"),
        ((scipy.sparse.csr_array([[1, 2]]), NOISE), "0 or 1"),
        (([[1, 0]], NOISE, 1.0), "level must be between 0 and 1"),
        ((pd.DataFrame([[1, 0]], columns=["sky", "sea"]), NOISE), "reorder the columns"),
    ],
)
def test_summary_rejects_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        label_summary(*arguments)
