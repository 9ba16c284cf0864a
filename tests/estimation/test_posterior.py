import itertools

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta

from ccmn.estimation.posterior import (
    CorrectedCurve,
    Flips,
    corrected_curve,
    count_flips,
    estimate_rates,
    fixed_rates,
    posterior_weights,
    rate_prior,
)
from ccmn.training.default_settings import DEFAULTS

POS, PHI = np.array([0.0, 0.2, 0.4]), np.array([0.0, 0.3, 0.6, 0.9])


def simulate(n=2000, rho_pos=0.2, rho_neg=0.1, q=3, seed=0, strength=3.0, intercept=-1.0):
    rng = np.random.default_rng(seed)
    f = strength * rng.normal(size=(n, q)) + intercept
    true = (rng.random((n, q)) < expit(f)).astype(float)
    flip = rng.random((n, q)) < np.where(true == 1, rho_pos, rho_neg)
    noisy = np.where(flip, 1 - true, true)
    return f, noisy, true


def enumerate_posterior(evidence):
    """Slow reference: the sum over all hyperparameters and pairs, one product at a time."""
    means = [np.linspace(0.01, m, 12) for m in DEFAULTS.max_means]
    concentrations = np.geomspace(*DEFAULTS.concentrations, 4)

    def states(values, grid):
        edges = np.r_[0, (grid[1:] + grid[:-1]) / 2, 1]
        for m, c in itertools.product(values, concentrations):
            yield 1 / 48, np.diff(beta.cdf(edges, m * c, (1 - m) * c))

    total = np.zeros(evidence.shape)
    for (p, F), (r, G) in itertools.product(states(means[0], POS), states(means[1], PHI)):
        joint, weight = [], p * r
        for part in evidence:
            prior = np.zeros(part.shape)
            for b, mass in enumerate(G):  # the prior of rho_pos given phi has mass 1 on possible pairs
                given = F * np.isfinite(part[:, b])
                prior[:, b] = mass * given / max(given.sum(), 1e-300)
            terms = np.exp(part) * prior / prior.sum()
            joint.append(terms / terms.sum())
            weight *= terms.sum()
        total += weight * np.array(joint)
    return total / total.sum((1, 2), keepdims=True)


def test_posterior_equals_the_sum_over_all_hyperparameters():
    evidence = np.random.default_rng(0).normal(size=(3, 3, 4))
    evidence[0, 2, :2] = -np.inf
    weights = posterior_weights(evidence, ["both"] * 3, POS, PHI)
    assert weights == pytest.approx(enumerate_posterior(evidence))


def test_prior_masses_sum_to_one():
    prior = rate_prior(np.arange(0, 0.86, 0.05), 0.6)
    assert prior.sum(1) == pytest.approx(1)


def test_rates_are_recovered():
    f, noisy, _ = simulate(20_000)
    posterior = estimate_rates(f, noisy)
    assert posterior.rho_pos == pytest.approx(0.2, abs=0.05)
    assert posterior.rho_neg == pytest.approx(0.1, abs=0.03)
    assert posterior.predictable.all()
    for ci, rate in ((posterior.ci_pos, 0.2), (posterior.ci_neg, 0.1)):
        assert ((ci[:, 0] <= rate) & (rate <= ci[:, 1])).all()


@pytest.mark.parametrize("noise_type", ["partial", "missing"])
def test_declared_types_exclude_the_other_kind(noise_type):
    f, noisy, _ = simulate(1000, 0.0 if noise_type == "partial" else 0.3, 0.3 if noise_type == "partial" else 0.0)
    posterior = estimate_rates(f, noisy, noise_type=[noise_type, noise_type, "both"])
    excluded, declared = posterior.rho_pos, posterior.rho_neg
    ci = posterior.ci_pos
    if noise_type == "missing":
        excluded, declared, ci = declared, excluded, posterior.ci_neg
    assert (excluded[:2] == 0).all()
    assert (ci[:2] == 0).all()
    assert declared[:2] == pytest.approx(0.3, abs=0.12)


def test_verified_rows_determine_the_rates_of_unpredictable_labels():
    rng = np.random.default_rng(0)
    noisy = (rng.random((500, 1)) < 0.4).astype(float)
    trusted = Flips(*(np.array([k]) for k in (3000, 900, 4000, 800)))
    posterior = estimate_rates(np.zeros((500, 1)), noisy, trusted=trusted)
    assert posterior.rho_pos == pytest.approx(0.3, abs=0.03)
    assert posterior.rho_neg == pytest.approx(0.2, abs=0.03)
    assert not estimate_rates(np.zeros((500, 1)), noisy).predictable


def test_flips_are_counted():
    noisy, true = np.array([[0, 1], [1, np.nan], [1, 1]]), np.array([[1, 1], [0, 1], [1, np.nan]])
    flips = count_flips(noisy, true)
    assert [list(part) for part in flips] == [[2, 1], [1, 0], [1, 0], [1, 0]]


def test_flips_that_contradict_a_declared_type_leave_finite_rates():
    f, noisy, _ = simulate(300, q=1)
    trusted = Flips(*(np.array([k]) for k in (20, 10, 20, 0)))
    posterior = estimate_rates(f, noisy, noise_type="partial", trusted=trusted)
    assert posterior.rho_pos == 0
    assert np.isfinite(posterior.rho_neg)


def test_known_prevalence_narrows_the_rates():
    f, noisy, true = simulate(2000, q=1, strength=0.5)
    known = estimate_rates(f, noisy, prevalence=true.mean(0))
    assert known.prior == pytest.approx(true.mean(0), abs=0.02)
    assert known.se_neg < estimate_rates(f, noisy).se_neg


def test_few_rows_claim_nothing():
    f, noisy, _ = simulate(60)
    posterior = estimate_rates(f, noisy)
    assert (posterior.rho_pos == 0).all()
    assert (posterior.ci_pos == [0, 1]).all()
    assert not posterior.predictable.any()


def test_curve_is_the_posterior_mean_and_monotone():
    f, noisy, _ = simulate(500, q=2)
    posterior = estimate_rates(f, noisy)
    curve, new = corrected_curve(posterior), np.linspace(-13, 13, 500)[:, None].repeat(2, 1)
    for j in range(2):
        a, b, w = (part[j].ravel() for part in (posterior.slope, posterior.offset, posterior.weights))
        exact = [sum(w * expit(a * value + b)) for value in new[:, j]]
        assert curve(new)[:, j] == pytest.approx(np.array(exact), abs=1e-3)
    assert (np.diff(curve.scores(new), axis=0) >= 0).all()
    assert curve.values.nbytes < 10_000


def test_curve_of_known_rates_inverts_the_noise():
    score, noisy, _ = simulate(50_000, 0.3, 0.2, q=1)
    zero = np.zeros(1)
    fixed = fixed_rates(score, noisy, zero + 0.3, zero + 0.2)
    assert fixed.slope.ravel() == pytest.approx(1, abs=0.05)
    assert corrected_curve(fixed)(score) == pytest.approx(expit(score), abs=0.02)
    assert fixed.rho_pos == 0.3


def test_curve_extrapolates_with_its_last_value():
    curve = CorrectedCurve(np.array([0.0, 1.0]), np.array([[0.0, 2.0]]))
    assert curve.scores(np.array([[-5.0], [0.5], [9.0]])).ravel() == pytest.approx([0, 1, 2])
