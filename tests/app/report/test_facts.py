from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import average_precision_score

from ccmn.app.issues import find_suspicions
from ccmn.app.report.facts import (
    AS_GIVEN,
    CORRECTED,
    MAX_DRAWN_LABELS,
    RANK_METRICS,
    RECALL_LEVELS,
    RateFact,
    conditional_shares,
    cooccurrence_facts,
    correcting_noise,
    data_facts,
    issue_facts,
    label_variants,
    measure,
    metric_facts,
    precision_recall_curve,
    precision_recall_facts,
    rate_facts,
)
from ccmn.app.report.instances import Snippet
from ccmn.estimation import NoiseRates
from ccmn.metrics import METRICS
from ccmn.noise import ClassConditionalNoise, TransitionNoise

rng = np.random.default_rng(0)
Y, SCORES = rng.integers(0, 2, (50, 3)).astype(np.float64), rng.normal(size=(50, 3))
NOISE = ClassConditionalNoise(0.1, 0.2, n_labels=3)
TWO_LABELS = ClassConditionalNoise([0.1, 0.3], [0.2, 0.0])


def test_data_facts_match_loops():
    rng = np.random.default_rng(0)
    Y = rng.choice([0.0, 1.0, np.nan], size=(40, 5), p=[0.6, 0.2, 0.2])
    facts = data_facts("some", 7, Y, list("abcde"))
    assert (facts.n, facts.d, facts.q) == (40, 7, 5)
    assert facts.labels == tuple("abcde")
    for j in range(5):
        assert facts.given[j] == sum(value == 1 for value in Y[:, j])
        assert facts.observed[j] == sum(value in (0, 1) for value in Y[:, j])
        assert facts.shares[j] == facts.given[j] / facts.observed[j]
    assert facts.rows_without_labels == sum(not any(value == 1 for value in row) for row in Y)


def test_share_of_label_without_observations_is_zero():
    assert data_facts("", 1, np.array([[np.nan]]), ["x"]).shares == [0]


def test_rates_of_noise_model_are_known():
    facts = rate_facts(TWO_LABELS, ["sea", "sky"])
    assert [label.name for label in facts.labels] == ["sea", "sky"]
    assert "given by the user" in facts.note
    assert facts.labels[1].rho_pos == RateFact(0.3, 0.3, 0.3)
    assert facts.warnings == ()


def test_estimated_rates_keep_intervals_warnings_and_true_rates():
    rates = replace(
        NoiseRates.known(TWO_LABELS, np.eye(2)),
        ci_pos=[[0.0, 0.2], [0.1, 0.5]],
        flags=[("wide_interval", "poorly identified", 1), ("few_rows", "few rows", None)],
    )
    facts = rate_facts(rates, ["sea", "sky"], ClassConditionalNoise([0.15, 0.25], [0.2, 0.1]))
    assert facts.labels[1].rho_pos == RateFact(0.3, 0.1, 0.5, 0.25)
    assert facts.labels[1].rho_neg.true == 0.1
    assert "if errors depend only on the label" in facts.note
    assert facts.warnings == ("sky: poorly identified", "all labels: few rows")
    assert correcting_noise(rates).rho_pos.tolist() == [0.1, 0.3]


def test_transition_noise_has_no_rates_per_label():
    assert rate_facts(TransitionNoise([[0.8, 0.2], [0.1, 0.9]]), ["a", "b"]) is None


def test_both_rows_match_the_metrics():
    given_labels, corrected = metric_facts(Y, SCORES, NOISE, "").rows
    assert (given_labels.name, corrected.name) == (AS_GIVEN, CORRECTED)
    labeled = Y.any(1)
    for name, metric in METRICS.items():
        second = SCORES if metric.needs == "scores" else SCORES >= 0
        rows = labeled if name in RANK_METRICS else np.ones(len(Y), dtype=bool)
        assert given_labels.values[name].value == metric.function(Y[rows], second[rows])
        expected = metric.function(Y, second, noise=NOISE)
        found = corrected.values[name]
        assert (found.value, found.se, found.status) == (expected.value, expected.se, expected.status)


def test_only_corrected_metrics_for_partly_observed_labels():
    weak = Y.copy()
    weak[0, 0] = np.nan
    assert [row.name for row in metric_facts(weak, SCORES, NOISE, "").rows] == [CORRECTED]
    assert [row.name for row in metric_facts(Y, SCORES, None, "").rows] == [AS_GIVEN]


