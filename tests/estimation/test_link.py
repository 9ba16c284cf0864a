import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from ccmn.estimation.link import bin_scores, fit_link, noisy_probability

PRIOR = (0.2, 0.5)


def simulate(n=400, rho_pos=0.2, rho_neg=0.1, seed=0):
    rng = np.random.default_rng(seed)
    f = 2 * rng.normal(size=n)
    y = (rng.random(n) < noisy_probability(f, rho_pos, rho_neg, 1.5, -0.5)).astype(float)
    return f, y


def negative_likelihood(parameters, f, y, rho_pos, rho_neg):
    """Slow reference: the sum over rows."""
    u, b = parameters
    total = ((u - PRIOR[0]) / PRIOR[1]) ** 2 / 2
    for value, label in zip(f, y):
        P = rho_neg + (1 - rho_pos - rho_neg) / (1 + np.exp(-(np.exp(u) * value + b)))
        total -= np.log(P) if label else np.log(1 - P)
    return total


@pytest.mark.parametrize(("rho_pos", "rho_neg"), [(0, 0), (0.2, 0.1), (0.4, 0), (0, 0.3)])
def test_fit_equals_a_general_optimizer_on_all_rows(rho_pos, rho_neg):
    f, y = simulate(60)
    bins = bin_scores(f[:, None], y, np.ones(60))  # no more rows than bins: exact
    fit = fit_link(bins, np.array([rho_pos]), np.array([rho_neg]), PRIOR)
    reference = minimize(negative_likelihood, [0.2, 0.0], (f, y, rho_pos, rho_neg), method="Nelder-Mead")
    assert fit.value[0] == pytest.approx(-reference.fun, abs=0.01)
    assert np.log(fit.slope[0]) == pytest.approx(reference.x[0], abs=0.05)


def test_fit_recovers_slope_and_offset():
    f, y = simulate(200_000)
    fit = fit_link(bin_scores(f[:, None], y, np.ones(len(f))), np.array([0.2]), np.array([0.1]))
    assert fit.slope[0] == pytest.approx(1.5, rel=0.05)
    assert fit.offset[0] == pytest.approx(-0.5, abs=0.05)


def test_likelihood_is_largest_near_the_true_rates():
    f, y = simulate(100_000)
    pos, neg = (grid.ravel() for grid in np.meshgrid([0, 0.1, 0.2, 0.3], [0, 0.1, 0.2], indexing="ij"))
    best = fit_link(bin_scores(f[:, None], y, np.ones(len(f))), pos, neg).value.argmax()
    assert (pos[best], neg[best]) == (0.2, 0.1)


def test_bins_of_weighted_rows_equal_those_of_repeated_rows():
    rng = np.random.default_rng(0)
    f, y = np.arange(10.0), rng.random(10)
    weighted = bin_scores(f[:, None], y, np.full(10, 2.0))
    assert weighted.ones.sum() == pytest.approx(2 * y.sum())
    assert (weighted.ones + weighted.zeros).sum() == pytest.approx(20)
    assert weighted.f.ravel() == pytest.approx(f)


@pytest.mark.parametrize("y", [np.zeros(50), np.ones(50), (np.arange(50) > 20).astype(float)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3])
def test_separable_and_constant_labels_give_finite_fits(y, scale):
    bins = bin_scores(scale * np.linspace(-1, 1, 50)[:, None], y, np.ones(50))
    fit = fit_link(bins, np.array([0.0, 0.3, 0.0]), np.array([0.0, 0.0, 0.4]))
    assert all(np.isfinite(part).all() for part in fit)
    assert (fit.slope > 0).all()


def test_many_problems_are_fitted_independently():
    f, y = simulate()
    scores = np.stack([f, -f, f**2], 1)
    bins = bin_scores(scores, y, np.ones(len(y)))
    together = fit_link(bins, np.full(3, 0.1), np.full(3, 0.1)).value
    alone = [
        fit_link(bin_scores(column[:, None], y, np.ones(len(y))), np.array([0.1]), np.array([0.1])).value[0]
        for column in scores.T
    ]
    assert together == pytest.approx(alone, abs=0.05)
    assert noisy_probability(f, 0.1, 0.2) == pytest.approx(0.2 + 0.7 * expit(f))


@pytest.mark.parametrize("seed", range(8))
def test_a_rejected_step_is_not_convergence(seed):
    rng = np.random.default_rng(seed)
    f = 5 * rng.normal(size=60) - 4
    y = (rng.random(60) < 0.6 * expit(1.5 * f)).astype(float)  # rare labels, of which many are missing
    fit = fit_link(bin_scores(f[:, None], y, np.ones(60)), np.zeros(1), np.zeros(1), PRIOR)
    reference = minimize(negative_likelihood, [0.2, 0.0], (f, y, 0, 0), method="Nelder-Mead")
    assert fit.value[0] == pytest.approx(-reference.fun, abs=0.05)
