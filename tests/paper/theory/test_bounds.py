"""Bounds: corrected and printed forms, inverse, and comparison with exact probabilities."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccmn import ClassConditionalNoise, PartialNoise
from ccmn.losses import hamming_loss, ranking_loss
from ccmn.paper.theory import (
    _lipschitz_hamming,
    _lipschitz_ranking,
    _mu_hamming,
    _mu_ranking,
    hamming_bound,
    partial_hamming_bound,
    partial_ranking_bound,
    rademacher_linear,
    ranking_bound,
)
from strategies import noises

NOISE = ClassConditionalNoise([0.1, 0.3, 0.5], [0.4, 0.2, 0.0])
PARTIAL = PartialNoise([0.1, 0.3, 0.5])
GIVEN = {"theta": 2.0, "lipschitz": 0.25, "rademacher": 0.01, "delta": 0.1}


@pytest.mark.parametrize(
    ("bound", "terms", "lipschitz", "mu", "printed_mu"),
    [
        (hamming_bound, 3, _lipschitz_hamming(NOISE, 0.25), 2 * _mu_hamming(NOISE), 2 * 2.0),
        (ranking_bound, 3 * 2, _lipschitz_ranking(NOISE, 0.25), _mu_ranking(NOISE), 2 * 6.0),
    ],
)
def test_theorems_2_and_4(bound, terms, lipschitz, mu, printed_mu):
    one, two = (math.sqrt(math.log(sides / 0.1) / (2 * 500)) for sides in (1, 2))
    complexity = 4 * terms * lipschitz * 0.01
    assert bound(500, NOISE, **GIVEN) == pytest.approx(complexity + terms * mu * 2.0 * two)
    assert bound(500, NOISE, **GIVEN, printed=True) == pytest.approx(complexity + terms * printed_mu * 2.0 * one)


def test_corollary_1():
    q, n, R, delta = 3, 500, 0.01, 0.1
    one, two = (math.sqrt(math.log(sides / delta) / (2 * n)) for sides in (1, 2))
    K = _lipschitz_hamming(PARTIAL, 4.0)
    first = {True: 8 * q / (1 - 0.1) * one, False: 8 * q * (1.5 / 0.5) * two}
    K_pair = _lipschitz_ranking(PARTIAL, 4.0)
    second = {True: 8 * q * (q - 1) * (1.1 / 0.81) * one, False: 4 * q * (q - 1) * (1.5 / (0.5 * 0.7)) * two}
    for printed in (True, False):
        got = partial_hamming_bound(n, PARTIAL, rademacher=R, delta=delta, printed=printed)
        assert got == pytest.approx(4 * q * K * R + first[printed])
        got = partial_ranking_bound(n, PARTIAL, rademacher=R, delta=delta, printed=printed)
        assert got == pytest.approx(4 * q * (q - 1) * K_pair * R + second[printed])


@given(noises().filter(lambda noise: noise.n_labels > 1), st.floats(1e-6, 0.5))
def test_printed_theorem_4_is_valid_up_to_delta_one_half(noise, delta):
    at = {**GIVEN, "delta": delta}
    assert ranking_bound(100, noise, **at, printed=True) >= ranking_bound(100, noise, **at) * (1 - 1e-12)


def test_rademacher_complexity_of_linear_functions():
    """Compare with E sup <w, sum sigma x / n> = B E |sum sigma x| / n, averaged over 4000 random signs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    signs = rng.choice([-1.0, 1.0], size=(4000, 50))
    complexity = 2.0 * np.linalg.norm(signs @ X, axis=1).mean() / 50
    assert 0.8 * rademacher_linear(50, 1.0, 2.0) < complexity <= rademacher_linear(50, 1.0, 2.0)


def ramp(t: torch.Tensor) -> torch.Tensor:
    """Return a bounded phi, 0 <= phi <= 1, with Lipschitz constant 1/2: 1 below -1, 0 above 1, linear in between."""
    return ((1 - t) / 2).clamp(0, 1)


