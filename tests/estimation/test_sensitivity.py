"""Wrong rates: the cut, the targets and the decisions move as section 9 says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.estimation import sensitivity
from ccmn.noise import ClassConditionalNoise

NOISE = ClassConditionalNoise([0.2, 0.1], [0.1, 0.3])
ETA = np.random.default_rng(0).random((200, 2))


@given(st.floats(0.05, 0.4), st.floats(0.05, 0.4), st.floats(0.01, 0.04))
def test_the_cut_moves_by_the_formula(rho_pos, rho_neg, delta):
    noise = ClassConditionalNoise([rho_pos], [rho_neg])
    shift = delta / (2 * (1 - rho_pos - rho_neg))
    cut = sensitivity(noise, [[0.5]], delta).cut[:, 0]
    np.testing.assert_allclose(cut, [0.5 - shift, 0.5 + shift, 0.5 + shift, 0.5 - shift], atol=1e-12)


def test_targets_and_predictions_are_those_of_the_other_rates():
    result = sensitivity(NOISE, ETA, 0.05)
    other = ClassConditionalNoise(NOISE.rho_pos, NOISE.rho_neg + 0.05)
    for label, column in ((1, result.target_given_1), (0, result.target_given_0)):
        given = np.full((1, 2), label)
        np.testing.assert_allclose(column[2], (other.debias(given) - NOISE.debias(given))[0])
    signal = 1 - NOISE.rho_pos - NOISE.rho_neg
    new = (NOISE.rho_neg + signal * ETA - other.rho_neg) / (1 - other.rho_pos - other.rho_neg)
    np.testing.assert_allclose(result.moved[2], np.abs(new - ETA).mean(0))
    np.testing.assert_allclose(result.changed[2], ((new >= 0.5) != (ETA >= 0.5)).mean(0))
    between = (ETA >= 0.5) & (result.cut[2] > ETA)
    np.testing.assert_allclose(result.changed[2], between.mean(0))


def test_rates_stay_rates():
    result = sensitivity(ClassConditionalNoise([0.0], [0.95]), [[0.5]], 0.2)
    assert np.isfinite(result.moved).all()
    assert result.cut[1, 0] == pytest.approx(0.5)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="delta must be between 0 and 1; got 0"):
        sensitivity(NOISE, ETA, 0)
    with pytest.raises(ValueError, match="proba must have 2 labels"):
        sensitivity(NOISE, ETA[:, :1])
    with pytest.raises(ValueError, match="proba must hold probabilities"):
        sensitivity(NOISE, 2 * ETA)
