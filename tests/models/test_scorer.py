"""Scores of some labels equal the columns of all scores, for every link, with and without the dummy label."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.models.predictor import FittedNetwork, Scorer
from ccmn.noise import ClassConditionalNoise


def scorer(*, has_dummy: bool, link: str) -> Scorer:
    rng = np.random.default_rng(0)
    arrays = {"weight": rng.normal(size=(3, 5 + has_dummy)), "bias": rng.normal(size=5 + has_dummy)}
    noise = ClassConditionalNoise(rng.uniform(0, 0.4, 5), rng.uniform(0, 0.4, 5))
    return Scorer(FittedNetwork("linear", arrays), noise, has_dummy, link, 2.0, rng.normal(size=5))


@pytest.mark.parametrize(("has_dummy", "link"), [(True, "slope"), (False, "logistic"), (False, "plugin")])
def test_tiles_equal_columns_of_all_scores(has_dummy, link):
    made, X = scorer(has_dummy=has_dummy, link=link), np.random.default_rng(1).normal(size=(7, 3))
    for tile in (slice(0, 2), slice(2, 5), slice(4, 5)):
        assert np.allclose(made.scores(X, tile), made.scores(X)[:, tile], rtol=1e-12)
        assert np.allclose(made.decisions(X, tile), made.decisions(X)[:, tile], rtol=1e-12)
    assert [t.start for t in made.tiles(1 << 21)] == [0, 1, 2, 3, 4]


def test_scores_subtract_the_dummy_and_decisions_the_threshold():
    made, X = scorer(has_dummy=True, link="slope"), np.eye(3)
    outputs = made.network.arrays["weight"] + made.network.arrays["bias"]
    assert np.allclose(made.scores(X), outputs[:, 1:] - outputs[:, :1])
    assert np.allclose(made.decisions(X), made.scores(X) - made.thresholds)
    assert np.allclose(made.probabilities(np.zeros(5)), 0.5)


def test_plugin_scores_are_zero_at_probability_one_half():
    made = scorer(has_dummy=False, link="plugin")
    rho_pos, rho_neg = made.noise.rho_pos, made.noise.rho_neg
    half = (1 - rho_pos + rho_neg) / 2  # probability of the noisy label where that of the true label is 1/2
    made.network.arrays["weight"][:], made.network.arrays["bias"][:] = 0, np.log(half / (1 - half))
    assert np.allclose(made.scores(np.zeros((1, 3))), 0, atol=1e-12)