def test_variants_contain_debiased_labels():
    variants = label_variants(Y, SCORES, NOISE)
    assert_allclose(variants[CORRECTED][0], (Y - 0.2) / 0.7)
    assert list(label_variants(Y, SCORES, None)) == [AS_GIVEN]


def slow_curve(p, scores):
    """Evaluate every threshold separately, from the highest to the lowest."""
    rows = [(s, y) for s, y in zip(scores, p) if not np.isnan(y)]
    total = sum(y for _, y in rows)
    if not rows or total <= 0:
        return None
    thresholds = []
    for t in sorted({s for s, _ in rows}, reverse=True):
        selected = [y for s, y in rows if s >= t]
        thresholds.append((sum(selected) / len(selected), sum(selected) / total))
    thresholds[-1] = (thresholds[-1][0], 1.0)
    before, average = 0.0, 0.0
    for precision, recall in thresholds:
        average += (recall - before) * precision
        before = recall
    at = [next(precision for precision, recall in thresholds if recall >= level) for level in RECALL_LEVELS]
    return [min(max(x, 0), 1) for x in at], min(max(average, 0), 1)


# Scores and labels on a grid: no sum is so close to a level that rounding decides.
labels = st.sampled_from([0.0, 1.0, -0.5, 1.75, float("nan")])
rows = st.lists(st.tuples(labels, st.integers(0, 6)), min_size=1, max_size=25)


@given(rows)
def test_precision_recall_curve_matches_loops(rows):
    p, scores = np.array([r[0] for r in rows]), np.array([r[1] for r in rows], dtype=float)
    found, expected = precision_recall_curve(p, scores), slow_curve(p, scores)
    if expected is None:
        assert found is None
    else:
        assert found.precision == pytest.approx(expected[0])
        assert found.average == pytest.approx(expected[1])


@pytest.mark.parametrize("seed", range(3))
def test_average_precision_of_clean_labels_matches_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    y, scores = rng.integers(0, 2, 50).astype(float), rng.integers(0, 9, 50).astype(float)
    assert precision_recall_curve(y, scores).average == pytest.approx(average_precision_score(y, scores))


def test_labels_without_positives_have_no_curve():
    Y, scores = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[2.0, 1.0], [1.0, 2.0]])
    facts = precision_recall_facts(["a", "b"], {"given": (Y, scores)}, "")
    assert [(name, list(curves)) for name, curves in facts.labels] == [("a", ["given"]), ("b", [])]
    assert facts.labels[0][1]["given"].precision == (1.0,) * len(RECALL_LEVELS)


def slow_shares(p):
    """Compute the shares pair by pair and row by row."""
    q = p.shape[1]
    shares = np.full((q, q), np.nan)
    for j, k in itertools.product(range(q), repeat=2):
        both = [row for row in p if not np.isnan(row[j]) and not np.isnan(row[k])]
        having = sum(row[j] for row in both)
        if having > 0:
            shares[j, k] = sum(row[j] * row[k] for row in both) / having
        if j == k:
            shares[j, k] = 1
    return shares


@pytest.mark.parametrize("seed", range(3))
def test_cooccurrence_matches_loops(seed):
    rng = np.random.default_rng(seed)
    Y = rng.choice([0.0, 1.0, np.nan], size=(30, 4), p=[0.5, 0.3, 0.2])
    noise = ClassConditionalNoise([0.1, 0.2, 0.0, 0.3], [0.2, 0.1, 0.1, 0.0])
    facts = cooccurrence_facts(Y, list("abcd"), noise)
    assert_allclose(facts.given, slow_shares(Y))
    assert_allclose(facts.corrected, slow_shares(noise.debias(Y)).clip(0, 1))


def test_both_sums_of_cooccurrence_are_unbiased():
    """Compare the expectation over all noisy label vectors of two rows with the sums of the true labels."""
    Y = np.array([[1, 0], [1, 1]])
    noise = ClassConditionalNoise([0.2, 0.3], [0.1, 0.25])
    together, having = 0.0, 0.0
    for flat in itertools.product((0, 1), repeat=4):
        noisy = np.array(flat, dtype=np.float64).reshape(2, 2)
        on = np.where(Y == 1, 1 - noise.rho_pos, noise.rho_neg)
        probability = np.where(noisy == 1, on, 1 - on).prod()
        p = noise.debias(noisy)
        together += probability * (p[:, 0] * p[:, 1]).sum()
        having += probability * p[:, 0].sum()
    assert together == pytest.approx(1, abs=1e-10)
    assert having == pytest.approx(2, abs=1e-10)


