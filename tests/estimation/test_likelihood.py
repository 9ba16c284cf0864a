import numpy as np
import pytest
import scipy.special

from ccmn.estimation.likelihood import implied_rho_neg, label_surfaces, likelihood_gain, rate_grid
from ccmn.estimation.link import noisy_probability


def simulate(n=3000, d=5, rho_pos=0.2, rho_neg=0.2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    f = X @ np.full(d, 1.5)
    y = (rng.random(n) < noisy_probability(f, rho_pos, rho_neg)).astype(float)
    return X, f[:, None].astype(float), y[:, None], np.arange(n) % 3


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
    pos, phi, neg = rate_grid(np.array([0.9]))
    possible = ~np.isnan(neg[0])
    assert possible[0, 0]
    assert not possible[np.searchsorted(pos, 0.5), 0]  # 90 % positives are not half of the true ones
    assert (pos[:, None] + neg[0])[possible].max() <= 0.85 + 1e-9
    assert len(phi) == neg.shape[2]


def test_surface_is_largest_near_the_true_rates():
    X, f, Y, folds = simulate(20_000)
    surfaces = label_surfaces(f, Y, X, folds=folds)
    a, b = np.unravel_index(surfaces.value[0].argmax(), surfaces.value[0].shape)
    assert surfaces.rho_pos[a] == pytest.approx(0.2, abs=0.06)
    assert surfaces.rho_neg[0, a, b] == pytest.approx(0.2, abs=0.04)


def test_forward_corrected_scores_increase_the_likelihood_at_the_true_rates():
    X, f, Y, folds = simulate(rho_neg=0.4, rho_pos=0.1)
    f = f + 8 * np.random.default_rng(1).normal(size=f.shape)  # a poor score
    alone, both = label_surfaces(f, Y), label_surfaces(f, Y, X, folds=folds)
    assert both.value[np.isfinite(both.value)].max() > alone.value[np.isfinite(alone.value)].max() + 50
    assert (both.value >= alone.value).all()


def test_constant_sample_weights_change_nothing():
    X, f, Y, folds = simulate(300)
    plain = label_surfaces(f, Y, X, folds=folds)
    for scale in (1e-9, 7.0, 1e12):
        scaled = label_surfaces(f, Y, X, np.full(300, scale), folds)
        assert scaled.value == pytest.approx(plain.value)


def test_missing_entries_do_not_count():
    X, f, Y, folds = simulate(400)
    Y[100:] = np.nan
    partly, alone = label_surfaces(f, Y), label_surfaces(f[:100], Y[:100])
    assert partly.n == 100
    assert partly.value[np.isfinite(partly.value)] == pytest.approx(alone.value[np.isfinite(alone.value)], abs=0.2)
    assert np.isfinite(label_surfaces(f, Y, X, folds=folds).value[0, 0, 0])


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_constant_labels_have_flat_surfaces(value):
    surfaces = label_surfaces(np.zeros((20, 1)), np.full((20, 1), value))
    possible = np.isfinite(surfaces.value)
    assert possible[0, 0, 0]
    assert (surfaces.value[possible] == 0).all()


def test_gain_is_the_mean_over_its_standard_error():
    rng = np.random.default_rng(0)
    f, Y = rng.normal(size=(50, 1)), (rng.random((50, 1)) < 0.4).astype(float)
    o = Y.mean()
    gains = [np.log(scipy.special.expit(v if y else -v)) - np.log(o if y else 1 - o) for v, y in zip(f[:, 0], Y[:, 0])]
    expected = np.mean(gains) / (np.std(gains) / np.sqrt(50))
    assert likelihood_gain(f, Y, np.ones((50, 1)), np.array([o])) == pytest.approx(expected)
