"""Anchor bounds on scores with known answers, and the smaller of two bounds."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.estimation.noise_rates import UNKNOWN_RATE, ZERO_RATE, LabelRates, Rate
from ccmn.estimation.score_estimators import anchor_label, mean_of_highest, smaller_bounds


def test_rates_with_anchor_points():
    rng = np.random.default_rng(0)
    posterior = rng.random(20_000)
    positive = rng.random(20_000) < 0.2 + 0.5 * (posterior > 0.5)  # rho_neg = .2, rho_pos = .3
    label = anchor_label(posterior, positive, "both")
    assert label.pos.value == pytest.approx(0.3, abs=0.1)
    assert label.neg.value == pytest.approx(0.2, abs=0.1)
    assert label.pos.se == pytest.approx(np.sqrt(0.3 * 0.7 / 200), abs=0.01)
    assert label.kind == "upper bound"
    assert label.pos.low == label.neg.low == 0


def test_excess_without_anchor_points_matches_theory():
    rng = np.random.default_rng(0)
    eta = np.where(rng.random(50_000) < 0.5, 0.1, 0.8)
    positive = rng.random(50_000) < 0.2 + 0.6 * eta
    label = anchor_label(eta, positive, "both")
    assert label.pos.value == pytest.approx(0.2 + 0.6 * 0.2, abs=0.03)
    assert label.neg.value == pytest.approx(0.2 + 0.6 * 0.1, abs=0.03)


def test_excluded_rate_is_exactly_zero():
    scores, positive = np.arange(100.0), np.arange(100) >= 60
    assert anchor_label(scores, positive, "partial").pos == (0, 0, 0, 0)
    assert anchor_label(scores, positive, "missing").neg == (0, 0, 0, 0)


def test_mean_of_highest_averages_ties_independent_of_order():
    rng = np.random.default_rng(1)
    values, scores = rng.random(40) < 0.5, rng.integers(4, size=40).astype(float)
    order = rng.permutation(40)
    for k in (1, 7, 20, 40):
        assert mean_of_highest(values, scores, k) == pytest.approx(mean_of_highest(values[order], scores[order], k))
    assert mean_of_highest(values, np.zeros(40), 3) == pytest.approx(values.mean())


def test_few_rows_and_single_class():
    for positive in (np.array([True, False]), np.array([True]), np.zeros(5, dtype=bool), np.zeros(0, dtype=bool)):
        label = anchor_label(np.arange(float(positive.size)), positive, "both")
        assert np.isfinite([*label.pos, *label.neg]).all()
        known = positive.any() and not positive.all()
        assert [code for code, _ in label.notes] == ([] if known else ["unidentified"])


LOW, HIGH = Rate(0.2, 0.05, 0.1, 0.3), Rate(0.4, 0.05, 0.3, 0.5)


def label(pos, neg, method, *notes):
    return LabelRates(pos, neg, "upper bound", method, notes)


def test_smaller_bound_is_selected_per_rate():
    assert smaller_bounds(label(LOW, HIGH, "a"), label(HIGH, LOW, "b")) == label(LOW, LOW, "a, b")
    assert smaller_bounds(label(LOW, LOW, "a"), label(HIGH, HIGH, "b")) == label(LOW, LOW, "a")


def test_smaller_bounds_keep_excluded_rate():
    assert smaller_bounds(label(ZERO_RATE, HIGH, "a"), label(ZERO_RATE, LOW, "b")).pos == ZERO_RATE


def test_unknown_rate_is_no_bound():
    note = ("unidentified", "one class")
    assert smaller_bounds(label(UNKNOWN_RATE, HIGH, "a", note), label(HIGH, HIGH, "b")) == label(HIGH, HIGH, "a, b")
    unknown = smaller_bounds(label(UNKNOWN_RATE, LOW, "a", note), label(UNKNOWN_RATE, HIGH, "b", note))
    assert unknown.pos == UNKNOWN_RATE
    assert unknown.notes == (note,)
