"""Best-bin estimator of table 3: compared with a plain loop and simulated data."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.noise import PartialNoise
from ccmn.paper.runner import best_bin_noise, best_bin_rate, mixture_proportion


def loop_proportion(component, mixture):
    """Return the mixture proportion by a loop over thresholds; high scores look like the component."""
    width = sum(np.sqrt(np.log(4 / 0.1) / (2 * len(sample))) for sample in (component, mixture))
    best = (np.inf, 0.0)
    for c in np.unique(component):
        q_C, q_M = (component >= c).mean(), (mixture >= c).mean()
        if q_C > 1.5 / len(component):
            best = min(best, (q_M / q_C + (1 + 0.01) * width / q_C, q_M / q_C))
    return min(1.0, best[1])


@pytest.mark.parametrize("seed", range(4))
def test_mixture_proportion_equals_loop(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=300).round(seed % 3)  # many ties
    positive = rng.random(300) < 1 / (1 + np.exp(-2 * scores))
    expected = loop_proportion(scores[positive], scores[~positive])
    assert mixture_proportion(scores[positive], scores[~positive]) == pytest.approx(expected, abs=1e-12)


def test_rate_of_separable_classes():
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = (rng.random((2000, 1)) < 0.3).astype(int)
        noisy = PartialNoise([0.4]).corrupt(y, random_state=rng)[:, 0] == 1
        errors.append(best_bin_rate(y[:, 0] * 4.0 + rng.standard_normal(2000), noisy) - 0.4)
    assert np.abs(errors).max() < 0.08


def test_constant_scores_and_single_classes():
    assert best_bin_rate(np.zeros(50), np.arange(50) < 10) <= 0.9
    assert best_bin_rate(np.arange(9.0), np.full(9, True)) == best_bin_rate(np.arange(9.0), np.full(9, False)) == 0


def test_noise_of_candidate_sets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    Y = (X[:, :2] > 0.3).astype(int)
    noise = best_bin_noise(X, PartialNoise([0.5, 0.0]).corrupt(Y, random_state=0))
    assert np.abs(noise.rho_neg - [0.5, 0.0]).max() < 0.15
