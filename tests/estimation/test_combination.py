"""Combination of sources of evidence: intervals that are widened by disagreement, and the rates of each source."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import NoiseRates, estimate_noise
from ccmn.estimation.combination import BEST_BIN_MARGIN, widen_by_disagreement
from ccmn.estimation.noise_rates import UNKNOWN_RATE, LabelRates, Rate
from ccmn.noise import ClassConditionalNoise

LABEL = LabelRates(Rate(0.1, 0.05, 0.0, 0.2), Rate(0.01, 0.01, 0.0, 0.03), "point", "profile")


def source(pos, neg, high=0.02):
    """Return the rates of another method with intervals of +- ``high``."""
    return LabelRates(*(Rate(v, 0.01, max(v - high, 0), v + high) for v in (pos, neg)), "point", "other")


def test_sources_that_agree_change_nothing():
    assert widen_by_disagreement(LABEL, source(0.1, 0.01, 0.0), source(0.1, 0.01)) == LABEL


def test_confident_joint_raises_the_upper_ends():
    found = widen_by_disagreement(LABEL, source(0.5, 0.09, 0.0), source(0.9, 0.05, 0.0))
    assert found.pos.high == pytest.approx(0.1 + 0.6 * 0.4)
    assert found.neg.high == pytest.approx(0.01 + 2 * 0.08)
    assert (found.pos[:3], found.neg[:3]) == (LABEL.pos[:3], LABEL.neg[:3])


def test_best_bin_raises_the_upper_end_of_rho_neg_up_to_a_margin():
    joint = source(0.1, 0.01)
    assert widen_by_disagreement(LABEL, joint, source(0.1, 0.02)).neg.high == pytest.approx(0.04)
    far = widen_by_disagreement(LABEL, joint, source(0.9, 0.4))
    assert far.neg.high == pytest.approx(joint.neg.high + BEST_BIN_MARGIN)
    assert far.pos == LABEL.pos


def test_unknown_sources_are_ignored():
    unknown = source(0.5, 0.5)._replace(pos=UNKNOWN_RATE)
    assert widen_by_disagreement(LABEL, unknown, source(0.9, 0.9)) == LABEL


@pytest.fixture(scope="module")
def task():
    """Return data with class-conditional noise."""
    return make_noisy_multilabel(
        700, 5, 3, strength=6, noise=ClassConditionalNoise(0.1, 0.1, n_labels=3), random_state=0
    )


def test_rates_contain_each_source(task):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rates = estimate_noise(task.X, task.Y_noisy)
        with_trusted = estimate_noise(task.X, task.Y_noisy, trusted=(range(60), task.Y[:60]))
    assert list(rates.sources) == ["profile", "confident joint", "best bin"]
    assert list(with_trusted.sources) == ["profile", "confident joint", "best bin", "trusted"]
    assert all(values.shape == (3, 2) for values in with_trusted.sources.values())
    np.testing.assert_allclose(rates.sources["profile"], np.stack([rates.rho_pos, rates.rho_neg], 1))
    flipped = ((task.Y[:60] == 1) & (task.Y_noisy[:60] == 0)).sum(0)
    expected = (flipped + 0.5) / ((task.Y[:60] == 1).sum(0) + 1)
    np.testing.assert_allclose(with_trusted.sources["trusted"][:, 0], expected)
    loaded = NoiseRates.from_dict(json.loads(json.dumps(rates.to_dict())))
    np.testing.assert_array_equal(loaded.sources["best bin"], rates.sources["best bin"])
    assert NoiseRates.known(task.noise, task.Y_noisy).sources == {}


def test_intervals_are_wider_for_errors_near_the_boundary():
    """People add a label where it nearly applies. The profile likelihood alone explains this without noise."""
    rng = np.random.default_rng(0)
    data = make_noisy_multilabel(800, 6, 2, strength=4, random_state=0)
    noisy = np.where((data.Y == 0) & (rng.random(data.Y.shape) < data.posterior), 1, data.Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        combined, profile = estimate_noise(data.X, noisy), estimate_noise(data.X, noisy, "profile")
    np.testing.assert_array_equal(combined.rho_neg, profile.rho_neg)
    assert (combined.ci_neg[:, 1] > 1.2 * profile.ci_neg[:, 1]).all()
