"""Trusted rows and known prevalence: counts, intervals and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from ccmn.estimation import estimate_noise, trusted_rows_needed
from ccmn.estimation.evidence import Evidence, Trusted
from ccmn.estimation.noise_rates import UNKNOWN_RATE, ZERO_RATE, LabelRates, Rate
from ccmn.estimation.profile import Counts
from ccmn.estimation.trusted import (
    contradict,
    count_flips,
    count_label,
    flip_counts,
    jeffreys_rate,
    rate_from_prevalence,
)


def test_rates_are_counted():
    true = np.array([1, 1, 1, 1, 0, 0, 1, np.nan, 0.0])
    noisy = np.array([0, 1, 1, 1, 1, 0, np.nan, 1, 0.0])
    label = count_label(flip_counts(noisy, true), "both")
    assert label.pos.value == pytest.approx(1.5 / 5)
    assert label.neg.value == pytest.approx(1.5 / 4)
    assert label.kind == "point"
    assert label.notes == ()


def test_contradicted_noise_type_is_flagged():
    true, noisy = np.array([1, 1, 0, 0.0]), np.array([1, 0, 1, 0.0])
    partial, missing = (count_label(flip_counts(noisy, true), each) for each in ("partial", "missing"))
    assert partial.pos == ZERO_RATE
    assert missing.neg == ZERO_RATE
    assert "no label was removed, but 1 were" in partial.notes[0][1]
    assert "no label was added, but 1 were" in missing.notes[0][1]


def test_class_without_trusted_rows_is_unidentified():
    label = count_label(Counts(1, 0, 0, 0), "both")
    assert label.neg == UNKNOWN_RATE
    assert [code for code, _ in label.notes] == ["unidentified"]
    assert "rho_neg" in label.notes[0][1]
    assert count_label(Counts(1, 0, 0, 0), "missing").notes == ()


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_jeffreys_intervals_cover(rate):
    k = np.arange(51)
    inside = [jeffreys_rate(int(i), 50).low <= rate <= jeffreys_rate(int(i), 50).high for i in k]
    assert scipy.stats.binom.pmf(k, 50, rate)[inside].sum() == pytest.approx(0.9, abs=0.06)
    assert jeffreys_rate(0, 50).low == 0
    assert jeffreys_rate(50, 50).high == 1


def test_trusted_rows_needed():
    m = trusted_rows_needed(0.2, 0.06)
    counted = jeffreys_rate(round(0.2 * m), m)
    assert (counted.high - counted.low) / 2 == pytest.approx(0.06, abs=0.003)


def test_distant_rates_contradict_unless_unknown():
    near, far = Rate(0.2, 0.04, 0.1, 0.3), Rate(0.4, 0.05, 0.3, 0.5)

    def names(first, second):
        one, two = (LabelRates(rate, near, "point", "test") for rate in (first, second))
        return contradict(one, two)

    assert names(near, far) == ["rho_pos"]
    assert not names(near, Rate(0.3, 0.05, 0.2, 0.4))
    assert not names(UNKNOWN_RATE, far)
    assert not names(near, ZERO_RATE)


def test_count_flips():
    Y = np.array([[1, 0], [0, np.nan], [1, 1], [0, 0.0]])
    evidence = Evidence(
        Y=Y, noise_type=("both", "both"), trusted=Trusted(np.array([0, 1, 3]), np.array([[1, 1], [1, 1], [0, 0.0]]))
    )
    assert count_flips(evidence) == [Counts(2, 1, 1, 0), Counts(1, 1, 1, 0)]
    assert count_flips(Evidence(Y=Y, noise_type=("both", "both"))) is None


@given(st.floats(0.05, 0.95), st.floats(0.0, 0.9))
def test_closed_forms_are_exact(prior, rho):
    added = rate_from_prevalence(rho * (1 - prior) + prior, 1000, prior, "partial")
    assert added.neg.value == pytest.approx(rho, abs=1e-12)
    assert added.pos.value == 0
    removed = rate_from_prevalence((1 - rho) * prior, 1000, prior, "missing")
    assert removed.pos.value == pytest.approx(rho, abs=1e-12)
    assert removed.neg.value == 0


def test_impossible_prevalence_is_flagged():
    assert rate_from_prevalence(0.2, 1000, 0.5, "partial").notes[0][0] == "noise_type_contradicted"
    assert rate_from_prevalence(0.5, 1000, 0.2, "missing").notes[0][0] == "noise_type_contradicted"
    assert rate_from_prevalence(0.5, 1000, 0.0, "missing").notes[0][0] == "unidentified"
    assert rate_from_prevalence(0.5, 0, 0.5, "partial").notes[0][0] == "unidentified"


def test_known_prevalence_needs_labels_only():
    Y = (np.random.default_rng(0).random((2000, 2)) < [0.4, 0.5]).astype(int)
    rates = estimate_noise(Y_noisy=Y, noise_type="partial", prevalence=[0.1, 0.2])
    np.testing.assert_allclose(rates.rho_neg, (Y.mean(0) - [0.1, 0.2]) / [0.9, 0.8])
    np.testing.assert_allclose(rates.prior, [0.1, 0.2], atol=1e-12)
    assert rates.method == ("known prevalence",) * 2
