"""Is the noise class-conditional? Told when it is not, silent when it is."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from sklearn.metrics import roc_auc_score

from ccmn import diagnose_noise, estimate_noise
from ccmn.data import make_noisy_multilabel
from ccmn.estimation.diagnosis import UNKNOWN, Area, area, pool_areas
from ccmn.estimation.likelihood import GRIDS, deviance, surface
from ccmn.noise import ClassConditionalNoise

DATA = make_noisy_multilabel(2000, 4, 3, strength=4.0, random_state=0)
ROWS = np.random.default_rng(0).permutation(2000)[:500]
TRUSTED = (ROWS, DATA.Y[ROWS])


def flipped_where_unsure():
    """Labels are added where the posterior is high, as people do, and not elsewhere."""
    rng = np.random.default_rng(1)
    likely = np.where(DATA.posterior > 0.15, 0.8, 0.02)
    return np.where((DATA.Y == 0) & (rng.random(DATA.Y.shape) < likely), 1, DATA.Y)


def test_noise_that_follows_x_is_told():
    found = diagnose_noise(DATA.X, flipped_where_unsure(), TRUSTED)
    assert found.pooled.low > 0.6
    assert all(a.value > 0.7 for a in found.added)
    assert all(a == UNKNOWN for a in found.lost)
    labels = {flag.label for flag in found.flags if flag.code == "not_class_conditional"}
    assert labels == {None, 0, 1, 2}
    assert "do not describe these flips" in found.flags[0].note
    rates = estimate_noise(DATA.X, flipped_where_unsure(), trusted=TRUSTED)
    assert "not_class_conditional" in {flag.code for flag in rates.flags}


def test_class_conditional_noise_is_not_accused():
    noise = ClassConditionalNoise([0.3, 0.2, 0.1], [0.1, 0.2, 0.3])
    found = diagnose_noise(DATA.X, noise.corrupt(DATA.Y, random_state=0), TRUSTED)
    assert found.pooled.low < 0.5 < found.pooled.high + 0.05
    assert not found.flags
    assert (found.misfit > 1e-3).all()
    free = diagnose_noise(DATA.X, noise.corrupt(DATA.Y, random_state=0))
    assert free.pooled == UNKNOWN
    assert not free.flags


def test_a_posterior_of_another_shape_does_not_fit():
    """Labels that come and go along a line: no logistic posterior, with whatever rates, looks like that."""
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(size=(4000, 1)), 0)
    noisy = (rng.random(4000) < np.where(np.arange(4000) // 500 % 2 == 0, 0.1, 0.9)).astype(float)
    pairs, grid = np.zeros((1, 2)), GRIDS["both"]
    wave = deviance(scores, noisy, surface(scores, noisy, pairs, grid), pairs, grid)
    right = (rng.random(4000) < 0.1 + 0.7 * scipy.special.expit(2 * scores[:, 0])).astype(float)
    line = deviance(scores, right, surface(scores, right, pairs, grid), pairs, grid)
    assert line < 100 < wave
    assert np.isnan(deviance(scores, np.ones(4000), np.zeros((1, 1)), pairs, grid))


def test_the_area_is_scikit_learns():
    rng = np.random.default_rng(0)
    scores, flipped = rng.integers(5, size=60).astype(float), rng.random(60) < 0.4
    found = area(scores, flipped)
    assert found.value == pytest.approx(roc_auc_score(flipped, scores))
    assert found.low < found.value < found.high
    assert found.pairs == flipped.sum() * (~flipped).sum()


def test_pooled_areas():
    one, two = Area(0.6, 0.5, 0.7, 100), Area(0.8, 0.7, 0.9, 300)
    pooled = pool_areas([one, two, UNKNOWN])
    assert pooled.value == pytest.approx(0.75)
    assert pooled.high - pooled.low < 0.2
    assert pool_areas([UNKNOWN]) == UNKNOWN


def test_features_are_needed():
    with pytest.raises(ValueError, match="needs the features X"):
        diagnose_noise(Y_noisy=DATA.Y)
