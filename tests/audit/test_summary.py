from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

from ccmn import ClassConditionalNoise, MissingNoise
from ccmn.audit import BelievedRates, believed_rates, label_summary
from ccmn.audit.label_audit import flips
from ccmn.estimation import NoiseRates

NOISE = ClassConditionalNoise([0.2, 0.1], [0.1, 0.3], label_names=["sea", "sky"])


@given(st.integers(15, 40), st.floats(0.4, 0.6), st.floats(0.05, 0.2), st.floats(0.05, 0.2))
def test_unbiased_with_the_right_variance(n, share, rho_pos, rho_neg):
    """All numbers of lost and added labels with their probabilities; the estimates left as they are, unclipped."""
    ones = round(n * share)
    lost, added = np.meshgrid(np.arange(ones + 1), np.arange(n - ones + 1), indexing="ij")
    p = scipy.stats.binom.pmf(lost, ones, rho_pos) * scipy.stats.binom.pmf(added, n - ones, rho_neg)
    r = 1 - rho_pos - rho_neg
    true = (ones - lost + added - rho_neg * n) / r
    for value, number, j in ((rho_neg * (n - true), added, 0), (rho_pos * true, lost, 1)):
        error = value - number
        assert abs((p * error).sum()) < 1e-11
        rates = believed_rates(ClassConditionalNoise([rho_pos], [rho_neg]))
        expected_given = ones * (1 - rho_pos) + (n - ones) * rho_neg
        _, se = flips(np.array([n]), np.array([expected_given]), rates)[j]
        assert_allclose(se**2, (p * error**2).sum(), rtol=1e-9)


@given(st.floats(0.01, 0.4), st.floats(0.01, 0.4), st.integers(0, 1))
def test_uncertain_rates_by_the_delta_method(rho_pos, rho_neg, side):
    n, k, h = np.array([1000.0]), np.array([600.0]), 1e-6

    def at(a, b, se_pos=0.0, se_neg=0.0):
        rates = BelievedRates(*(np.array([v]) for v in (a, b, se_pos, se_neg)), None)
        return np.array(flips(n, k, rates))[:, :, 0]

    if not rho_neg + 0.05 < 0.6 < 1 - rho_pos - 0.05:
        return  # true positives at an end, where the estimate has a kink
    step = (h, 0.0) if side == 0 else (0.0, h)
    slope = (at(rho_pos + step[0], rho_neg + step[1]) - at(rho_pos - step[0], rho_neg - step[1]))[:, 0] / (2 * h)
    uncertain = at(rho_pos, rho_neg, *((0.1, 0.0) if side == 0 else (0.0, 0.1)))[:, 1]
    assert_allclose(uncertain**2 - at(rho_pos, rho_neg)[:, 1] ** 2, (0.1 * slope) ** 2, rtol=1e-4, atol=1e-6)


def test_containers_and_what_was_not_observed():
    Y = np.random.default_rng(0).integers(0, 2, (60, 2))
    expected = label_summary(Y, NOISE)
    assert expected.label.tolist() == ["sea", "sky"]
    assert expected.observed.tolist() == [60, 60]
    assert expected.given.tolist() == Y.sum(0).tolist()
    for labels in (Y.tolist(), scipy.sparse.csr_array(Y), pd.DataFrame(Y, columns=["sea", "sky"])):
        assert_frame_equal(label_summary(labels, NOISE), expected)
    masked = np.concatenate([Y.astype(float), np.full((9, 2), np.nan)])
    assert_frame_equal(label_summary(masked, NOISE), expected)
    assert_frame_equal(label_summary(scipy.sparse.csr_array(masked), NOISE), expected)


def test_numbers_stay_possible():
    for Y in (np.zeros((30, 2)), np.ones((30, 2)), np.full((30, 2), np.nan)):
        found = label_summary(Y, NOISE)
        for name, most in (("false", found.given), ("missing", found.observed - found.given)):
            low, value, high = found[f"{name}_low"], found[name], found[f"{name}_high"]
            assert ((low >= 0) & (low <= value) & (value <= high) & (high <= most)).all()


def test_a_side_without_noise():
    found = label_summary(np.eye(10)[:, :2], MissingNoise(0.2, n_labels=2))
    assert (found[["false", "false_low", "false_high"]] == 0).all(axis=None)
    assert_allclose(found.missing, 0.25)


def test_doubtful_rates_widen_the_interval():
    Y = np.random.default_rng(1).integers(0, 2, (500, 2))
    known = NoiseRates.known(NOISE, Y)
    assert_frame_equal(label_summary(Y, known), label_summary(Y, NOISE))
    doubtful = NoiseRates.from_dict(known.to_dict() | {"se_pos": [0.1, 0.1]})
    wide, narrow = label_summary(Y, doubtful), label_summary(Y, NOISE)
    assert (wide.missing_high - wide.missing_low > narrow.missing_high - narrow.missing_low).all()
    bound = label_summary(Y, NoiseRates.from_dict(known.to_dict() | {"kind": ["upper bound"] * 2}))
    assert (bound.missing < narrow.missing).all()
    assert (bound.missing_low <= 0.05 * narrow.missing).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 0, 1]], NOISE), "must have 2 labels"),
        (([[1, 2]], NOISE), "0 or 1"),
        ((scipy.sparse.csr_array([[1, 2]]), NOISE), "0 or 1"),
        (([[1, 0]], NOISE, 1.0), "level must be between 0 and 1"),
        ((pd.DataFrame([[1, 0]], columns=["sky", "sea"]), NOISE), "one order"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        label_summary(*arguments)
