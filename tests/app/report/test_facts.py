"""Metrics and curves of reports, against loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from ccmn.app.report.facts import RANK_METRICS, average_precision_of_label, measure
from ccmn.metrics import METRICS
from ccmn.noise import ClassConditionalNoise

rng = np.random.default_rng(0)
Y, SCORES = rng.integers(0, 2, (50, 3)).astype(np.float64), rng.normal(size=(50, 3))
NOISE = ClassConditionalNoise(0.1, 0.2, n_labels=3)


def test_metrics_are_those_of_the_library():
    given_labels, corrected = measure(Y, SCORES), measure(Y, SCORES, NOISE)
    assert next(iter(given_labels)) == "mean_average_precision"
    labeled = Y.any(1)
    for name, metric in METRICS.items():
        second = SCORES if metric.needs == "scores" else SCORES >= 0
        rows = labeled if name in RANK_METRICS else np.ones(len(Y), dtype=bool)
        assert given_labels[name].value == metric.function(Y[rows], second[rows])
        expected, found = metric.function(Y, second, noise=NOISE), corrected[name]
        assert (found.value, found.se, found.status) == (expected.value, expected.se, expected.status)
    averages = [average_precision_score(y, s) for y, s in zip(Y.T, SCORES.T)]
    assert given_labels["mean_average_precision"].value == pytest.approx(np.mean(averages))


def test_rank_metrics_leave_out_rows_without_labels():
    none = np.vstack([Y, np.zeros((30, 3))])
    scores = np.vstack([SCORES, np.random.default_rng(1).normal(size=(30, 3))])
    assert all(measure(none, scores)[name] == measure(Y, SCORES)[name] for name in RANK_METRICS)


def test_exact_metrics_have_standard_errors_over_rows():
    """The standard error of the Hamming loss is that of a mean over rows."""
    found = measure(Y, SCORES, standard_errors=True)["hamming_loss"]
    errors = ((SCORES >= 0) != Y).mean(1)
    assert found.value == pytest.approx(errors.mean())
    assert found.se == pytest.approx(errors.std(ddof=1) / np.sqrt(50), rel=0.02)
    assert measure(Y, SCORES)["hamming_loss"].se is None


def slow_average(p, scores):
    """Evaluate every threshold separately, from the highest to the lowest."""
    rows = [(s, y) for s, y in zip(scores, p) if not np.isnan(y)]
    total, average, before = sum(y for _, y in rows), 0.0, 0.0
    if not rows or total <= 0:
        return np.nan
    for t in sorted({s for s, _ in rows}, reverse=True):
        selected = [y for s, y in rows if s >= t]
        recall = sum(selected) / total
        average += (recall - before) * sum(selected) / len(selected)
        before = recall
    return min(max(average, 0), 1)


labels = st.sampled_from([0.0, 1.0, -0.5, 1.75, float("nan")])


@given(st.lists(st.tuples(labels, st.integers(0, 6)), min_size=1, max_size=25))
def test_average_precision_of_debiased_labels_matches_loops(rows):
    p, scores = np.array([r[0] for r in rows]), np.array([r[1] for r in rows], dtype=float)
    assert average_precision_of_label(p, scores) == pytest.approx(slow_average(p, scores), abs=1e-9, nan_ok=True)


def test_average_precision_of_clean_labels_matches_scikit_learn():
    y, scores = rng.integers(0, 2, 50).astype(float), rng.integers(0, 9, 50).astype(float)
    assert average_precision_of_label(y, scores) == pytest.approx(average_precision_score(y, scores))
