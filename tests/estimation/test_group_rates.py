"""Rates per group: own rows, clean groups, small groups."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import estimate_noise
from ccmn.estimation.noise_rates import GroupRates
from ccmn.noise import ClassConditionalNoise, GroupedNoise

N, Q = 2400, 3
DATA = make_noisy_multilabel(N, 4, Q, strength=8.0, random_state=0)
GROUPS = np.array(["site a", "site b", "gold"]).repeat(800)
TRUE = GroupedNoise(
    {
        "site a": ClassConditionalNoise(0.1, 0.3, n_labels=Q),
        "site b": ClassConditionalNoise(0.3, 0.05, n_labels=Q),
        "gold": ClassConditionalNoise(0.0, 0.0, n_labels=Q),
    }
)
NOISY = TRUE.corrupt(DATA.Y, GROUPS, random_state=1)


def test_each_group_has_its_own_rates():
    rates = estimate_noise(DATA.X, NOISY, groups=GROUPS)
    assert rates.groups == ("site a", "site b", "gold")
    assert rates["site a"].rho_neg.mean() == pytest.approx(0.3, abs=0.08)
    assert rates["site b"].rho_neg.mean() == pytest.approx(0.05, abs=0.05)
    assert rates["site b"].rho_pos.mean() == pytest.approx(0.3, abs=0.1)
    assert np.abs(rates.noise.debias(NOISY, GROUPS).mean(0) - DATA.Y.mean(0)).max() < 0.08
    assert GroupRates.from_dict(json.loads(json.dumps(rates.to_dict()))).noise == rates.noise


def test_small_groups_share_an_estimate():
    groups = np.where(np.arange(N) % 60 == 0, "small", np.where(np.arange(N) % 60 == 1, "tiny", "large"))
    rates = estimate_noise(DATA.X, NOISY, noise_type="both", groups=groups)
    np.testing.assert_array_equal(rates["small"].rho_neg, rates["tiny"].rho_neg)
    assert [flag.code for group, flag in rates.flags if group == "small"].count("few_rows") == 1
    assert "few_rows" not in [flag.code for group, flag in rates.flags if group == "large"]


def test_trusted_rows_are_used_in_their_group():
    rows = np.arange(0, 1600, 10)
    rates = estimate_noise(Y_noisy=NOISY, trusted=(rows, DATA.Y[rows]), groups=GROUPS, prevalence=0.5)
    alone = estimate_noise(Y_noisy=NOISY[:800], trusted=(rows[:80], DATA.Y[rows[:80]]), prevalence=0.5)
    np.testing.assert_array_equal(rates["site a"].rho_neg, alone.rho_neg)


def test_invalid_groups_are_rejected():
    with pytest.raises(ValueError, match=r"groups must .*2400.*got 2"):
        estimate_noise(DATA.X, NOISY, groups=["a", "b"])
