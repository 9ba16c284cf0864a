"""Combination of sources of evidence: intervals that are widened by disagreement, and the rates of each source."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import NoiseRates, estimate_noise
from ccmn.estimation.combination import BEST_BIN_MARGIN, ambiguous_shares, dispersion, widen_by_disagreement
from ccmn.estimation.estimate import estimate_rates
from ccmn.estimation.evidence import Evidence, fit_surfaces, read_evidence, read_trusted
from ccmn.estimation.likelihood import Surfaces
from ccmn.estimation.noise_rates import UNKNOWN_RATE, ZERO_RATE, LabelRates, Rate
from ccmn.noise import ClassConditionalNoise

LABEL = LabelRates(Rate(0.1, 0.05, 0.0, 0.2), Rate(0.01, 0.01, 0.0, 0.03), "point", "profile")


def source(pos, neg, high=0.02):
    """Return the rates of another method with intervals of +- ``high``."""
    return LabelRates(*(Rate(v, 0.01, max(v - high, 0), v + high) for v in (pos, neg)), "point", "other")


def test_sources_that_agree_change_nothing():
    assert widen_by_disagreement(LABEL, source(0.1, 0.01, 0.0), source(0.1, 0.01)) == LABEL


def test_confident_joint_raises_the_upper_ends():
    found = widen_by_disagreement(LABEL, source(0.5, 0.09, 0.0), source(0.5, 0.05, 0.0))
    assert found.pos.high == pytest.approx(0.1 + 0.6 * 0.4)
    assert found.neg.high == pytest.approx(0.01 + 2 * 0.08)
    assert (found.pos[:3], found.neg[:3]) == (LABEL.pos[:3], LABEL.neg[:3])


def test_best_bin_raises_the_upper_end_of_rho_neg_up_to_a_margin():
    joint = source(0.1, 0.01)
    assert widen_by_disagreement(LABEL, joint, source(0.1, 0.02)).neg.high == pytest.approx(0.04)
    far = widen_by_disagreement(LABEL, joint, source(0.9, 0.4))
    assert far.neg.high == pytest.approx(joint.neg.high + BEST_BIN_MARGIN)


def test_intervals_that_start_at_zero_cover_more():
    joint, bound = source(0.1, 0.01, 0.0), source(0.5, 0.01, 0.0)
    found = widen_by_disagreement(LABEL, joint, bound, 0.08)
    assert (found.pos.high, found.neg.high) == (pytest.approx(0.6 * 0.5), 0.08)
    detected = LABEL._replace(pos=LABEL.pos._replace(low=0.05), neg=LABEL.neg._replace(low=0.01))
    assert widen_by_disagreement(detected, joint, bound, 0.08) == detected


def test_ambiguous_share_counts_positives_that_are_predicted_negative():
    scores, Y = np.array([[0.1], [0.2], [0.4], [0.9], [0.3]]), np.array([[0.0], [1.0], [1.0], [1.0], [np.nan]])
    surfaces = Surfaces([np.zeros((1, 1))], scores, np.arange(5), np.zeros(1))
    assert ambiguous_shares(Evidence(Y, ("both",), surfaces=surfaces)).tolist() == [2 / 3]


def test_unknown_sources_are_ignored():
    unknown = source(0.5, 0.5)._replace(pos=UNKNOWN_RATE)
    assert widen_by_disagreement(LABEL, unknown, source(0.9, 0.9)) == LABEL


def test_dispersion_is_the_mean_square_of_standardized_differences():
    first, second = source(0.3, 0.1), source(0.3, 0.1)
    assert dispersion([(first, second)]) == 0
    shifted = second._replace(neg=Rate(0.13, 0.01, 0.1, 0.2))
    assert dispersion([(first, shifted), (first, second)]) == pytest.approx(0.5 * 0.03**2 / (2 * 0.01**2))
    unknown = [(first._replace(neg=rate), shifted) for rate in (UNKNOWN_RATE, ZERO_RATE)]
    assert dispersion(unknown) == dispersion([]) == 0


def test_intervals_follow_the_trusted_rows_if_the_likelihood_contradicts_them():
    """Labels are added where they nearly apply: the likelihood of every label is wrong in the same way."""
    rng = np.random.default_rng(1)
    data = make_noisy_multilabel(800, 6, 6, strength=4, random_state=1)
    noisy = np.where((data.Y == 0) & (rng.random(data.Y.shape) < data.posterior), 1, data.Y)
    added = ((noisy == 1) & (data.Y == 0)).sum(0) / (data.Y == 0).sum(0)
    covered = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evidence = read_evidence(data.X, noisy, "both", None, None, 0, None, None)
        evidence = replace(evidence, surfaces=fit_surfaces(evidence))
        for _ in range(15):
            rows = rng.permutation(800)[:40]
            trusted = read_trusted((rows, data.Y[rows]), *noisy.shape)
            rates = estimate_rates(replace(evidence, trusted=trusted), "auto", None, ())
            covered.append((rates.ci_neg[:, 0] <= added) & (added <= rates.ci_neg[:, 1]))
    assert np.mean(covered) >= 0.85


def test_rate_of_a_class_that_was_never_observed():
    """If a label was never given, all its positives may be missing; only trusted rows tell."""
    data = make_noisy_multilabel(600, 5, 4, strength=6, random_state=0)
    noisy = data.Y.copy()
    noisy[:, 2] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rates = estimate_noise(data.X, noisy)
        with_trusted = estimate_noise(data.X, noisy, trusted=(range(100), data.Y[:100]))
    assert rates.ci_pos[2].tolist() == [0, 1]
    assert rates.ci_pos[[0, 1, 3], 1].max() < 1
    assert with_trusted.rho_pos[2] > 0.85
    assert with_trusted.ci_pos[2, 0] > 0.85
    assert with_trusted.ci_pos[2, 1] == 1


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
