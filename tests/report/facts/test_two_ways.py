from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from ccmn.metrics import METRICS
from ccmn.noise import ClassConditionalNoise
from ccmn.report.facts.two_ways import CORRECTED, GIVEN, against_given, two_lines

rng = np.random.default_rng(0)
NOISE = ClassConditionalNoise(0.1, 0.2, n_labels=3)
Y, SCORES = rng.integers(0, 2, (50, 3)).astype(np.float64), rng.normal(size=(50, 3))


def test_both_lines_are_the_metrics():
    given, corrected = two_lines(Y, SCORES, NOISE, "").lines
    assert (given.name, corrected.name) == (GIVEN, CORRECTED)
    for name, metric in METRICS.items():
        second = SCORES if metric.needs == "scores" else SCORES >= 0
        assert given.figures[name].value == metric.function(Y, second)
        expected = metric.function(Y, second, noise=NOISE)
        found = corrected.figures[name]
        assert (found.value, found.se, found.status) == (expected.value, expected.se, expected.status)


def test_labels_not_observed_leave_the_corrected_line():
    weak = Y.copy()
    weak[0, 0] = np.nan
    assert [line.name for line in two_lines(weak, SCORES, NOISE, "").lines] == [CORRECTED]
    assert [line.name for line in two_lines(Y, SCORES, None, "").lines] == [GIVEN]


def test_curves_against_debiased_labels():
    ways = against_given(Y, SCORES, NOISE)
    assert_allclose(ways[CORRECTED][0], (Y - 0.2) / 0.7)
    assert list(against_given(Y, SCORES, None)) == [GIVEN]
