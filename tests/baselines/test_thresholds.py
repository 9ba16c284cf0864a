"""The best cut of a row is the first of q + 1 that disagrees least."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ccmn.baselines.thresholds import SizePredictor, best_cuts


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_best_cuts_by_trying_all(seed, q):
    rng = np.random.default_rng(seed)
    scores, Y = rng.integers(0, 6, (5, q)) / 4, rng.integers(0, 2, (5, q))
    for row, y, found in zip(scores, Y, best_cuts(scores, Y)):
        s = sorted(row)
        cuts = [s[0] - 0.1, *((a + b) / 2 for a, b in pairwise(s)), s[-1] + 0.1]
        wrong = [sum((f >= cut) != (label == 1) for f, label in zip(row, y)) for cut in cuts]
        assert found == cuts[wrong.index(min(wrong))]


def test_low_rank_scores_give_the_cut_of_least_norm():
    scores = np.repeat(np.arange(10.0)[:, None], 3, axis=1)
    predictor = SizePredictor.fit(scores, np.ones((10, 3)))
    assert np.allclose(predictor.weights, predictor.weights[0])
    assert np.allclose(predictor.cuts(scores)[:, 0], scores[:, 0] - 0.1)
