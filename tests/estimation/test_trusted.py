"""Trusted rows: counts, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from ccmn.estimation import Evidence, Rate, Trusted
from ccmn.estimation.noise_rates import NEVER, UNINFORMED
from ccmn.estimation.profile import Counts
from ccmn.estimation.trusted import contradict, count_interval, count_label, counts_of, rows_needed


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


def test_far_apart_contradicts_but_not_the_unknown():
    near, far = Rate(0.2, 0.04, 0.1, 0.3), Rate(0.4, 0.05, 0.3, 0.5)
    assert contradict(near, far)
    assert not contradict(near, Rate(0.3, 0.05, 0.2, 0.4))
    assert not contradict(UNINFORMED, far)
    assert not contradict(near, NEVER)


def test_counts_of_the_trusted_rows():
    Y = np.array([[1, 0], [0, np.nan], [1, 1], [0, 0.0]])
    evidence = Evidence(
        Y=Y, sides=("both", "both"), trusted=Trusted(np.array([0, 1, 3]), np.array([[1, 1], [1, 1], [0, 0.0]]))
    )
    assert counts_of(evidence) == [Counts(2, 1, 1, 0), Counts(1, 1, 1, 0)]
    assert counts_of(Evidence(Y=Y, sides=("both", "both"))) is None
