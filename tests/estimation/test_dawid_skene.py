"""Dawid-Skene model: recovery of truth and annotator rates from an enumerated population, and a slow reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.special

from ccmn.estimation import estimate_noise, mean_votes
from ccmn.estimation.dawid_skene import (
    Calibration,
    expected_counts,
    fit_votes,
    initial_posterior,
    rate_prior,
    shrunk_rates,
    update_calibration,
    vote_evidence,
)
from ccmn.votes import VoteTable

TPR, FPR, PRIOR = np.array([0.9, 0.8, 0.7, 0.85]), np.array([0.1, 0.05, 0.2, 0.3]), 0.3


def population(size):
    """Return every combination of votes (n, 4, 1) as often as the model expects it among ``size`` rows."""
    votes = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    chance = PRIOR * np.prod(np.where(votes == 1, TPR, 1 - TPR), 1)
    chance += (1 - PRIOR) * np.prod(np.where(votes == 1, FPR, 1 - FPR), 1)
    return np.repeat(votes, np.round(size * chance).astype(int), 0)[:, :, None]


def random_votes(n=12, a=5, q=3, seed=0):
    rng = np.random.default_rng(seed)
    votes = rng.integers(0, 2, (n, a, q)).astype(float)
    votes[rng.random((n, a)) < 0.3] = np.nan
    return votes


def test_exact_population_is_recovered():
    model = fit_votes(VoteTable.read(population(100_000)))
    np.testing.assert_allclose(1 - model.rho_pos[:, 0], TPR, atol=5e-3)
    np.testing.assert_allclose(model.rho_neg[:, 0], FPR, atol=5e-3)
    assert scipy.special.expit(model.prior[0]) == pytest.approx(PRIOR, abs=5e-3)


def test_one_iteration_agrees_with_loops():
    votes = random_votes()
    table = VoteTable.read(votes)
    start = initial_posterior(table)
    model = fit_votes(table, prior=np.zeros(start.shape), start=start, max_iterations=1)
    n, a, q = votes.shape
    removed, positives, added, negatives = np.zeros((4, a, q))
    for i, w, j in np.ndindex(n, a, q):
        if not np.isnan(votes[i, w, j]):
            removed[w, j] += start[i, j] * (1 - votes[i, w, j])
            positives[w, j] += start[i, j]
            added[w, j] += (1 - start[i, j]) * votes[i, w, j]
            negatives[w, j] += 1 - start[i, j]
    pos, neg = rate_prior(removed, positives), rate_prior(added, negatives)
    rho_pos = (removed + pos.concentration * pos.mean) / (positives + pos.concentration)
    rho_neg = (added + neg.concentration * neg.mean) / (negatives + neg.concentration)
    np.testing.assert_allclose(model.rho_pos, rho_pos)
    np.testing.assert_allclose(model.rho_neg, rho_neg)
    for i, j in np.ndindex(n, q):
        true = absent = 1.0
        for w in range(a):
            if votes[i, w, j] == 1:
                true, absent = true * (1 - rho_pos[w, j]), absent * rho_neg[w, j]
            elif votes[i, w, j] == 0:
                true, absent = true * rho_pos[w, j], absent * (1 - rho_neg[w, j])
        assert model.posterior[i, j] == pytest.approx(true / (true + absent))


def test_concentration_of_the_beta_prior_is_recovered():
    rng = np.random.default_rng(0)
    trials = rng.integers(5, 60, (4000, 2)).astype(float)
    rates = rng.beta([3.0, 10.0], [7.0, 30.0], (4000, 2))  # concentrations 10 and 40
    prior = rate_prior(rng.binomial(trials.astype(int), rates).astype(float), trials)
    np.testing.assert_allclose(prior.mean, [0.3, 0.25], atol=0.01)
    np.testing.assert_allclose(prior.concentration, [10, 40], rtol=0.2)


def test_annotators_with_few_votes_are_shrunk_towards_the_label():
    votes = np.full((300, 5, 1), np.nan)
    votes[:, :4] = population(300)[:300]
    votes[0, 4] = 1 - votes[0, 0]  # one vote, against another annotator
    table = VoteTable.read(votes)
    counts = expected_counts(table, fit_votes(table).posterior)
    rho_pos, rho_neg = shrunk_rates(counts)
    raw = counts.removed[:4].sum() / counts.positives[:4].sum()
    assert abs(rho_pos[4, 0] - raw) < 0.4
    assert 0 < rho_neg[4, 0] < 0.6


def test_probabilities_of_a_machine_are_calibrated():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-1, 2, 4000)
    y = rng.random(4000) < scipy.special.expit(log_odds)
    stated = scipy.special.expit(2 * log_odds + 1)  # overconfident and shifted: true offset -1/2, slope 1/2
    table = VoteTable.read(stated[:, None, None])
    calibration = Calibration(np.zeros((1, 1)), np.ones((1, 1)))
    for _ in range(30):
        calibration = update_calibration(table, y[:, None].astype(float), calibration)
    assert calibration.offset[0, 0] == pytest.approx(-0.5, abs=0.1)
    assert calibration.slope[0, 0] == pytest.approx(0.5, abs=0.05)
    rates, prevalence = np.full((1, 1), 0.2), np.array([-1.0])
    evidence = vote_evidence(table, rates, rates, calibration, prevalence)
    low = scipy.special.logit(np.clip(stated, scipy.special.expit(-8), scipy.special.expit(8)))
    expected = calibration.offset[0, 0] + calibration.slope[0, 0] * low + 1.0
    np.testing.assert_allclose(evidence[:, 0], expected)


def test_rates_of_one_annotator_and_of_mean_votes():
    votes = population(100_000)
    one = estimate_noise(Y_noisy=votes[:, 2], votes=votes)
    assert one.rho_pos[0] == pytest.approx(1 - TPR[2], abs=5e-3)
    assert one.rho_neg[0] == pytest.approx(FPR[2], abs=5e-3)
    mean = estimate_noise(votes=votes)
    assert mean.rho_pos[0] == pytest.approx(1 - TPR.mean(), abs=5e-3)
    assert mean.rho_neg[0] == pytest.approx(FPR.mean(), abs=5e-3)


def test_missing_votes_are_ignored():
    rng = np.random.default_rng(0)
    y = rng.random(4000) < PRIOR
    votes = (rng.random((4000, 4)) < np.where(y[:, None], TPR, FPR)).astype(float)
    votes[rng.random(votes.shape) < 0.3] = np.nan
    votes[:5] = np.nan
    rates = estimate_noise(votes=votes[:, :, None])
    assert rates.method == ("crowd",)
    assert rates.rho_pos[0] == pytest.approx(1 - TPR.mean(), abs=0.03)
    assert rates.rho_neg[0] == pytest.approx(FPR.mean(), abs=0.03)
    assert rates.prior[0] == pytest.approx(PRIOR, abs=0.03)
    assert rates.n_pos[0] + rates.n_neg[0] == (~np.isnan(votes)).any(1).sum()
    assert np.isnan(mean_votes(votes[:, :, None])[:5]).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_noise_type_few_votes_and_no_votes():
    votes = population(1000)
    assert estimate_noise(votes=votes, noise_type="partial").rho_pos[0] == 0
    assert estimate_noise(votes=votes, noise_type="missing").rho_neg[0] == 0
    few = estimate_noise(votes=votes[:, :2])
    assert [flag.code for flag in few.flags] == ["few_votes"]
    none = np.concatenate([votes, np.full(votes.shape, np.nan)], 2)
    rates = estimate_noise(votes=none)
    assert rates.labels_with("unidentified") == [1]
    assert rates.ci_pos[1].tolist() == [0, 1]
