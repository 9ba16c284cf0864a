"""Scores of some labels equal the columns of all scores, for every link, with and without the dummy label."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.models import predictor
from ccmn.models.predictor import FittedNetwork, Scorer


def scorer(*, has_dummy: bool, link: str) -> Scorer:
    rng = np.random.default_rng(0)
    arrays = {"weight": rng.normal(size=(3, 5 + has_dummy)), "bias": rng.normal(size=5 + has_dummy)}
    return Scorer(FittedNetwork("linear", arrays), has_dummy, link, 2.0, 5)


@pytest.mark.parametrize(("has_dummy", "link"), [(True, "slope"), (False, "logistic"), (False, "linear")])
def test_tiles_equal_columns_of_all_scores(has_dummy, link, monkeypatch):
    made, X = scorer(has_dummy=has_dummy, link=link), np.random.default_rng(1).normal(size=(7, 3))
    for tile in (slice(0, 2), slice(2, 5), slice(4, 5)):
        assert np.allclose(made.scores(X, tile), made.scores(X)[:, tile], rtol=1e-12)
    monkeypatch.setattr(predictor, "MAX_TILE_WEIGHTS", 3)
    assert [t.start for t in made.tiles()] == [0, 1, 2, 3, 4]


def test_scores_subtract_the_dummy():
    made, X = scorer(has_dummy=True, link="slope"), np.eye(3)
    outputs = made.network.arrays["weight"] + made.network.arrays["bias"]
    assert np.allclose(made.scores(X), outputs[:, 1:] - outputs[:, :1])
    assert np.allclose(made.probabilities(np.zeros(5)), 0.5)