@pytest.mark.parametrize(("bound", "loss"), [(hamming_bound, hamming_loss), (ranking_bound, ranking_loss)])
def test_excess_risk_of_a_finite_class_is_below_the_bound(bound, loss):
    """Check 100 random samples of 200 noisy rows.

    The features have 4 values and the scores come from 40 functions with abs(f) <= 1. The risks are exact sums, and the
    complexity is bounded by Massart's lemma.
    """
    rng = np.random.default_rng(0)
    n, cells, q, size = 200, 4, 3, 40
    posterior = torch.tensor(rng.uniform(0.05, 0.95, size=(cells, q)))
    functions = torch.tensor(rng.uniform(-1, 1, size=(size, cells, q)))
    true_risk = loss(functions, posterior, ramp).mean(-1)  # the loss is multilinear and the labels are independent
    massart = math.sqrt(2 * math.log(size) / n)
    limit = bound(n, NOISE, theta=1.0, lipschitz=0.5, rademacher=massart, delta=0.05)
    worst = 0.0
    for _ in range(100):
        x = rng.integers(cells, size=n)
        Y = (rng.random((n, q)) < posterior.numpy()[x]).astype(np.float64)
        targets = torch.from_numpy(NOISE.debias(NOISE.corrupt(Y, random_state=rng)))
        chosen = loss(functions[:, x], targets, ramp).mean(-1).argmin()
        worst = max(worst, float(true_risk[chosen] - true_risk.min()))
    assert 0 < worst < limit


def tail_of_the_mean(values: np.ndarray, probabilities: np.ndarray, n: int, beyond: float) -> float:
    """Return P(abs(mean of n values - expectation) > beyond), exactly, for values that are multiples of 1/2."""
    single = np.zeros(5)
    np.add.at(single, np.rint(2 * (values + 0.5)).astype(int), probabilities)
    total = np.ones(1)
    for _ in range(n):
        total = np.convolve(total, single)
    means = (np.arange(total.size) / n) / 2 - 0.5
    return float(total[np.abs(means - values @ probabilities) > beyond].sum())


@pytest.mark.parametrize(("printed", "holds"), [(False, True), (True, False)])
def test_printed_mu_violates_the_lemma_of_theorem_2(printed, holds):
    """Compute the probability that the lemma bounds, P(abs(R^ - R) > mu Theta sqrt(ln(2/delta)/2n)) <= delta.

    There is one label and one function, so R_n = 0. With rho_pos = 1/3, rho_neg = 0, y = 1 and f(x) = 5 or -5 with
    probability 1/2, phi is 0 or 1. The modified phi is then -1/2, 1, 3/2 or 0, with probabilities 1/3, 1/6, 1/3, 1/6,
    and the distribution of its mean over n rows is exact. For delta = 1e-6 the mean is outside the printed interval
    three times as often as allowed.
    """
    noise, n, delta = ClassConditionalNoise([1 / 3], [0.0]), 600, 1e-6
    scores = torch.tensor([[5.0], [5.0], [-5.0], [-5.0]], dtype=torch.float64)
    targets = noise.debias(torch.tensor([[1.0], [0.0], [1.0], [0.0]], dtype=torch.float64))
    values = hamming_loss(scores, targets, ramp).numpy()
    np.testing.assert_allclose(values, [-0.5, 1.0, 1.5, 0.0], atol=1e-12)
    beyond = _mu_hamming(noise, printed=printed) * math.sqrt(math.log(2 / delta) / (2 * n))
    probability = tail_of_the_mean(values, np.array([2, 1, 2, 1]) / 6, n, beyond)
    assert (probability <= delta) is holds
    assert holds or probability > 2 * delta


def test_invalid_arguments():
    for bound, n, change, message in (
        (hamming_bound, 10, {"delta": 1.0}, "delta"),
        (hamming_bound, 10, {"theta": math.inf}, r"theta.*phi must be bounded"),
        (ranking_bound, 0, {}, "n must be"),
        (ranking_bound, 10, {"rademacher": -1.0}, "rademacher must be"),
    ):
        with pytest.raises(ValueError, match=message):
            bound(n, NOISE, **{**GIVEN, **change})
    with pytest.raises(TypeError, match="PartialNoise"):
        partial_hamming_bound(10, NOISE, rademacher=0.1)
