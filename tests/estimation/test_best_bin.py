"""Best-bin estimator: compared with closed forms, plain loops and simulated data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from ccmn.estimation import estimate_noise
from ccmn.estimation.noise_rates import UNKNOWN_SE
from ccmn.estimation.score_estimators import (
    DELTA,
    GAMMA,
    best_bin_label,
    histograms,
    impurities,
    mixture_proportion,
    rates_from_impurities,
)
from ccmn.noise import ClassConditionalNoise


def two_gaussians(rho_pos, rho_neg, seed, n=6000, distance=4.0):
    """Return scores of one label whose classes are ``distance`` deviations apart, and its noisy values."""
    rng = np.random.default_rng(seed)
    y = (rng.random((n, 1)) < 0.3).astype(int)
    scores = y[:, 0] * distance + rng.standard_normal(n)
    return scores, ClassConditionalNoise([rho_pos], [rho_neg]).corrupt(y, random_state=rng)[:, 0] == 1


def without_certain_rows(seed, n=6000):
    """Return a posterior (n, 1) within [.1, .8], true labels, and noisy labels with rates .2 and .2."""
    rng = np.random.default_rng(seed)
    eta = 0.1 + 0.7 * scipy.special.expit(8 * rng.standard_normal((n, 1)))
    y = (rng.random((n, 1)) < eta).astype(int)
    return eta, y, ClassConditionalNoise([0.2], [0.2]).corrupt(y, random_state=rng)


def loop_proportion(component, mixture):
    """Return the mixture proportion by a loop over thresholds; high scores look like the component."""
    width = sum(np.sqrt(np.log(4 / DELTA) / (2 * len(sample))) for sample in (component, mixture))
    best = (np.inf, 0.0)
    for c in np.unique(component):
        q_C, q_M = (component >= c).mean(), (mixture >= c).mean()
        if q_C > 1 / len(component):
            best = min(best, (q_M / q_C + (1 + GAMMA) * width / q_C, q_M / q_C))
    return min(1.0, best[1])


@pytest.mark.parametrize("seed", range(4))
def test_mixture_proportion_equals_loop(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=300).round(seed % 3)  # many ties
    positive = rng.random(300) < 1 / (1 + np.exp(-2 * scores))
    zeros, ones = histograms(scores, positive)
    assert zeros.sum() == (~positive).sum()
    inside_zeros = mixture_proportion(ones[::-1], zeros[::-1])
    inside_ones = mixture_proportion(zeros, ones)
    assert inside_zeros.value == pytest.approx(loop_proportion(scores[positive], scores[~positive]), abs=1e-12)
    assert inside_ones.value == pytest.approx(loop_proportion(-scores[~positive], -scores[positive]), abs=1e-12)


def test_histogram_of_many_rows_is_accurate():
    scores, positive = two_gaussians(0.2, 0.2, 0, n=40_000)
    zeros, ones = histograms(scores, positive)
    assert zeros.size <= 2001
    assert zeros.sum() + ones.sum() == 40_000
    exact = loop_proportion(-scores[~positive][:4000], -scores[positive])
    assert mixture_proportion(zeros, ones).value == pytest.approx(exact, abs=0.02)


@pytest.mark.slow
def test_trusted_rows_reveal_missing_anchor_points():
    """With 300 trusted rows, 19 of 20 datasets are flagged."""
    flagged = 0
    for seed in range(20):
        eta, y, noisy = without_certain_rows(seed)
        rows = np.random.default_rng([seed, 1]).permutation(len(y))[:300]
        rates = estimate_noise(pred_proba=0.2 + 0.6 * eta, Y_noisy=noisy, trusted=(rows, y[rows]))
        flagged += bool(rates.labels_with("no_anchor_suspected"))
    assert flagged >= 19


def test_conversions_are_inverse():
    grid = np.linspace(0.05, 0.45, 9)
    rho_pos, rho_neg, prior = (a.ravel() for a in np.meshgrid(grid, grid, grid))
    observed = rho_neg + (1 - rho_pos - rho_neg) * prior
    a, b = rho_neg * (1 - prior) / observed, rho_pos * prior / (1 - observed)
    np.testing.assert_allclose(rates_from_impurities(a, b, observed), (rho_pos, rho_neg), atol=1e-12)
    np.testing.assert_allclose(impurities(a / (1 - b), b / (1 - a)), (a, b), atol=1e-12)


def test_identical_classes_leave_no_signal():
    a, b = impurities(np.array(1.0), np.array(1.0))
    assert (a, b) == pytest.approx((0.5, 0.5))
    label = best_bin_label(np.zeros(100), np.arange(100) < 30, "both", np.random.default_rng(0))
    assert label.pos.value + label.neg.value == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("true", [(0.0, 0.6), (0.2, 0.2), (0.6, 0.0), (0.0, 0.0)])
def test_both_rates_of_separable_classes(true):
    """Within .05 in sum for 19 of 20 seeds (the worst is .027)."""
    labels = [best_bin_label(*two_gaussians(*true, seed), "both", np.random.default_rng(seed)) for seed in range(20)]
    errors = [abs(label.pos.value - true[0]) + abs(label.neg.value - true[1]) for label in labels]
    assert (np.array(errors) < 0.05).sum() >= 19
    assert {label.kind for label in labels} == {"upper bound"}


@pytest.mark.slow
def test_excess_without_certain_rows_matches_theory():
    """The excess is r (1 - sup eta) and r inf eta, within .03 for 19 of 20 seeds."""
    near = []
    for seed in range(20):
        eta, _, noisy = without_certain_rows(seed)
        label = best_bin_label(eta[:, 0], noisy[:, 0] == 1, "both", np.random.default_rng(seed))
        excess = np.array([label.pos.value - 0.2, label.neg.value - 0.2])
        near.append((np.abs(excess - 0.6 * np.array([1 - 0.8, 0.1])) < 0.03).all())
    assert sum(near) >= 19


@pytest.mark.parametrize(("noise_type", "true"), [("partial", (0.0, 0.4)), ("missing", (0.4, 0.0))])
def test_declared_noise_type_is_estimated_precisely(noise_type, true):
    errors, deviations = [], []
    for seed in range(10):
        label = best_bin_label(*two_gaussians(*true, seed, n=2000), noise_type, np.random.default_rng(seed))
        free, declared = (label.neg, label.pos) if noise_type == "partial" else (label.pos, label.neg)
        assert declared == (0, 0, 0, 0)
        assert free.low <= 0.4 <= free.high
        errors.append(free.value - 0.4)
        deviations.append(free.se)
    assert np.abs(errors).max() < 0.08
    # The standard error matches the spread of the estimates within a factor of two.
    assert 0.5 < np.mean(deviations) / np.std(errors) < 2


def test_no_noise_is_flagged():
    label = best_bin_label(*two_gaussians(0.0, 0.0, 0, n=600, distance=9), "partial", np.random.default_rng(0))
    assert label.neg.value < 0.02
    assert [code for code, _ in label.notes] == ["no_noise_detected"]


@pytest.mark.parametrize("noise_type", ["both", "partial", "missing"])
@pytest.mark.parametrize("value", [False, True])
def test_single_class_is_unidentified(noise_type, value):
    label = best_bin_label(np.arange(9.0), np.full(9, value), noise_type, np.random.default_rng(0))
    assert (label.pos.value, label.neg.value) == (0, 0)
    assert [code for code, _ in label.notes] == ["unidentified"]


@pytest.mark.parametrize("noise_type", ["both", "partial", "missing"])
def test_two_rows_and_constant_scores_give_finite_rates(noise_type):
    for scores, positive in (
        (np.array([0.1, 0.9]), np.array([False, True])),
        (np.zeros(50), np.arange(50) < 10),
    ):
        label = best_bin_label(scores, positive, noise_type, np.random.default_rng(0))
        assert np.isfinite([*label.pos, *label.neg]).all()
        assert 0 <= label.pos.value <= 1
        assert 0 <= label.neg.value <= 1


def test_without_generator_only_the_standard_errors_are_unknown():
    scores, positive = two_gaussians(0.2, 0.1, 0)
    with_errors = best_bin_label(scores, positive, "both", np.random.default_rng(0))
    without = best_bin_label(scores, positive, "both", None)
    assert without.pos.se == without.neg.se == UNKNOWN_SE > with_errors.pos.se
    assert without.pos._replace(se=0.0) == with_errors.pos._replace(se=0.0)
