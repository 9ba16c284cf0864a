"""Rare labels lean on the others, by as much as they should."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.estimation import LabelRates, Rate
from ccmn.estimation.pooling import pool
from ccmn.estimation.rates import NEVER, UNINFORMED


def labels(values, se):
    rates = [Rate(v, s, max(v - s, 0), min(v + s, 1)) for v, s in zip(values, np.broadcast_to(se, len(values)))]
    return [LabelRates(NEVER, rate, "point", "test") for rate in rates]


def values(result):
    return np.array([label.neg.value for label in result])


def test_sure_estimates_stay():
    given = labels([0.1, 0.3, 0.6], 1e-4)
    np.testing.assert_allclose(values(pool(given, np.full(3, 500))), [0.1, 0.3, 0.6], atol=1e-4)


def test_scatter_that_errors_explain_goes():
    rng = np.random.default_rng(0)
    result = pool(labels(0.3 + 0.05 * rng.standard_normal(30), 0.05), np.full(30, 500))
    np.testing.assert_allclose(values(result), 0.3, atol=0.03)
    assert result[0].neg.se < 0.05
    assert result[0].neg.low < result[0].neg.value < result[0].neg.high


def test_pooling_lowers_the_error():
    rng = np.random.default_rng(1)
    true = rng.choice([0.2, 0.3, 0.4], 40)
    given = labels(np.clip(true + 0.08 * rng.standard_normal(40), 0, 1), 0.08)
    pooled = values(pool(given, np.full(40, 500)))
    assert np.square(pooled - true).mean() < 0.8 * np.square(values(given) - true).mean()


def test_rare_labels_take_the_mean_and_say_so():
    given = [*labels([0.3, 0.32, 0.28], 0.02), LabelRates(NEVER, UNINFORMED, "point", "test")]
    result = pool(given, np.array([500, 500, 500, 3]))
    assert result[3].neg.value == pytest.approx(0.3, abs=0.02)
    assert [code for code, _ in result[3].notes] == ["shrunk"]
    assert result[0].notes == ()
    assert all(label.pos == NEVER for label in result)


def test_a_single_informed_label_is_left_alone():
    given = labels([0.3, 0.9], 0.1)
    assert pool(given, np.array([500, 3])) == given


def test_rates_of_zero_stay_near_zero():
    result = pool(labels([0.0, 0.0, 0.01], 0.005), np.full(3, 500))
    assert values(result).max() < 0.02