def test_cooccurrence_of_the_most_frequent_labels_in_their_order():
    Y = np.triu(np.ones((100, 100)))
    facts = cooccurrence_facts(Y, [str(j) for j in range(100)])
    assert facts.names == tuple(str(j) for j in range(100 - MAX_DRAWN_LABELS, 100))
    assert facts.left_out == 100 - MAX_DRAWN_LABELS
    assert facts.corrected is None


def test_no_corrected_cooccurrence_for_dependent_flips():
    noise = TransitionNoise([[0.8, 0.2], [0.1, 0.9]])
    assert cooccurrence_facts(np.eye(2), ["a", "b"], noise).corrected is None


def test_cooccurrence_of_label_without_positives_is_nan():
    shares = conditional_shares(np.array([[0.0, 1.0]]))
    assert np.isnan(shares[0, 1])
    assert shares[1, 0] == 0


def make_issues(known=True, **more):
    rng = np.random.default_rng(0)
    given = rng.integers(0, 2, (20, 3)).astype(np.float64)
    noise = ClassConditionalNoise(0.2, 0.2, n_labels=3)
    listed = find_suspicions(given, rng.uniform(0.2, 0.8, (20, 3)), noise, known=known).issues("abc", 5, 0.1)
    found = issue_facts(listed, given, "abc", lambda row, j: Snippet(f"{row} {j}"), "", known=known, max_rows=5, **more)
    return given, listed, found


@pytest.mark.parametrize("known", [True, False])
def test_one_card_per_row_with_all_its_labels(known):
    given, listed, found = make_issues(known)
    assert [row.row for row in found.rows] == listed.row.drop_duplicates().head(5).tolist()
    assert found.n_labels == len(listed)
    assert found.n_rows == (listed.row.nunique() if known else None)
    for row in found.rows:
        own = listed[listed.row == row.row]
        assert [name for name, *_ in row.issues] == own.label.tolist()
        assert [value for _, value, *_ in row.issues] == own.given.tolist()
        assert [p for *_, p, _ in row.issues] == (own.p_wrong.tolist() if known else [None] * len(own))
        assert row.labels == tuple(name for name, value in zip("abc", given[row.row]) if value == 1)
        assert row.instance == Snippet(f"{row.row} {'abc'.index(own.label.iloc[0])}")
    assert found.verdicts == []


def test_issues_are_compared_with_true_labels():
    found = make_issues(Y_true=np.zeros((20, 3)))[2]
    values = [value for row in found.rows for _, value, *_ in row.issues]
    assert found.verdicts == [value == 1 for value in values]


def test_without_probabilities_each_row_has_its_most_suspicious_label():
    listed = make_issues(known=False)[1]
    assert listed.row.nunique() == 5
    assert listed.p_wrong.isna().all()
    for _, own in listed.groupby("row"):
        assert (own.suspicion >= 0.5).sum() >= len(own) - 1
        assert (own.suggested == np.where(own.suspicion >= 0.5, 1 - own.given, own.given)).all()


def test_first_metric_is_the_mean_average_precision():
    found = measure(Y, SCORES)
    assert next(iter(found)) == "mean_average_precision"
    averages = [average_precision_score(y, s) for y, s in zip(Y.T, SCORES.T)]
    assert found["mean_average_precision"].value == pytest.approx(np.mean(averages))


def test_rank_metrics_leave_out_rows_without_labels():
    none = np.vstack([Y, np.zeros((30, 3))])
    scores = np.vstack([SCORES, np.random.default_rng(1).normal(size=(30, 3))])
    assert all(measure(none, scores)[name] == measure(Y, SCORES)[name] for name in RANK_METRICS)
    note = metric_facts(none, scores, None, "").note
    assert f"use the {int(Y.any(1).sum())} of 80 rows that have a label" in note
    assert np.isnan(measure(np.zeros((3, 2)), np.ones((3, 2)))["one_error"].value)
