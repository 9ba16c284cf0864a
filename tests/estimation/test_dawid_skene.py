"""Dawid-Skene model: recovery of truth and annotator rates from an enumerated population."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ccmn.estimation import estimate_noise, mean_votes
from ccmn.estimation.dawid_skene import fit_dawid_skene, votes_label
from ccmn.estimation.noise_rates import UNKNOWN_RATE, ZERO_RATE

TPR, FPR, PRIOR = np.array([0.9, 0.8, 0.7, 0.85]), np.array([0.1, 0.05, 0.2, 0.3]), 0.3


def population(size):
    """Return every combination of votes as often as the model expects it among ``size`` rows."""
    votes = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    chance = PRIOR * np.prod(np.where(votes == 1, TPR, 1 - TPR), 1)
    chance += (1 - PRIOR) * np.prod(np.where(votes == 1, FPR, 1 - FPR), 1)
    return np.repeat(votes, np.round(size * chance).astype(int), 0)


def test_exact_population_is_recovered():
    model = fit_dawid_skene(population(100_000))
    np.testing.assert_allclose(model.true_positive_rate, TPR, atol=5e-3)
    np.testing.assert_allclose(model.false_positive_rate, FPR, atol=5e-3)
    assert model.prior == pytest.approx(PRIOR, abs=5e-3)


def test_rates_of_one_annotator_and_of_mean_votes():
    votes = population(100_000)
    one = votes_label(votes, votes[:, 2], "both")
    assert one.pos.value == pytest.approx(1 - TPR[2], abs=5e-3)
    assert one.neg.value == pytest.approx(FPR[2], abs=5e-3)
    mean = votes_label(votes, votes.mean(1), "both")
    assert mean.pos.value == pytest.approx(1 - TPR.mean(), abs=5e-3)
    assert mean.neg.value == pytest.approx(FPR.mean(), abs=5e-3)


def test_missing_votes_are_ignored():
    rng = np.random.default_rng(0)
    y = rng.random(4000) < PRIOR
    votes = (rng.random((4000, 4)) < np.where(y[:, None], TPR, FPR)).astype(float)
    votes[rng.random(votes.shape) < 0.3] = np.nan
    votes[:5] = np.nan
    rates = estimate_noise(annotators=votes[:, :, None])
    assert rates.method == ("crowd",)
    assert rates.rho_pos[0] == pytest.approx(1 - TPR.mean(), abs=0.03)
    assert rates.rho_neg[0] == pytest.approx(FPR.mean(), abs=0.03)
    assert rates.prior[0] == pytest.approx(PRIOR, abs=0.03)
    assert rates.n_pos[0] + rates.n_neg[0] == (~np.isnan(votes)).any(1).sum()
    assert np.isnan(mean_votes(votes[:, :, None])[:5]).all()


def test_noise_type_few_votes_and_no_votes():
    votes = population(1000)
    assert votes_label(votes, votes[:, 0], "partial").pos == ZERO_RATE
    assert votes_label(votes, votes[:, 0], "missing").neg == ZERO_RATE
    few = votes_label(votes[:, :2], votes[:, 0], "both")
    assert [code for code, _ in few.notes] == ["few_votes"]
    none = votes_label(np.full((10, 3), np.nan), np.ones(10), "both")
    assert none.pos == none.neg == UNKNOWN_RATE
