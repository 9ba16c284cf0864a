from __future__ import annotations

import itertools

import numpy as np
import pytest

from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise
from ccmn.review.trusted import TrustedRows
from ccmn.review.weights import SPREAD, row_weights

NOISE = ClassConditionalNoise([0.3, 0.0], [0.1, 0.4])
LABELS = np.array([[1, 1], [0, 1], [0, 0], [1, 0]])
TRUSTED = TrustedRows(np.array([0, 2, 3]), np.array([[1, 0], [1, np.nan], [0, 0]], dtype=np.float32))


def test_the_weight_is_the_inverse_of_the_variance():
    """That of debiased labels, by listing what they can be."""
    rates = NoiseRates.known(NOISE, LABELS)
    variances = []
    for j, prior in enumerate(rates.prior):
        flips = {1: NOISE.rho_pos[j], 0: NOISE.rho_neg[j]}
        found = 0.0
        for true, noisy in itertools.product((0, 1), repeat=2):
            chance = (prior if true else 1 - prior) * (flips[true] if noisy != true else 1 - flips[true])
            p = (noisy - NOISE.rho_neg[j]) / (1 - NOISE.rho_pos[j] - NOISE.rho_neg[j])
            found += chance * (p - true) ** 2
        variances.append(found)
    weights = row_weights(4, rates, TRUSTED, [0, 1, 2])
    assert weights[0] == pytest.approx((SPREAD + np.mean(variances)) / SPREAD)


def test_only_rows_drawn_by_lot_and_known_in_full_weigh_more():
    weights = row_weights(4, NoiseRates.known(NOISE, LABELS), TRUSTED, [0, 1, 2])
    assert weights[0] > 1
    np.testing.assert_array_equal(weights[1:], 1)  # not answered; not in full; not drawn
    np.testing.assert_array_equal(row_weights(4, NoiseRates.known(NOISE, LABELS), TRUSTED, []), 1)


def test_without_noise_all_rows_weigh_the_same():
    none = ClassConditionalNoise(0.0, 0.0, n_labels=2)
    np.testing.assert_array_equal(row_weights(4, NoiseRates.known(none, LABELS), TRUSTED, [0, 1, 2, 3]), 1)
