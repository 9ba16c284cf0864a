"""Equation (*): fits of slope and offset, likelihood surfaces, posterior of the rates and curve of the prediction."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import beta, norm

from ccmn.estimation.likelihood import forward_scores, implied_rho_neg, label_surfaces, likelihood_gain, rate_grid
from ccmn.estimation.link import bin_scores, fit_link
from ccmn.estimation.posterior import (
    Flips,
    corrected_curve,
    count_flips,
    fixed_rates,
    log_evidence,
    posterior_weights,
    rate_posterior,
)
from ccmn.training.default_settings import DEFAULTS

SLOPE = (0.2, 0.5)
POS, PHI = np.array([0.0, 0.2, 0.4]), np.array([0.0, 0.3, 0.6, 0.9])


def simulate(n=2000, rho_pos=0.2, rho_neg=0.1, q=3, seed=0, strength=3.0, intercept=-1.0):
    """Return scores, noisy labels and true labels that satisfy equation (*) with slope 1 and offset 0."""
    rng = np.random.default_rng(seed)
    f = strength * rng.normal(size=(n, q)) + intercept
    true = (rng.random((n, q)) < expit(f)).astype(float)
    flip = rng.random((n, q)) < np.where(true == 1, rho_pos, rho_neg)
    return f, np.where(flip, 1 - true, true), true


def with_features(n=3000, d=5, rho_pos=0.2, rho_neg=0.2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    f = X @ np.full(d, 1.5)
    y = (rng.random(n) < rho_neg + (1 - rho_pos - rho_neg) * expit(f)).astype(float)
    return X, f[:, None].astype(float), y[:, None], np.arange(n) % 3


# -- Slope and offset


def negative_likelihood(parameters, f, y, rho_pos, rho_neg):
    """Slow reference: the sum over rows."""
    u, b = parameters
    total = ((u - SLOPE[0]) / SLOPE[1]) ** 2 / 2
    for value, label in zip(f, y):
        P = rho_neg + (1 - rho_pos - rho_neg) / (1 + np.exp(-(np.exp(u) * value + b)))
        total -= np.log(P) if label else np.log(1 - P)
    return total


@pytest.mark.parametrize(("rho_pos", "rho_neg"), [(0, 0), (0.2, 0.1), (0.4, 0), (0, 0.3)])
@pytest.mark.parametrize("intercept", [-0.5, -6.0])  # rare labels: a rejected step is not convergence
def test_fit_equals_a_general_optimizer_on_all_rows(rho_pos, rho_neg, intercept):
    f, noisy, _ = simulate(60, rho_pos, rho_neg, q=1, intercept=intercept)
    bins = bin_scores(f, noisy[:, 0], np.ones(60))  # no more rows than bins: exact
    fit = fit_link(bins, np.array([rho_pos]), np.array([rho_neg]), SLOPE)
    data = f[:, 0], noisy[:, 0], rho_pos, rho_neg
    reference = minimize(negative_likelihood, [0.2, 0.0], data, method="Nelder-Mead", options={"maxiter": 2000})
    assert fit.value[0] == pytest.approx(-reference.fun, abs=0.05)


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


# -- Surfaces


@pytest.mark.parametrize("rho_pos", [0.0, 0.3])
@pytest.mark.parametrize("phi", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("o", [0.02, 0.3, 0.6])
def test_rho_neg_follows_from_the_share_of_false_labels(o, phi, rho_pos):
    pi = o * (1 - phi) / (1 - rho_pos)
    rho_neg = implied_rho_neg(o, rho_pos, phi)
    if np.isnan(rho_neg):
        assert rho_pos + phi * o / (1 - pi) > 0.85
        return
    assert o == pytest.approx(pi * (1 - rho_pos) + (1 - pi) * rho_neg)
    assert phi == pytest.approx(rho_neg * (1 - pi) / o)


def test_grid_leaves_out_impossible_pairs():
    assert np.isnan(implied_rho_neg(0.5, 0.5, 0.0))  # all labels would be true
    pos, _, neg = rate_grid(np.array([0.9]))
    possible = ~np.isnan(neg[0])
    assert possible[0, 0]
    assert not possible[np.searchsorted(pos, 0.5), 0]  # 90 % positives are not half of the true ones
    assert (pos[:, None] + neg[0])[possible].max() <= 0.85 + 1e-9


def fit_forward(X, y, seen, rho_pos, rho_neg):
    """Slow reference: accelerated gradient steps; every second one is tried on the other rows, and the best is kept."""
    Z, signal = X.astype(float), 1 - rho_pos - rho_neg
    gram = Z[seen].T @ Z[seen] / (4 * seen.sum())
    inverse = np.linalg.inv(gram + 30 * np.trace(gram) / len(gram) * np.eye(len(gram)))
    w = ahead_w = np.zeros(Z.shape[1])
    b = ahead_b = logit(np.clip((y[seen].mean() - rho_neg) / signal, 0.01, 0.99))
    fits = []
    for step in range(40):
        f = Z[~seen] @ w + b
        P = rho_neg + signal * expit(f)
        fits += [(np.log(np.where(y[~seen] == 1, P, 1 - P)).sum(), f)] * (step % 2 == 0)
        s = expit(Z[seen] @ ahead_w + ahead_b)
        P = rho_neg + signal * s
        slope = (y[seen] - P) / (P * (1 - P)) * signal * s * (1 - s) / seen.sum()
        new_w, new_b = ahead_w + inverse @ (Z[seen].T @ slope), ahead_b + 4 * slope.sum()
        ahead_w, ahead_b = (new + step / (step + 3) * (new - old) for new, old in ((new_w, w), (new_b, b)))
        w, b = new_w, new_b
    return max(fits, key=lambda fit: fit[0])[1]


def test_forward_corrected_scores_equal_a_slow_reference():
    X, _, Y, folds = with_features(300)
    Y, share = np.hstack([Y, np.zeros_like(Y), np.ones_like(Y)]), np.array([Y.mean(), 0, 1])
    scores, pairs = forward_scores(X, Y, np.ones(Y.shape), folds, share)
    assert [len(part) for part in pairs] == [8, 0, 0]
    for k, (column, (rho_pos, rho_neg)) in itertools.product(range(3), zip(scores[0].T, pairs[0])):
        expected = fit_forward(X, Y[:, 0], folds != k, rho_pos, rho_neg)
        assert column[folds == k] == pytest.approx(expected, abs=1e-3)


def test_surface_is_the_best_of_f_and_of_the_three_nearest_pairs():
    X, f, Y, folds = with_features(2000, rho_pos=0.3, rho_neg=0.3)
    f = f + 8 * np.random.default_rng(1).normal(size=f.shape)  # a poor score
    surfaces = label_surfaces(f, Y, X, folds=folds)
    scores, pairs = forward_scores(X, Y, np.ones(Y.shape), folds, surfaces.share)
    for a, b in itertools.product(range(0, 12, 4), range(0, 12, 4)):
        rho_pos, rho_neg = surfaces.rho_pos[a], surfaces.rho_neg[0, a, b]
        nearest = np.argsort([abs(rho_pos - pos) / 2 + abs(rho_neg - neg) for pos, neg in pairs[0]], kind="stable")[:3]
        bins = [bin_scores(c[:, None], Y[:, 0], np.ones(2000)) for c in (f[:, 0], *scores[0].T[nearest].astype(float))]
        fits = [fit_link(part, np.array([rho_pos]), np.array([rho_neg]), DEFAULTS.slope).value for part in bins]
        assert surfaces.value[0, a, b] == pytest.approx(max(fits), abs=0.5)


def test_constant_sample_weights_change_nothing():
    X, f, Y, folds = with_features(300)
    plain = label_surfaces(f, Y, X, folds=folds)
    for scale in (1e-9, 7.0, 1e12):
        assert label_surfaces(f, Y, X, np.full(300, scale), folds).value == pytest.approx(plain.value)


def test_missing_entries_do_not_count():
    X, f, Y, folds = with_features(400)
    Y[100:] = np.nan
    partly, alone = label_surfaces(f, Y), label_surfaces(f[:100], Y[:100])
    assert partly.n == 100
    assert partly.value[np.isfinite(partly.value)] == pytest.approx(alone.value[np.isfinite(alone.value)], abs=0.2)
    assert np.isfinite(label_surfaces(f, Y, X, folds=folds).value[0, 0, 0])


def test_gain_is_the_mean_over_its_standard_error():
    rng = np.random.default_rng(0)
    f, Y = rng.normal(size=(50, 1)), (rng.random((50, 1)) < 0.4).astype(float)
    o = Y.mean()
    gains = [np.log(expit(v if y else -v)) - np.log(o if y else 1 - o) for v, y in zip(f[:, 0], Y[:, 0])]
    expected = np.mean(gains) / (np.std(gains) / np.sqrt(50))
    assert likelihood_gain(f, Y, np.ones((50, 1)), np.array([o])) == pytest.approx(expected)


# -- Posterior


def enumerate_posterior(evidence):
    """Slow reference: the sum over all hyperparameters and pairs, one product at a time."""
    means = [np.linspace(0.01, m, 12) for m in DEFAULTS.max_means[:2]]
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


def test_rates_are_recovered():
    f, noisy, _ = simulate(20_000)
    posterior = rate_posterior(label_surfaces(f, noisy))
    assert posterior.rho_pos == pytest.approx(0.2, abs=0.05)
    assert posterior.rho_neg == pytest.approx(0.1, abs=0.03)
    assert posterior.predictable.all()
    for ci, rate in ((posterior.ci_pos, 0.2), (posterior.ci_neg, 0.1)):
        assert ((ci[:, 0] <= rate) & (rate <= ci[:, 1])).all()


def test_verified_rows_determine_the_rates_of_unpredictable_labels():
    rng = np.random.default_rng(0)
    noisy = (rng.random((500, 1)) < 0.4).astype(float)
    trusted = Flips(*(np.array([k]) for k in (3000, 900, 4000, 800)))
    surfaces = label_surfaces(np.zeros((500, 1)), noisy)
    posterior = rate_posterior(surfaces, trusted=trusted)
    assert posterior.rho_pos == pytest.approx(0.3, abs=0.03)
    assert posterior.rho_neg == pytest.approx(0.2, abs=0.03)
    assert not rate_posterior(surfaces).predictable


def test_flips_are_counted():
    noisy, true = np.array([[0, 1], [1, np.nan], [1, 1]]), np.array([[1, 1], [0, 1], [1, np.nan]])
    flips = count_flips(noisy, true)
    assert [list(part) for part in flips] == [[2, 1], [1, 0], [1, 0], [1, 0]]


def test_flips_that_contradict_a_declared_type_leave_finite_rates():
    f, noisy, _ = simulate(300, q=1)
    trusted = Flips(*(np.array([k]) for k in (20, 10, 20, 0)))
    posterior = rate_posterior(label_surfaces(f, noisy), "partial", trusted)
    assert posterior.rho_pos == 0
    assert np.isfinite(posterior.rho_neg)


def test_known_prevalence_has_a_normal_likelihood():
    f, noisy, _ = simulate(500, q=1)
    surfaces = label_surfaces(f, noisy)
    evidence, o = log_evidence(surfaces, None, np.array([0.3]))[0], surfaces.share[0]
    for a, b in ((0, 0), (4, 5), (8, 2)):
        rho_pos, phi, rho_neg = surfaces.rho_pos[a], surfaces.phi[b], surfaces.rho_neg[0, a, b]
        error = np.hypot(np.sqrt(o * (1 - o) / 500) / (1 - rho_pos - rho_neg), 0.02 * o)  # half a step of phi
        z = (o * (1 - phi) / (1 - rho_pos) - 0.3) / error
        assert evidence[a, b] == pytest.approx(norm.logpdf(z) - norm.logpdf(0))


def test_intervals_contain_those_of_the_verified_rows_where_equation_does_not_hold():
    f, noisy, _ = simulate(2000, 0.0, 0.0, q=1, strength=8.0)  # the features say that no label is false
    trusted = Flips(*(np.array([k]) for k in (100, 30, 100, 30)))
    posterior = rate_posterior(label_surfaces(f, noisy), trusted=trusted)
    assert posterior.ci_pos[0, 1] > 0.3
    assert posterior.ci_neg[0, 1] > 0.3


def test_few_rows_claim_nothing():
    f, noisy, _ = simulate(60)
    posterior = rate_posterior(label_surfaces(f, noisy))
    assert (posterior.rho_pos == 0).all()
    assert (posterior.ci_pos == [0, 1]).all()
    assert not posterior.predictable.any()


def test_curve_is_the_posterior_mean_and_monotone():
    f, noisy, _ = simulate(500, q=2)
    posterior = rate_posterior(label_surfaces(f, noisy))
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
    noisy[1:] = np.nan
    assert fixed_rates(score, noisy, zero, zero).prior == noisy[0]


def test_true_labels_correct_a_curve_whose_rates_are_wrong():
    score, noisy, true = simulate(5000, 0.3, 0.2, q=1)
    zero, known = np.zeros(1), np.where(np.arange(5000)[:, None] < 1000, true, np.nan)
    error, verified_error = (
        np.square(corrected_curve(fixed_rates(score, noisy, zero, zero, true=labels))(score) - expit(score)).mean()
        for labels in (None, known)
    )
    assert verified_error < 0.5 * error
    everywhere = fixed_rates(score, np.full(noisy.shape, 0.0), zero, zero, true=true)  # no noisy label is used
    assert everywhere.slope.ravel() == pytest.approx(1, abs=0.1)
