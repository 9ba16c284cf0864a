"""The lower of two bounds, rate by rate; what is not known bounds nothing."""

from __future__ import annotations

from ccmn.estimation import LabelRates, Rate
from ccmn.estimation.anchor import lower_of
from ccmn.estimation.noise_rates import NEVER, UNINFORMED

LOW, HIGH = Rate(0.2, 0.05, 0.1, 0.3), Rate(0.4, 0.05, 0.3, 0.5)


def label(pos, neg, method, *notes):
    return LabelRates(pos, neg, "upper bound", method, notes)


def test_each_rate_comes_from_the_lower():
    assert lower_of(label(LOW, HIGH, "a"), label(HIGH, LOW, "b")) == label(LOW, LOW, "a, b")
    assert lower_of(label(LOW, LOW, "a"), label(HIGH, HIGH, "b")) == label(LOW, LOW, "a")


def test_a_declared_side_stays_zero():
    assert lower_of(label(NEVER, HIGH, "a"), label(NEVER, LOW, "b")).pos == NEVER


def test_the_unknown_bounds_nothing():
    doubt = ("unidentified", "one class")
    assert lower_of(label(UNINFORMED, HIGH, "a", doubt), label(HIGH, HIGH, "b")) == label(HIGH, HIGH, "a, b")
    unknown = lower_of(label(UNINFORMED, LOW, "a", doubt), label(UNINFORMED, HIGH, "b", doubt))
    assert unknown.pos == UNINFORMED
    assert unknown.notes == (doubt,)
