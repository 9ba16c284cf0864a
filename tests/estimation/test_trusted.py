"""Trusted rows: counts, intervals that cover, and what happens when two estimates meet."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from ccmn.estimation import LabelRates, Rate
from ccmn.estimation.rates import NEVER, UNINFORMED
from ccmn.estimation.trusted import combine, combine_rates, count_interval, count_label, rows_needed


def test_counts():
    true = np.array([1, 1, 1, 1, 0, 0, 1, np.nan, 0.0])
    noisy = np.array([0, 1, 1, 1, 1, 0, np.nan, 1, 0.0])
    label = count_label(noisy, true, "both")
    assert label.pos.value == pytest.approx(1.5 / 5)
    assert label.neg.value == pytest.approx(1.5 / 4)
    assert label.kind == "point"
    assert label.notes == ()


def test_a_declared_side_is_exactly_zero_and_a_contradiction_is_told():
    true, noisy = np.array([1, 1, 0, 0.0]), np.array([1, 0, 1, 0.0])
    partial, missing = (count_label(noisy, true, side) for side in ("partial", "missing"))
    assert partial.pos == NEVER
    assert missing.neg == NEVER
    assert "no label was lost, but 1 were" in partial.notes[0][1]
    assert "no label was added, but 1 were" in missing.notes[0][1]


def test_a_class_without_trusted_rows_is_not_known():
    label = count_label(np.array([1.0]), np.array([1.0]), "both")
    assert label.neg == UNINFORMED
    assert label.notes == (("unidentified", "no trusted row says anything about rho_neg"),)
    assert count_label(np.array([1.0]), np.array([1.0]), "missing").notes == ()


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_intervals_cover(rate):
    k = np.arange(51)
    inside = [count_interval(int(i), 50).low <= rate <= count_interval(int(i), 50).high for i in k]
    assert scipy.stats.binom.pmf(k, 50, rate)[inside].sum() == pytest.approx(0.9, abs=0.06)
    assert count_interval(0, 50).low == 0
    assert count_interval(50, 50).high == 1


def test_rows_needed_for_a_width():
    m = rows_needed(0.2, 0.06)
    counted = count_interval(round(0.2 * m), m)
    assert (counted.high - counted.low) / 2 == pytest.approx(0.06, abs=0.003)


def free(value, se, kind="upper bound"):
    rate = Rate(value, se, value - se, value + se)
    return LabelRates(rate, rate, kind, "anchor")


def counts(value, se):
    return free(value, se, "point")._replace(method="trusted")


def test_inverse_variances_weigh():
    rate = combine_rates(Rate(0.2, 0.1, 0, 1), Rate(0.3, 0.05, 0, 1))
    assert rate.value == pytest.approx((0.2 / 0.01 + 0.3 / 0.0025) / (1 / 0.01 + 1 / 0.0025))
    assert rate.se == pytest.approx((100 + 400) ** -0.5)
    assert rate.low == pytest.approx(rate.value - 1.645 * rate.se, abs=1e-4)


def test_what_contradicts_the_trusted_rows_is_dropped():
    label = combine(counts(0.1, 0.04), free(0.4, 0.05))
    assert label.pos.value == label.neg.value == 0.1
    assert label.kind == "point"
    assert [code for code, _ in label.notes] == ["no_anchor_suspected"]
    assert "rho_pos and rho_neg" in label.notes[0][1]


def test_what_leans_on_an_upper_bound_is_one():
    assert combine(counts(0.3, 0.1), free(0.25, 0.05)).kind == "upper bound"
    assert combine(counts(0.3, 0.04), free(0.25, 0.05)).kind == "point"
    assert combine(counts(0.3, 0.1), free(0.25, 0.05, "point")).kind == "point"


def test_an_upper_bound_only_pulls_down():
    assert combine(counts(0.2, 0.1), free(0.25, 0.05)).pos == counts(0.2, 0.1).pos
    assert combine(counts(0.2, 0.1), free(0.25, 0.05)).kind == "point"
    assert combine(counts(0.3, 0.1), free(0.25, 0.05)).pos.value == pytest.approx(0.26)
    assert combine(counts(0.2, 0.1), free(0.25, 0.05, "point")).pos.value == pytest.approx(0.24)


def test_the_unknown_gives_way_to_the_known():
    unknown = LabelRates(UNINFORMED, UNINFORMED, "point", "trusted", (("unidentified", "nothing"),))
    label = combine(unknown, free(0.3, 0.05))
    assert label.pos.value == 0.3
    assert label.notes == ()
    assert combine(counts(0.2, 0.1), unknown).pos.value == 0.2
    assert combine(unknown, unknown).notes == (("unidentified", "nothing"),)
    declared = counts(0.2, 0.1)._replace(pos=NEVER)
    assert combine(declared, free(0.3, 0.05)._replace(pos=NEVER)).pos == NEVER
