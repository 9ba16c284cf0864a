"""Estimators of the benchmarks: exact where their assumptions hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.data import make_noisy_multilabel
from ccmn.estimation.evidence import Evidence
from ccmn.noise import ClassConditionalNoise
from helpers import load_script

rate_estimators = load_script("benchmarks/rate_estimators.py")


def population(rho_pos, rho_neg, prior=0.4, m1=0.8, m0=0.3, size=10_000):
    """Return rows (true, noisy, other) as often as expected; the other label depends on the true one only."""
    rows = []
    for y, z, o in itertools.product((0, 1), repeat=3):
        chance = prior if y else 1 - prior
        chance *= (1 - rho_pos if z else rho_pos) if y else (rho_neg if z else 1 - rho_neg)
        m = m1 if y else m0
        rows += [(y, z, o)] * round(size * chance * (m if o else 1 - m))
    return np.array(rows, dtype=float).T


@given(st.sampled_from([0.0, 0.1, 0.25, 0.4]), st.sampled_from([0.0, 0.1, 0.25, 0.4]))
def test_instrument_and_correct_rows_recover_rates(rho_pos, rho_neg):
    true, noisy, other = population(rho_pos, rho_neg)
    right = true == noisy
    found = rate_estimators.instrument_rates(noisy, other, right & (noisy == 1), right & (noisy == 0))
    assert found == pytest.approx((rho_pos, rho_neg), abs=1e-3)


def test_uninformative_instruments_are_ignored():
    true, noisy, other = population(0.2, 0.1)
    right = true == noisy
    assert (
        rate_estimators.instrument_rates(noisy, np.zeros_like(other), right & (noisy == 1), right & (noisy == 0))
        is None
    )
    Y = np.stack([noisy, np.zeros_like(other)], 1)
    assert rate_estimators.instrument_label(Y, 0, right, "both") is None
    assert rate_estimators.instrument_label(Y[:40], 0, right[:40], "both") is None


def test_selected_rows_have_small_loss():
    rng = np.random.default_rng(0)
    noisy = (np.arange(400) < 200).astype(float)
    right = rng.random(400) < 0.7
    scores = np.where(right == (noisy == 1), 0.9, 0.1) + rng.normal(0, 0.02, 400)
    assert (rate_estimators.select_rows(scores, noisy, 0) == right).mean() > 0.98


def simulated(strength, n=4000):
    noise = ClassConditionalNoise([0.1, 0.3, 0.2], [0.3, 0.1, 0.2])
    task = make_noisy_multilabel(n, 5, 3, strength=strength, noise=noise, random_state=0)
    evidence = Evidence(Y=task.Y_noisy.astype(float), noise_type=("both",) * 3, X=task.X)
    return noise, evidence, noise.rho_neg + (1 - noise.rho_pos - noise.rho_neg) * task.posterior


@pytest.mark.parametrize(
    ("name", "strength", "bound"),
    [("anchor_max", 20.0, 0.1), ("anchor_quantile", 20.0, 0.1), ("forward", 4.0, 0.06), ("correlations", 4.0, 0.3)],
)
def test_rates_are_recovered(name, strength, bound):
    noise, evidence, scores = simulated(strength)
    labels = getattr(rate_estimators, name)(evidence, scores)
    assert np.abs([label.pos.value for label in labels] - noise.rho_pos).mean() < bound
    assert np.abs([label.neg.value for label in labels] - noise.rho_neg).mean() < bound / 2 + 0.05


@pytest.mark.parametrize("name", ["anchor_max", "anchor_quantile", "forward", "correlations"])
def test_constant_labels_give_finite_rates(name):
    _, evidence, scores = simulated(4.0, n=300)
    evidence.Y[:, 0] = 0
    for label in getattr(rate_estimators, name)(evidence, scores):
        assert np.isfinite([*label.pos, *label.neg]).all()
