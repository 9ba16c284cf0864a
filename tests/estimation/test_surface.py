"""The likelihood over the grid: exact where the population is, calibrated, and defined where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from ccmn.data import make_noisy_multilabel
from ccmn.estimation.likelihood import (
    GRIDS,
    calibrated_likelihood,
    cells_of,
    fitted_pairs,
    label_surfaces,
    rows_to_look_at,
    surface,
)
from ccmn.noise import ClassConditionalNoise


@given(
    st.sampled_from(GRIDS["both"].pos[:9].tolist()),
    st.sampled_from(GRIDS["both"].neg[:16].tolist()),
    st.floats(0.5, 3.0),
    st.floats(-2.0, 1.0),
)
def test_of_an_exact_population_the_true_pair_is_the_likeliest(rho_pos, rho_neg, slope, offset):
    """Cells that hold the expected numbers of zeros and ones: no pair of rates explains them better than the true."""
    scores = np.linspace(-6, 6, 41)
    g = rho_neg + (1 - rho_pos - rho_neg) * scipy.special.expit(slope * scores + offset)
    ones, zeros = 1000 * g, 1000 * (1 - g)
    pos, neg = (side.ravel() for side in GRIDS["both"].pairs)
    tiled = (np.tile(part, (pos.size, 1)) for part in (scores, zeros, ones))
    value = np.where(pos + neg < 0.85, calibrated_likelihood(*tiled, pos, neg), -np.inf)
    best = value.argmax()
    # The prior about the slope may tip the balance between neighbours, no further.
    assert abs(pos[best] - rho_pos) < 0.051
    assert abs(neg[best] - rho_neg) < 0.021


def test_the_newton_steps_find_what_a_general_optimiser_finds():
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(size=12))
    ones = 20 * scipy.special.expit(scores) + rng.random(12)
    zeros = 21 - ones
    for rho_pos, rho_neg in ((0.0, 0.0), (0.2, 0.3), (0.4, 0.0)):

        def loss(at, rho_pos=rho_pos, rho_neg=rho_neg):
            g = rho_neg + (1 - rho_pos - rho_neg) * scipy.special.expit(np.exp(at[0]) * scores + at[1])
            return -(ones @ np.log(g) + zeros @ np.log(1 - g)) + 0.5 * ((at[0] - 0.2) / 0.5) ** 2

        found = calibrated_likelihood(
            *(part[None] for part in (scores, zeros, ones)), np.array([rho_pos]), np.array([rho_neg])
        )
        expected = scipy.optimize.minimize(
            loss, [0.2, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}
        )
        assert found[0] == pytest.approx(-expected.fun, abs=1e-3)


def test_cells_keep_every_row():
    rng = np.random.default_rng(0)
    for n in (1, 5, 64, 1000):
        scores, positive = rng.normal(size=n), rng.random(n) < 0.3
        centres, zeros, ones = cells_of(scores, positive)
        assert (np.diff(centres) >= 0).all()
        assert ones.sum() == positive.sum()
        assert (zeros + ones).sum() == n
        assert centres @ (zeros + ones) == pytest.approx(scores.sum())


def test_pairs_that_are_fitted():
    assert fitted_pairs("both", 0.3)[0].tolist() == [0, 0]
    assert (fitted_pairs("both", 0.2)[:, 1] <= 0.25).all()
    assert not fitted_pairs("partial", 0.5)[:, 0].any()
    assert not fitted_pairs("missing", 0.5)[:, 1].any()
    assert len(fitted_pairs("both", 1.0)) >= 1


def test_a_column_of_one_kind_is_flat():
    logits, pairs = np.zeros((20, 1)), np.zeros((1, 2))
    for noisy in (np.zeros(20), np.ones(20), np.full(20, np.nan)):
        values = surface(logits, noisy, pairs, GRIDS["both"])
        assert set(values[np.isfinite(values)]) == {0.0}


def test_rows_not_observed_do_not_count():
    rng = np.random.default_rng(0)
    logits, noisy = rng.normal(size=(60, 1)), (rng.random(60) < 0.4).astype(float)
    pairs = np.zeros((1, 2))
    masked = np.concatenate([noisy, np.full(10, np.nan)])
    more = np.concatenate([logits, rng.normal(size=(10, 1))])
    np.testing.assert_array_equal(
        surface(logits, noisy, pairs, GRIDS["both"]), surface(more, masked, pairs, GRIDS["both"])
    )


def test_the_truth_is_not_excluded_and_no_noise_is():
    noise = ClassConditionalNoise([0.2, 0.4], [0.3, 0.1])
    data = make_noisy_multilabel(3000, 5, 2, strength=6.0, noise=noise, random_state=0)
    found = label_surfaces(data.X, data.Y_noisy.astype(float), ("both", "both"), 0)
    for j, values in enumerate(found.values):
        at = int(noise.rho_pos[j] / 0.05 + 0.5), int(noise.rho_neg[j] / 0.02 + 0.5)
        assert values.max() - values[at] < 4
        assert values.max() - values[0, 0] > 20
    assert found.scores.shape == (3000, 2)


def test_more_labels_and_features_leave_fewer_rows():
    pairs = [np.zeros((20, 2))]
    assert rows_to_look_at(100, pairs * 10) == 20_000
    assert 2_000 < rows_to_look_at(100, pairs * 50) < 20_000
    assert rows_to_look_at(10_000, pairs * 5000) == 2_000
