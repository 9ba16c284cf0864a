"""Dawid-Skene model: recovery of truth and annotator rates from an enumerated population, and a slow reference."""

import itertools

import numpy as np
import pytest
import scipy.special

from ccmn.estimation import estimate_noise
from ccmn.estimation.dawid_skene import (
    LEVELS,
    VoteDesign,
    calibrate_machines,
    error_rates,
    fit_votes,
)
from ccmn.votes import VoteTable

TPR, FPR, PRIOR = np.array([0.9, 0.8, 0.7, 0.85]), np.array([0.1, 0.05, 0.2, 0.3]), 0.3


def population(size):
    """Return every combination of votes (n, 4, 1) as often as the model expects it among ``size`` rows."""
    votes = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    chance = PRIOR * np.prod(np.where(votes == 1, TPR, 1 - TPR), 1)
    chance += (1 - PRIOR) * np.prod(np.where(votes == 1, FPR, 1 - FPR), 1)
    return np.repeat(votes, np.round(size * chance).astype(int), 0)[:, :, None]


def test_population_of_two_classes_is_recovered():
    model = fit_votes(VoteTable.read(population(100_000)), max_iterations=2000)
    rho_pos, rho_neg = error_rates(model.shares, model.skills)
    np.testing.assert_allclose(1 - rho_pos[:, 0], TPR, atol=0.03)
    np.testing.assert_allclose(rho_neg[:, 0], FPR, atol=0.03)
    assert model.posterior.mean() == pytest.approx(PRIOR, abs=0.03)


def test_levels_agree_with_bayes_rule_over_all_levels():
    rng, (n, a, q) = np.random.default_rng(0), (12, 5, 3)
    votes = rng.integers(0, 2, (n, a, q)).astype(float)
    votes[rng.random((n, a)) < 0.3] = np.nan
    votes[3, 0, 1] = 0.3  # a machine
    table = VoteTable.read(votes)
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(LEVELS.size), q)
    skills = rng.normal([0, 1], 0.5, (a, q, 2))
    design = VoteDesign(table)
    prior = rng.normal(size=(n, q))
    for given in (None, prior):
        levels = np.full((n * q, LEVELS.size), np.nan)
        levels[design.cells] = design.levels(shares, skills.reshape(-1, 2)[design.pairs], given)
        for i, j in np.ndindex(n, q):
            if np.isnan(votes[i, :, j]).all():
                continue
            chances = []
            for k, g in enumerate(LEVELS):
                chance = shares[j, k]
                if given is not None:  # the level has the share of the labels, given that the label is true or absent
                    true = scipy.special.expit(prior[i, j])
                    chance *= (true if g > 0 else 1 - true) / shares[j, (g > 0) == (LEVELS > 0)].sum()
                for w in range(a):
                    if not np.isnan(votes[i, w, j]):
                        p = scipy.special.expit(skills[w, j, 0] + skills[w, j, 1] * g)
                        chance *= p ** votes[i, w, j] * (1 - p) ** (1 - votes[i, w, j])
                chances.append(chance)
            np.testing.assert_allclose(levels[i * q + j], np.array(chances) / sum(chances), rtol=2e-4, atol=1e-6)


def test_probabilities_of_a_machine_are_calibrated():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-1, 2, 4000)
    y = rng.random(4000) < scipy.special.expit(log_odds)
    stated = scipy.special.expit(2 * log_odds + 1)  # overconfident and shifted
    votes = np.stack([y, y, y, stated], 1)[:, :, None].astype(float)
    votes[:1000, :3] = np.nan  # rows with the machine alone
    table = VoteTable.read(votes)
    machine = table.annotator == 3
    calibrated = calibrate_machines(table).value
    np.testing.assert_array_equal(calibrated[~machine], table.value[~machine])
    np.testing.assert_allclose(calibrated[machine], scipy.special.expit(log_odds), atol=0.05)
    alone = VoteTable.read(stated[:, None, None])
    assert calibrate_machines(alone) is alone


def test_rates_of_one_annotator_and_of_mean_votes():
    votes = population(100_000)
    one = estimate_noise(Y_noisy=votes[:, 2], votes=votes)
    assert one.rho_pos[0] == pytest.approx(1 - TPR[2], abs=0.02)
    assert one.rho_neg[0] == pytest.approx(FPR[2], abs=0.02)
    mean = estimate_noise(votes=votes)
    assert mean.rho_pos[0] == pytest.approx(1 - TPR.mean(), abs=0.02)
    assert mean.rho_neg[0] == pytest.approx(FPR.mean(), abs=0.02)


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
