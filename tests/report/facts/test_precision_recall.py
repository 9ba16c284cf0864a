from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from ccmn.report.facts.precision_recall import LEVELS, curve_of, precision_recall_facts


def slow_curve(p, scores):
    """Every cut by itself, from the strictest on."""
    rows = [(s, y) for s, y in zip(scores, p) if not np.isnan(y)]
    total = sum(y for _, y in rows)
    if not rows or total <= 0:
        return None
    cuts = []
    for t in sorted({s for s, _ in rows}, reverse=True):
        inside = [y for s, y in rows if s >= t]
        cuts.append((sum(inside) / len(inside), sum(inside) / total))
    cuts[-1] = (cuts[-1][0], 1.0)
    before, average = 0.0, 0.0
    for precision, recall in cuts:
        average += (recall - before) * precision
        before = recall
    at = [next(precision for precision, recall in cuts if recall >= level) for level in LEVELS]
    return [min(max(x, 0), 1) for x in at], min(max(average, 0), 1)


# Scores and labels on a grid: no sum is so near a level that its rounding decides.
labels = st.sampled_from([0.0, 1.0, -0.5, 1.75, float("nan")])
rows = st.lists(st.tuples(labels, st.integers(0, 6)), min_size=1, max_size=25)


@given(rows)
def test_the_curve_is_that_of_loops(rows):
    p, scores = np.array([r[0] for r in rows]), np.array([r[1] for r in rows], dtype=float)
    found, expected = curve_of(p, scores), slow_curve(p, scores)
    if expected is None:
        assert found is None
    else:
        assert found.precision == pytest.approx(expected[0])
        assert found.average == pytest.approx(expected[1])


@pytest.mark.parametrize("seed", range(3))
def test_of_plain_labels_the_average_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    y, scores = rng.integers(0, 2, 50).astype(float), rng.integers(0, 9, 50).astype(float)
    assert curve_of(y, scores).average == pytest.approx(average_precision_score(y, scores))


def test_ways_without_positives_have_no_curve():
    Y, scores = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[2.0, 1.0], [1.0, 2.0]])
    facts = precision_recall_facts(["a", "b"], {"given": (Y, scores)}, "")
    assert [(name, list(curves)) for name, curves in facts.labels] == [("a", ["given"]), ("b", [])]
    assert facts.labels[0][1]["given"].precision == (1.0,) * len(LEVELS)
