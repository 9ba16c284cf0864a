"""Held-out likelihood: stacked models, calibration and the surface over the grid of rates."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import likelihood
from ccmn.estimation.likelihood import (
    GRIDS,
    StackedModels,
    bin_scores,
    calibrate,
    fitted_pairs,
    held_out_logits,
    label_surfaces,
    likelihood_gradient,
    log_likelihood,
    number_of_rows,
    surface,
)
from ccmn.estimation.out_of_fold import stratified_folds
from ccmn.noise import ClassConditionalNoise


@given(
    st.sampled_from(GRIDS["both"].pos[:9].tolist()),
    st.sampled_from(GRIDS["both"].neg[:16].tolist()),
    st.floats(0.5, 3.0),
    st.floats(-2.0, 1.0),
)
def test_true_pair_is_most_likely_in_exact_population(rho_pos, rho_neg, slope, offset):
    """Bins with the expected numbers of zeros and ones are most likely at the true rates."""
    scores = np.linspace(-6, 6, 41)
    g = rho_neg + (1 - rho_pos - rho_neg) * scipy.special.expit(slope * scores + offset)
    ones, zeros = 1000 * g, 1000 * (1 - g)
    pos, neg = (rates.ravel() for rates in GRIDS["both"].pairs)
    tiled = (np.tile(part, (pos.size, 1)) for part in (scores, zeros, ones))
    value = np.where(pos + neg < 0.85, calibrate(*tiled, pos, neg).value, -np.inf)
    best = value.argmax()
    # The prior on the slope may change the order of neighboring pairs only.
    assert abs(pos[best] - rho_pos) < 0.051
    assert abs(neg[best] - rho_neg) < 0.021


def test_calibration_equals_general_optimizer():
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(size=12))
    ones = 20 * scipy.special.expit(scores) + rng.random(12)
    zeros = 21 - ones
    for rho_pos, rho_neg in ((0.0, 0.0), (0.2, 0.3), (0.4, 0.0)):

        def loss(at, rho_pos=rho_pos, rho_neg=rho_neg):
            g = rho_neg + (1 - rho_pos - rho_neg) * scipy.special.expit(np.exp(at[0]) * scores + at[1])
            return -(ones @ np.log(g) + zeros @ np.log(1 - g)) + 0.5 * ((at[0] - 0.2) / 0.5) ** 2

        found = calibrate(*(part[None] for part in (scores, zeros, ones)), np.array([rho_pos]), np.array([rho_neg]))
        expected = scipy.optimize.minimize(
            loss, [0.2, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}
        )
        assert found.value[0] == pytest.approx(-expected.fun, abs=1e-3)


def test_bins_contain_every_row():
    rng = np.random.default_rng(0)
    for n in (1, 5, 64, 1000):
        scores, positive = rng.normal(size=n), rng.random(n) < 0.3
        centers, zeros, ones = bin_scores(scores, positive)
        assert (np.diff(centers) >= 0).all()
        assert ones.sum() == positive.sum()
        assert (zeros + ones).sum() == n
        assert centers @ (zeros + ones) == pytest.approx(scores.sum())


def test_fitted_pairs():
    assert fitted_pairs("both", 0.3)[0].tolist() == [0, 0]
    assert (fitted_pairs("both", 0.2)[:, 1] <= 0.25).all()
    assert not fitted_pairs("partial", 0.5)[:, 0].any()
    assert not fitted_pairs("missing", 0.5)[:, 1].any()
    assert len(fitted_pairs("both", 1.0)) >= 1


def test_surface_of_single_class_is_flat():
    logits, pairs = np.zeros((20, 1)), np.zeros((1, 2))
    for noisy in (np.zeros(20), np.ones(20), np.full(20, np.nan)):
        values = surface(logits, noisy, pairs, GRIDS["both"])
        assert set(values[np.isfinite(values)]) == {0.0}


def test_surface_ignores_unobserved_rows():
    rng = np.random.default_rng(0)
    logits, noisy = rng.normal(size=(60, 1)), (rng.random(60) < 0.4).astype(float)
    pairs = np.zeros((1, 2))
    masked = np.concatenate([noisy, np.full(10, np.nan)])
    more = np.concatenate([logits, rng.normal(size=(10, 1))])
    np.testing.assert_array_equal(
        surface(logits, noisy, pairs, GRIDS["both"]), surface(more, masked, pairs, GRIDS["both"])
    )


def test_surface_supports_true_rates_and_excludes_no_noise():
    noise = ClassConditionalNoise([0.2, 0.4], [0.3, 0.1])
    data = make_noisy_multilabel(3000, 5, 2, strength=6.0, noise=noise, random_state=0)
    found = label_surfaces(data.X, data.Y_noisy.astype(float), ("both", "both"), 0)
    for j, values in enumerate(found.values):
        at = int(noise.rho_pos[j] / 0.05 + 0.5), int(noise.rho_neg[j] / 0.02 + 0.5)
        assert values.max() - values[at] < 4
        assert values.max() - values[0, 0] > 20
    assert found.scores.shape == (3000, 2)


def test_number_of_rows_decreases_with_work():
    pairs = [np.zeros((20, 2))]
    assert number_of_rows(100, pairs * 5) == 20_000
    assert 2_000 < number_of_rows(100, pairs * 50) < 20_000
    assert number_of_rows(10_000, pairs * 5000) == 2_000


NOISE = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.0])
DATA = make_noisy_multilabel(400, 4, 3, strength=5.0, noise=NOISE, random_state=0)
Y = DATA.Y_noisy.astype(float)
X = DATA.X.astype(float)
FOLDS = stratified_folds(Y, 3, np.random.default_rng(0))
PAIRS = [np.array([[0.0, 0.0], [0.2, 0.1]]), np.array([[0.0, 0.0]]), np.array([[0.0, 0.0], [0.4, 0.0], [0.2, 0.2]])]


def test_stacked_models_equal_separate_models(monkeypatch):
    stacked = held_out_logits(X, Y, PAIRS, FOLDS)
    assert [found.shape for found in stacked] == [(400, 2), (400, 1), (400, 3)]
    monkeypatch.setattr(likelihood, "MAX_ENTRIES", 1)
    for one, other in zip(stacked, held_out_logits(X, Y, PAIRS, FOLDS)):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_label_is_not_predicted_from_itself():
    """A random label cannot be predicted, although its column is a feature of the other labels."""
    chance = Y.copy()
    chance[:, 0] = np.random.default_rng(1).random(400) < 0.5
    logits = held_out_logits(X, chance, PAIRS, FOLDS)[0][:, 0]
    assert abs(np.corrcoef(logits, chance[:, 0])[0, 1]) < 0.2


def test_true_labels_are_predicted():
    logits = held_out_logits(X, Y, PAIRS, FOLDS)
    for j, pair in enumerate((1, 0, 1)):
        assert np.corrcoef(logits[j][:, pair], DATA.Y[:, j])[0, 1] > 0.6


def test_unobserved_rows_give_finite_logits():
    masked = Y.copy()
    masked[::7, 1] = np.nan
    found = held_out_logits(X, masked, PAIRS, FOLDS)
    assert all(np.isfinite(part).all() for part in found)


def test_gradient_of_the_likelihood():
    label = torch.zeros(3, dtype=torch.long)
    models = StackedModels(label, torch.tensor([0.0, 0.2, 0.3]).double(), torch.tensor([0.0, 0.1, 0.4]).double(), label)
    logits = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = (torch.arange(18).view(6, 3) % 2).double()
    log_likelihood(logits, labels, models).sum().backward()
    np.testing.assert_allclose(likelihood_gradient(logits, labels, models).detach(), logits.grad, atol=1e-10)
