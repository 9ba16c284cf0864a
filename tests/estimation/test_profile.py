"""Posterior of the rates from counts, prevalence and likelihood, alone and combined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.estimation.likelihood import GRIDS
from ccmn.estimation.noise_rates import ZERO_RATE
from ccmn.estimation.profile import (
    DEFAULT_TEMPERATURE,
    LOG_CLEAN_WEIGHT,
    LOG_PRIOR_WEIGHTS,
    MIN_INFORMATION,
    Counts,
    average_hypotheses,
    hypothesis_weights,
    log_posterior,
    log_rare_prior,
    normalize,
    posterior_rates,
    prevalence_weight,
    shrink_to_pooled,
    temperature_for,
)

GRID = GRIDS["both"]
FLAT = np.where(GRID.possible(0.4), 0.0, -np.inf)


def test_posterior_of_counts_equals_double_loop():
    counts = Counts(30, 9, 70, 14)
    found = log_posterior(FLAT, GRID, 0.4, counts)
    for i in (1, 4, 8):
        for k in (1, 7, 12):
            a, b = GRID.pos[i], GRID.neg[k]
            prior = (0.4 - b) / (1 - a - b)
            expected = 9 * np.log(a) + 21 * np.log(1 - a) + 14 * np.log(b) + 56 * np.log(1 - b)
            expected += 30 * np.log(prior) + 70 * np.log(1 - prior)
            assert found[i, k] == pytest.approx(expected)


@given(st.integers(0, 6), st.integers(0, 10), st.sampled_from([0.2, 0.35, 0.5]))
def test_many_trusted_rows_recover_the_rates(i, k, prior):
    """The expected counts of a million rows leave one pair of the grid."""
    a, b = GRID.pos[i], GRID.neg[k]
    observed = b + (1 - a - b) * prior
    positives, negatives = round(1e6 * prior), round(1e6 * (1 - prior))
    counts = Counts(positives, round(a * positives), negatives, round(b * negatives))
    surface = np.where(GRID.possible(observed), 0.0, -np.inf)
    pos, neg = posterior_rates(log_posterior(surface, GRID, observed, counts), GRID, observed)
    assert pos.value == pytest.approx(a, abs=2e-3)
    assert neg.value == pytest.approx(b, abs=2e-3)
    assert pos.low <= a <= pos.high
    assert neg.low <= b <= neg.high


def test_prevalence_weight():
    counts = Counts(50, 10, 150, 15)
    assert prevalence_weight(counts, 0.3, np.inf) == 1
    signal = 1 - 10.5 / 51 - 15.5 / 151
    own, other = (50.5 / 201) * (150.5 / 201) / 200, 0.3 * 0.7 / (1000 * signal**2)
    assert prevalence_weight(counts, 0.3, 1000) == pytest.approx(own / (own + other))
    assert 0 < prevalence_weight(Counts(0, 0, 0, 0), 0.3, 10) <= 1


def test_rare_prior():
    prior = GRID.prior(0.4)
    inside = (prior > 0.01) & (prior < 0.99)
    np.testing.assert_allclose(np.exp(log_rare_prior(GRID, 0.4))[inside], 1 / prior[inside] - 1)
    halfway = log_rare_prior(GRID, 0.55)  # between rare and frequent labels
    np.testing.assert_allclose(halfway, np.log(1 / np.clip(GRID.prior(0.55), 0.01, 0.99) - 1) / 2)


def test_added_labels_do_not_explain_a_frequent_label():
    np.testing.assert_array_equal(log_rare_prior(GRID, 0.65), 0)
    flat = np.where(GRID.possible(0.65), 0.0, -np.inf)
    assert posterior_rates(flat, GRID, 0.65)[1].value < 0.35
    assert (log_rare_prior(GRIDS["partial"], 0.65) != 0).any()  # the noise type declares that labels were added


def test_temperature_increases_as_tjur_r2_decreases():
    noisy = np.array([1.0, 1.0, 0.0, 0.0, np.nan])
    for tjur_r2, expected in ((0.8, 2.5), (0.4, 2.5), (0.1, 10.0), (0.0, 50.0), (-0.3, 50.0)):
        scores = np.array([0.45, 0.55, 0.45, 0.55, 0.9]) + tjur_r2 / 2 * np.array([1, 1, -1, -1, 0])
        assert temperature_for("missing", scores, noisy) == pytest.approx(expected)
        assert temperature_for("both", scores, noisy) == DEFAULT_TEMPERATURE
        assert temperature_for("partial", scores, noisy) == DEFAULT_TEMPERATURE
    for constant in (np.ones(5), np.zeros(5)):
        assert temperature_for("missing", scores, constant) == DEFAULT_TEMPERATURE


def test_temperature_divides_only_the_likelihood():
    grid, counts = GRIDS["missing"], Counts(30, 9, 70, 0)
    surface = np.where(grid.possible(0.4), np.linspace(0, 5, 86)[:, None], -np.inf)
    flat = np.where(grid.possible(0.4), 0.0, -np.inf)
    cold, hot = (log_posterior(surface, grid, 0.4, counts, temperature=c) for c in (1.0, 10.0))
    alone, kept = log_posterior(flat, grid, 0.4, counts), grid.possible(0.4)
    np.testing.assert_allclose(cold[kept] - alone[kept], 10 * (hot[kept] - alone[kept]))


def test_known_prevalence_selects_matching_pairs():
    posterior = normalize(log_posterior(FLAT, GRID, 0.4, prevalence=0.3))
    assert (posterior * np.abs(GRID.prior(0.4) - 0.3)).sum() < 0.02


def test_excluded_rate_is_exactly_zero():
    grid = GRIDS["partial"]
    surface = np.where(grid.possible(0.4), 0.0, -np.inf)
    pos, neg = posterior_rates(log_posterior(surface, grid, 0.4), grid, 0.4)
    assert pos == ZERO_RATE
    assert 0 < neg.value < 0.43


def test_interval_is_wide_if_the_prior_dominates():
    """Without evidence the value follows the prior for rare labels, but the interval includes frequent ones."""
    _, neg = posterior_rates(log_posterior(FLAT, GRID, 0.4), GRID, 0.4)
    assert neg.value > 0.2
    assert neg.low < 0.08
    assert neg.high > 0.38


def test_label_without_evidence_gets_pooled_posterior():
    others = normalize(log_posterior(FLAT, GRID, 0.4, Counts(400, 80, 600, 60)))
    found = normalize(shrink_to_pooled(others, FLAT))
    assert (found.sum(1) @ GRID.pos) == pytest.approx(others.sum(1) @ GRID.pos, abs=0.02)
    far = np.full_like(FLAT, -np.inf)
    far[0, 0] = 0.0
    assert normalize(shrink_to_pooled(others, far))[0, 0] == 1


def peaked_at(i, k, height=6.0):
    """Return a log-likelihood over the grid that falls off around one pair."""
    pos, neg = GRID.pairs
    fall = (pos - GRID.pos[i]) ** 2 / 0.1**2 + (neg - GRID.neg[k]) ** 2 / 0.04**2
    return np.where(np.isfinite(FLAT), -0.5 * height * fall, -np.inf)


@pytest.mark.parametrize("factor", [1.0, 0.02])
def test_hypothesis_weights_equal_plain_sums(factor):
    labels = [factor * values for values in (peaked_at(3, 0), peaked_at(2, 2), peaked_at(4, 1))]
    parts = {"clean": (0, 0), "missing": (None, 0), "partial": (0, None), "both": (None, None)}
    scores, squares = {}, []
    for values in labels:
        finite = [value for value in values.ravel() if np.isfinite(value)]
        squares.append((max(finite) - np.log(sum(np.exp(finite)) / len(finite))) ** 2)
    share = min(1.0, np.sqrt(sum(squares) / 3) / MIN_INFORMATION)
    assert (share == 1) == (factor == 1)
    for name, (i, k) in parts.items():
        logs = []
        for values in labels:
            cells = [
                np.exp(values[a, b])
                for a in range(GRID.pos.size)
                for b in range(GRID.neg.size)
                if i in (None, a) and k in (None, b) and np.isfinite(values[a, b])
            ]
            logs.append(np.log(sum(cells) / len(cells)))
        clean = LOG_CLEAN_WEIGHT * (1 - share) if name == "clean" else 0.0
        scores[name] = np.exp(len(labels) * (np.mean(logs) + share * LOG_PRIOR_WEIGHTS[name]) + clean)
    found = hypothesis_weights(labels)
    for name, score in scores.items():
        assert found[name] == pytest.approx(score / sum(scores.values()))


@pytest.mark.parametrize(
    ("pair", "expected"), [((0, 0), "clean"), ((7, 0), "missing"), ((0, 9), "partial"), ((6, 8), "both")]
)
def test_strong_evidence_selects_the_hypothesis(pair, expected):
    weights = hypothesis_weights([peaked_at(*pair)] * 12)
    assert max(weights, key=weights.get) == expected
    assert sum(weights.values()) == pytest.approx(1)


def test_flat_likelihoods_select_no_noise():
    weights = hypothesis_weights([FLAT] * 12)
    assert max(weights, key=weights.get) == "clean"
    assert weights["clean"] == pytest.approx(np.e / (np.e + 3))


def test_average_over_hypotheses():
    values = peaked_at(6, 8)
    only_both = {name: float(name == "both") for name in LOG_PRIOR_WEIGHTS}
    np.testing.assert_allclose(average_hypotheses(values, only_both), normalize(values))
    averaged = average_hypotheses(values, {"clean": 0.5, "missing": 0.0, "partial": 0.0, "both": 0.5})
    expected = 0.5 * normalize(values)
    expected[0, 0] += 0.5
    np.testing.assert_allclose(averaged, expected)
    assert hypothesis_weights([]) is None


def test_interval_contains_rates_of_both_hypotheses():
    """A hypothesis of weight 1 changes the value; the interval still covers what the likelihood alone supports."""
    clean = {name: float(name == "clean") for name in LOG_PRIOR_WEIGHTS}
    pos, neg = posterior_rates(peaked_at(6, 8), GRID, 0.4, clean)
    assert pos.value == neg.value == 0.0
    assert pos.high > 0.3
    assert neg.high > 0.16
