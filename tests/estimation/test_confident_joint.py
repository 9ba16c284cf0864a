"""Confident joint: counts by hand and cleanlab's array."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.estimation import NoiseRates
from ccmn.estimation.score_estimators import joint_counts, joint_label


def test_counts_by_hand():
    scores = np.array([0.9, 0.8, 0.1, 0.2, 0.7, 0.3, 0.45])
    positive = np.array([True, True, True, False, False, False, False])
    # Thresholds: mean score of the positives .6; mean of 1 - score of the negatives .5875.
    expected = np.array([[2, 1], [1, 2.0]]) * np.array([[4 / 3], [1]])
    np.testing.assert_allclose(joint_counts(scores, positive), expected)


def test_nearly_ideal_scores_recover_rates():
    rng = np.random.default_rng(0)
    y = rng.random(20_000) < 0.4
    positive = rng.random(20_000) < np.where(y, 0.8, 0.1)
    label = joint_label(np.where(y, 0.8, 0.1), positive, "both")
    assert label.pos.value == pytest.approx(0.2, abs=0.02)
    assert label.neg.value == pytest.approx(0.1, abs=0.02)


def test_single_class_is_unidentified():
    for value in (True, False):
        label = joint_label(np.full(5, 0.5), np.full(5, value), "both")
        assert label.notes[0][0] == "unidentified"


def test_from_confident_joint():
    joint = np.array([[[60, 10], [5, 25]], [[80, 0], [10, 10]]])
    rates = NoiseRates.from_confident_joint(joint, label_names=["sea", "sky"])
    np.testing.assert_allclose(rates.rho_pos, [10 / 35, 0])
    np.testing.assert_allclose(rates.rho_neg, [5 / 65, 10 / 90])
    np.testing.assert_allclose(rates.prior, [0.35, 0.1])
    assert rates.n_pos.tolist() == [30, 20]
    assert rates.noise.label_names == ("sea", "sky")
    shares = NoiseRates.from_confident_joint(joint / 100)
    np.testing.assert_allclose(shares.rho_pos, rates.rho_pos)
    assert shares.se_pos[0] > rates.se_pos[0]
    assert NoiseRates.from_dict(rates.to_dict()).noise == rates.noise


def test_from_confident_joint_rejects_invalid_arrays():
    for joint, message in (
        (np.ones((2, 2)), "must have shape \\(labels, 2, 2\\)"),
        (-np.ones((1, 2, 2)), "confident joint must be counts"),
        ([[[1, 0], [1, 0]]], "each true class"),
    ):
        with pytest.raises(ValueError, match=message):
            NoiseRates.from_confident_joint(joint)
