"""Label correlations: exact where the assumptions are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.estimation.correlations import by_instrument, instrument_label, select


def population(rho_pos, rho_neg, prior=0.4, m1=0.8, m0=0.3, size=10_000):
    """Rows (true, noisy, other) as often as expected; the other label depends on the true one alone."""
    rows = []
    for y, z, o in itertools.product((0, 1), repeat=3):
        chance = prior if y else 1 - prior
        chance *= (1 - rho_pos if z else rho_pos) if y else (rho_neg if z else 1 - rho_neg)
        m = m1 if y else m0
        rows += [(y, z, o)] * round(size * chance * (m if o else 1 - m))
    return np.array(rows, dtype=float).T


@given(st.sampled_from([0.0, 0.1, 0.25, 0.4]), st.sampled_from([0.0, 0.1, 0.25, 0.4]))
def test_an_instrument_and_rows_known_to_be_right_give_the_rates(rho_pos, rho_neg):
    true, noisy, other = population(rho_pos, rho_neg)
    right = true == noisy
    found = by_instrument(noisy, other, right & (noisy == 1), right & (noisy == 0))
    assert found == pytest.approx((rho_pos, rho_neg), abs=1e-3)


def test_what_says_nothing_is_left_out():
    true, noisy, other = population(0.2, 0.1)
    right = true == noisy
    assert by_instrument(noisy, np.zeros_like(other), right & (noisy == 1), right & (noisy == 0)) is None
    Y = np.stack([noisy, np.zeros_like(other)], 1)
    assert instrument_label(Y, 0, right, "both") is None
    assert instrument_label(Y[:40], 0, right[:40], "both") is None


def test_selected_rows_are_those_of_small_loss():
    rng = np.random.default_rng(0)
    noisy = (np.arange(400) < 200).astype(float)
    right = rng.random(400) < 0.7
    scores = np.where(right == (noisy == 1), 0.9, 0.1) + rng.normal(0, 0.02, 400)
    assert (select(scores, noisy, 0) == right).mean() > 0.98
