"""Several annotators: the truth and their rates from votes alone, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ccmn.estimation import estimate_noise
from ccmn.estimation.dawid_skene import crowd_label, explain_votes
from ccmn.estimation.estimate import mean_votes
from ccmn.estimation.noise_rates import NEVER, UNINFORMED

HITS, ALARMS, PRIOR = np.array([0.9, 0.8, 0.7, 0.85]), np.array([0.1, 0.05, 0.2, 0.3]), 0.3


def population(size):
    """Every combination of votes, as often as the model expects it among ``size`` rows."""
    votes = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    chance = PRIOR * np.prod(np.where(votes == 1, HITS, 1 - HITS), 1)
    chance += (1 - PRIOR) * np.prod(np.where(votes == 1, ALARMS, 1 - ALARMS), 1)
    return np.repeat(votes, np.round(size * chance).astype(int), 0)


def test_an_exact_population_gives_everything_back():
    crowd = explain_votes(population(100_000))
    np.testing.assert_allclose(crowd.hits, HITS, atol=5e-3)
    np.testing.assert_allclose(crowd.alarms, ALARMS, atol=5e-3)
    assert crowd.prior == pytest.approx(PRIOR, abs=5e-3)


def test_the_rates_of_one_annotator_and_of_the_mean_vote():
    votes = population(100_000)
    one = crowd_label(votes, votes[:, 2], "both")
    assert one.pos.value == pytest.approx(1 - HITS[2], abs=5e-3)
    assert one.neg.value == pytest.approx(ALARMS[2], abs=5e-3)
    mean = crowd_label(votes, votes.mean(1), "both")
    assert mean.pos.value == pytest.approx(1 - HITS.mean(), abs=5e-3)
    assert mean.neg.value == pytest.approx(ALARMS.mean(), abs=5e-3)


def test_votes_that_were_not_given_drop_out():
    rng = np.random.default_rng(0)
    y = rng.random(4000) < PRIOR
    votes = (rng.random((4000, 4)) < np.where(y[:, None], HITS, ALARMS)).astype(float)
    votes[rng.random(votes.shape) < 0.3] = np.nan
    votes[:5] = np.nan
    rates = estimate_noise(annotators=votes[:, :, None])
    assert rates.method == ("crowd",)
    assert rates.rho_pos[0] == pytest.approx(1 - HITS.mean(), abs=0.03)
    assert rates.rho_neg[0] == pytest.approx(ALARMS.mean(), abs=0.03)
    assert rates.prior[0] == pytest.approx(PRIOR, abs=0.03)
    assert rates.n_pos[0] + rates.n_neg[0] == (~np.isnan(votes)).any(1).sum()
    assert np.isnan(mean_votes(votes[:, :, None])[:5]).all()


def test_sides_few_votes_and_none():
    votes = population(1000)
    assert crowd_label(votes, votes[:, 0], "partial").pos == NEVER
    assert crowd_label(votes, votes[:, 0], "missing").neg == NEVER
    few = crowd_label(votes[:, :2], votes[:, 0], "both")
    assert [code for code, _ in few.notes] == ["few_votes"]
    none = crowd_label(np.full((10, 3), np.nan), np.ones(10), "both")
    assert none.pos == none.neg == UNINFORMED
