"""Probabilities put right by the noise: within its range, calibrated, in their order."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from ccmn.audit import p_wrong, within_noise
from ccmn.data import make_noisy_multilabel
from ccmn.noise import ClassConditionalNoise
from strategies import SEEDS

RATES = st.floats(0.0, 0.45)


@settings(max_examples=25)
@given(RATES, RATES, SEEDS)
def test_within_the_range_and_in_order(rho_pos, rho_neg, seed):
    rng = np.random.default_rng(seed)
    P = rng.random((80, 1))
    noisy = (rng.random((80, 1)) < P).astype(float)
    noisy[:5] = np.nan
    found = within_noise(noisy, P, np.array([rho_pos]), np.array([rho_neg]))[:, 0]
    assert (found >= rho_neg - 1e-12).all()
    assert (found <= 1 - rho_pos + 1e-12).all()
    assert (np.diff(found[np.argsort(P[:, 0])]) >= -1e-12).all()
    assert (p_wrong(noisy[5:, 0], found[5:], np.array(rho_pos), np.array(rho_neg)) < 1).all()


@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0])
def test_a_model_too_sure_or_too_timid_is_put_right(slope):
    """Log-odds that are off by a factor are near the truth afterwards, whichever the factor."""
    noise = ClassConditionalNoise([0.2], [0.1])
    task = make_noisy_multilabel(8000, 5, 1, strength=6, noise=noise, random_state=0)
    true = noise.rho_neg + 0.7 * task.posterior
    wrong = scipy.special.expit(slope * scipy.special.logit(true))
    found = within_noise(task.Y_noisy.astype(float), wrong, noise.rho_pos, noise.rho_neg)
    assert np.abs(2 * found - np.clip(wrong, 0.1, 0.8) - true).mean() < 0.03


def test_labels_with_few_rows_are_only_kept_in_range():
    P = np.linspace(0, 1, 30)[:, None]
    for noisy in (np.zeros((30, 1)), np.full((30, 1), np.nan), (P > 0.5).astype(float)):
        found = within_noise(noisy, P, np.array([0.2]), np.array([0.1]))
        np.testing.assert_array_equal(found, np.clip(P, 0.1, 0.8))
