from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from audit import reference
from ccmn import ClassConditionalNoise, find_label_issues
from ccmn.audit import error_model
from ccmn.audit.error_model import (
    AnnotatorSurplus,
    EmptiedRows,
    ErrorModel,
    RateRange,
    ScoreTable,
    calibrate_to_noise,
    emptied_share,
    fit_error_model,
    rates_from_probabilities,
    unsupervised_score,
)
from ccmn.audit.label_issues import score_labels
from ccmn.estimation import NoiseRates
from strategies import SEEDS


def scores_of(issues, shape):
    found = np.full(shape, np.nan)
    found[issues.row, issues.label] = issues.p_wrong
    return found


def make_labels(n=2000, q=4, seed=0, strength=2.0):
    """Return true labels and P(true label = 1 | x)."""
    rng = np.random.default_rng(seed)
    clean = 1 / (1 + np.exp(-strength * rng.normal(loc=-1, size=(n, q))))
    return (rng.random((n, q)) < clean).astype(float), clean


@pytest.fixture(scope="module")
def class_conditional():
    true, clean = make_labels(strength=4.0)
    noise = ClassConditionalNoise([0.1, 0.3, 0.2, 0.1], [0.3, 0.2, 0.3, 0.4])
    noisy = noise.corrupt(true, random_state=1)
    return true, noisy, noise.rho_neg + (1 - noise.rho_pos - noise.rho_neg) * clean, noise


@pytest.fixture(scope="module")
def hard_rows():
    """Labels that are wrong only where they are hard to decide."""
    true, clean = make_labels(strength=4.0)
    flipped = np.random.default_rng(2).random(true.shape) < 0.5 * (1 - np.abs(2 * clean - 1))
    return true, np.where(flipped, 1 - true, true), clean


@given(SEEDS, st.sampled_from([5, 40, 90]), st.sampled_from([0.0, 0.3]))
@settings(max_examples=30)
def test_rates_from_probabilities_agree_with_reference(seed, n, unobserved):
    rng = np.random.default_rng(seed)
    P = rng.random((n, 3))
    Y = (rng.random((n, 3)) < P).astype(float)
    Y[rng.random(Y.shape) < unobserved] = np.nan
    Y[0] = 0
    found = rates_from_probabilities(Y, P)
    for j in range(3):
        low, high = reference.end_rates(Y[:, j].tolist(), P[:, j].tolist())
        assert found.rho_neg[j] == pytest.approx(min(low, 0.8))
        assert found.rho_pos[j] == pytest.approx(min(high, 0.9 - min(low, 0.8)) / 2)
        assert found.spread[j] == pytest.approx(2 * found.rho_pos[j] / math.sqrt(12))


@given(SEEDS, st.floats(0.05, 0.3))
@settings(max_examples=20)
def test_unsupervised_score_agrees_with_reference_at_nodes(seed, added):
    rng = np.random.default_rng(seed)
    P = rng.permutation(np.tile(np.arange(60), 3)).reshape(60, 3) / 60 + rng.random((60, 3)) / 100
    Y = (rng.random((60, 3)) < added + (0.9 - added) * P).astype(float)
    score = unsupervised_score(Y, P)
    ends = rates_from_probabilities(Y, P)
    nodes = np.repeat(rng.integers(0, 257, (20, 1)) / 256, 3, axis=1)
    labels = np.vstack([Y, np.full(nodes.shape, np.nan)])
    calibrated = calibrate_to_noise(labels, np.vstack([P, nodes]), ends.rho_pos, np.minimum(ends.rho_neg, 0.5))[60:]
    means = ends.rho_neg.mean(), np.abs(Y - P).mean()
    for value in (0, 1):
        found = score(np.full(nodes.shape, value), nodes)
        for i, j in np.ndindex(*nodes.shape):
            rates = ends.rho_neg[j], 2 * ends.rho_pos[j]
            expected = reference.unsupervised(value, nodes[i, j], calibrated[i, j], *rates, *means)
            assert found[i, j] == pytest.approx(expected, abs=1e-10)


def brier_score(p, wrong):
    return ((p - wrong) ** 2).mean()


def test_brier_score_is_below_that_of_the_share_of_wrong_labels(hard_rows):
    true, noisy, P = hard_rows
    removed = np.where(np.random.default_rng(5).random(true.shape) < 0.3, 0, true)
    for labels, proba in ((noisy, P), (removed, 0.7 * P)):
        wrong = labels != true
        found = scores_of(find_label_issues(labels, proba, min_p_wrong=0), labels.shape)
        assert brier_score(found, wrong) < brier_score(wrong.mean(), wrong)


def test_few_common_labels_with_weak_features_are_listed(class_conditional, monkeypatch):
    # The third label is obviously absent in no row: the share of 60 % at the lower end is a poor bound of its rate.
    _, noisy, P, _ = class_conditional
    rng = np.random.default_rng(6)
    noisy, P = noisy.copy(), P.copy()
    P[:, 2] = rng.uniform(0.6, 0.9, len(P))
    noisy[:, 2] = rng.random(len(P)) < P[:, 2]
    listed = [(find_label_issues(noisy, P).label == 2).sum()]
    monkeypatch.setattr(error_model, "MAX_ADDED_RATE", 1.0)
    listed.append((find_label_issues(noisy, P).label == 2).sum())
    assert listed[0] < 0.1 * len(P)
    assert listed[1] > 0.2 * len(P)


@pytest.fixture(scope="module")
def emptied_rows():
    """Labels of which a tenth of the rows lost all."""
    true, clean = make_labels(n=3000, q=8, strength=3.0, seed=1)
    emptied = np.random.default_rng(2).random(len(true)) < 0.1
    return true, np.where(emptied[:, None], 0, true), 0.9 * clean


def test_emptied_rows_are_found(emptied_rows):
    true, noisy, P = emptied_rows
    wrong = noisy != true
    assert emptied_share(noisy, P) == pytest.approx(0.1, abs=0.03)
    assert emptied_share(true, P) == 0
    found = scores_of(find_label_issues(noisy, P, min_p_wrong=0), noisy.shape)
    confidence = np.where(noisy == 1, 1 - P, P)
    precision = [average_precision_score(wrong.ravel(), values.ravel()) for values in (found, confidence)]
    assert precision[0] > precision[1] + 0.2
    assert brier_score(found, wrong) < 0.8 * brier_score(wrong.mean(), wrong)
    listed = found >= 0.5
    assert wrong[listed].mean() - 0.2 < found[listed].mean() < wrong[listed].mean()


def test_score_of_emptied_rows_agrees_with_reference():
    rng = np.random.default_rng(0)
    Y, P = (rng.random((40, 3)) < 0.2).astype(float), rng.random((40, 3))
    Y[5, 1] = np.nan
    found = EmptiedRows(unsure, 0.15)(Y, P)
    for i in range(40):
        expected = reference.emptied(Y[i], P[i], 0.15, unsure(Y, P)[i])
        assert_allclose(found[i], expected, rtol=1e-10)


def test_few_complete_rows_do_not_determine_emptied_rows(emptied_rows):
    _, noisy, P = emptied_rows
    partly = noisy.copy()
    partly[150:, 0] = np.nan
    assert emptied_share(partly, P) == 0


def test_score_table_interpolates():
    posterior = np.random.default_rng(0).random((2, error_model.N_NODES, 2))
    table = ScoreTable(posterior, np.ones(2), np.ones((2, 2)), 0.3)
    P = np.array([[0.0, 1.0], [0.3, 0.123]])
    Y = np.array([[1.0, 0.0], [np.nan, 1.0]])
    nodes = np.linspace(0, 1, error_model.N_NODES)
    found = table(Y, P)
    assert_allclose(found[0], [posterior[1, 0, 0], posterior[0, -1, 1]])
    assert np.isnan(found[1, 0])
    assert found[1, 1] == pytest.approx(np.interp(0.123, nodes, posterior[1, :, 1]))


def test_order_is_self_confidence_without_evidence(hard_rows):
    _, noisy, P = hard_rows
    found = scores_of(find_label_issues(noisy, P, min_p_wrong=0), noisy.shape)
    confidence = np.where(noisy == 1, 1 - P, P)
    assert_array_equal(np.argsort(found.ravel(), kind="stable"), np.argsort(confidence.ravel(), kind="stable"))
    assert found.min() > 0
    assert found.max() < 0.5
    assert len(find_label_issues(noisy, P)) == 0


def test_order_is_better_than_self_confidence_for_class_conditional_noise(class_conditional):
    true, noisy, P, noise = class_conditional
    wrong = (noisy != true).ravel()
    found = scores_of(find_label_issues(noisy, P, min_p_wrong=0), noisy.shape).ravel()
    known = scores_of(find_label_issues(noisy, P, noise, min_p_wrong=0), noisy.shape).ravel()
    precision = [average_precision_score(wrong, s) for s in (found, known, np.where(noisy == 1, 1 - P, P).ravel())]
    assert precision[0] > precision[2] + 0.05
    assert precision[0] > precision[1] - 0.05
    assert (found > 0).all()
    listed = found >= 0.5
    assert found[listed].mean() < wrong[listed].mean()


def estimated(noise, noise_type):
    fields = NoiseRates.known(noise, np.zeros((10, noise.n_labels))).to_dict()
    changed = {"kind": ["point"] * noise.n_labels, "noise_type": [noise_type] * noise.n_labels}
    return NoiseRates.from_dict(fields | changed)


@pytest.mark.parametrize(("noise_type", "value"), [("partial", 1), ("missing", 0)])
def test_declared_noise_type_excludes_the_other_error(hard_rows, noise_type, value):
    _, noisy, P = hard_rows
    rates = np.full(4, 0.2), np.zeros(4)
    noise = ClassConditionalNoise(*(rates if noise_type == "missing" else rates[::-1]))
    issues = find_label_issues(noisy, P, estimated(noise, noise_type), min_p_wrong=0)
    assert (issues.p_wrong > 0).all()
    excluded = issues[issues.given != value].p_wrong
    assert excluded.max() < 1e-4
    assert (issues.given.head(50) == value).all()


def test_estimated_rates_are_averaged_over_upper_bounds(class_conditional):
    _, noisy, P, noise = class_conditional
    rates = RateRange(noise.rho_pos, noise.rho_neg, np.zeros(4))
    spread = rates._replace(spread=noise.rho_pos / 2)
    low, high = (unsupervised_score(noisy, P, rates._replace(rho_pos=noise.rho_pos * factor)) for factor in (0.5, 1.5))
    average = unsupervised_score(noisy, P, spread)
    nodes = np.repeat(np.arange(257)[:, None] / 256, 4, 1)
    for value in (0, 1):
        labels = np.full(nodes.shape, value)
        parts = average(labels, nodes), low(labels, nodes), high(labels, nodes)
        # Predictions are calibrated to the central rates, so that only the order of the three is exact.
        assert (parts[0] <= np.maximum(parts[1], parts[2]) + 0.1).all()


def test_logistic_regression_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200).astype(float)
    found = error_model._logistic_regression(X, y, np.zeros(200), np.full(3, 2.0))
    expected = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-8).fit(X, y).coef_[0]
    assert_allclose(found, expected, atol=1e-3)


def test_logistic_regression_uses_the_offset():
    y = np.array([1.0, 0.0, 1.0, 1.0])
    found = error_model._logistic_regression(np.ones((4, 1)), y, np.full(4, 5.0), np.full(1, 1e-9))
    assert found[0] == pytest.approx(math.log(3) - 5, abs=1e-3)


def unsure(labels, _):
    """Return a score of 0.2 for every observed label."""
    return np.where(np.isnan(labels), np.nan, 0.2)


def test_error_model_agrees_with_its_formula():
    rng = np.random.default_rng(0)
    Y, P = rng.integers(0, 2, (20, 3)).astype(float), rng.random((20, 3))
    Y[3, 1] = np.nan
    scaling = np.array([1.5, 0.5, 0.1])
    model = ErrorModel(unsure, rng.normal(size=(2, 3)), np.ones(2), np.ones(2), np.array([-0.5, 2.0]), scaling)
    model.slope[1], model.count_slope[0] = -2, 0.5
    surplus = rng.normal(size=(20, 3))
    found = model(Y, P, surplus)
    for i, j in np.ndindex(*Y.shape):
        if np.isnan(Y[i, j]):
            assert np.isnan(found[i, j])
            continue
        v = int(Y[i, j])
        odds = 0.3 * math.log(0.25) + model.offset[v, j] + model.slope[v] * math.log(P[i, j] / (1 - P[i, j]))
        odds += model.count_slope[v] * math.log(1 + np.nansum(Y[i])) + model.surplus_slope[v] * surplus[i, j]
        odds = (1.5 if odds < 0 else 0.5) * odds + 0.1
        assert found[i, j] == pytest.approx(1 / (1 + math.exp(-odds)))


def test_trusted_rows_reveal_labels_that_are_often_wrong(hard_rows):
    true, noisy, P = hard_rows
    true = true.copy()
    added = (noisy[:, 2] == 1) & (np.random.default_rng(3).random(len(true)) < 0.8)
    true[added, 2] = 0
    rows = np.random.default_rng(4).permutation(len(true))[:200]
    others = np.setdiff1d(np.arange(len(true)), rows)
    learned = scores_of(find_label_issues(noisy, P, trusted=(rows, true[rows]), min_p_wrong=0), noisy.shape)
    before = scores_of(find_label_issues(noisy, P, min_p_wrong=0), noisy.shape)
    wrong = (noisy != true)[others].ravel()
    precision = [average_precision_score(wrong, s[others].ravel()) for s in (learned, before)]
    assert precision[0] > precision[1] + 0.1
    listed = learned[others].ravel() >= 0.5
    assert abs(learned[others].ravel()[listed].mean() - wrong[listed].mean()) < 0.1


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_calibration_of_log_odds_recovers_their_scale(factor):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-1, 2, 20_000)
    wrong = (rng.random(log_odds.size) < 1 / (1 + np.exp(-log_odds))).astype(float)
    found = error_model._fit_log_odds(log_odds / factor, wrong)
    assert_allclose(found, [factor, factor, 0], atol=0.15)


def test_verified_labels_are_certain(hard_rows):
    true, noisy, P = hard_rows
    known = np.full(true.shape, np.nan)
    known[5:60, 1] = true[5:60, 1]
    found = scores_of(find_label_issues(noisy, P, trusted=known, min_p_wrong=0), noisy.shape)
    assert_array_equal(found[5:60, 1], noisy[5:60, 1] != true[5:60, 1])
    assert ((found[:, 0] > 0) & (found[:, 0] < 1)).all()
    pair = find_label_issues(noisy, P, trusted=(np.arange(5, 60), known[5:60]), min_p_wrong=0)
    assert_array_equal(scores_of(pair, noisy.shape), found)


def test_few_trusted_rows_keep_the_order(hard_rows):
    true, noisy, P = hard_rows
    before = scores_of(find_label_issues(noisy, P, min_p_wrong=0), noisy.shape).ravel()
    after = scores_of(find_label_issues(noisy, P, trusted=([0], true[:1]), min_p_wrong=0), noisy.shape).ravel()
    assert np.corrcoef(before.argsort().argsort()[8:], after.argsort().argsort()[8:])[0, 1] > 0.9


def test_trusted_without_verified_labels_is_ignored(hard_rows):
    _, noisy, P = hard_rows
    nothing = np.full(noisy.shape, np.nan)
    found = find_label_issues(noisy, P, trusted=nothing, min_p_wrong=0)
    assert_array_equal(found, find_label_issues(noisy, P, min_p_wrong=0))


def test_trusted_labels_of_another_shape_are_rejected(hard_rows):
    true, noisy, P = hard_rows
    with pytest.raises(ValueError, match=r"trusted must have shape \(5, 4\); got shape \(5, 2\)"):
        find_label_issues(noisy, P, trusted=(np.arange(5), true[:5, :2]))


def test_error_model_uses_the_unsupervised_score(class_conditional):
    true, noisy, P, _ = class_conditional
    wrong = (noisy != true)[:30].astype(float)
    constant = fit_error_model(unsure, noisy[:30], P[:30], wrong, noisy.mean(0))
    scored = fit_error_model(unsupervised_score(noisy, P), noisy[:30], P[:30], wrong, noisy.mean(0))
    truth = (noisy != true)[30:].ravel()
    precision = [average_precision_score(truth, model(noisy[30:], P[30:]).ravel()) for model in (scored, constant)]
    assert precision[0] > precision[1]


class TestAnnotators:
    @pytest.fixture
    def task(self):
        """Labels of three annotators, one of whom adds many false labels."""
        true, clean = make_labels()
        annotator = np.random.default_rng(5).choice(["careful", "usual", "generous"], len(true))
        added = np.where(annotator == "generous", 0.35, 0.02)[:, None]
        noisy = np.where((true == 0) & (np.random.default_rng(6).random(true.shape) < added), 1.0, true)
        return true, noisy, np.clip(clean + 0.09, 0, 1), annotator

    def test_surplus_is_the_log_ratio_of_given_to_predicted_labels(self, task):
        _, noisy, P, annotator = task
        noisy = noisy.copy()
        noisy[0, 0] = np.nan
        numbers = np.unique(annotator, return_inverse=True)[1]
        blocks = [(slice(start, start + 300), noisy[start : start + 300], P[start : start + 300]) for start in (0, 300)]
        found = AnnotatorSurplus.of(numbers[:600], blocks)
        for name, j in ((0, 0), (2, 3)):
            rows = [i for i in range(600) if numbers[i] == name and not np.isnan(noisy[i, j])]
            expected = math.log((noisy[rows, j].sum() + 5) / (P[rows, j].sum() + 5))
            assert found.table[name, j] == pytest.approx(expected)
        assert_array_equal(found.rows(np.array([7])), found.table[[numbers[7]]])

    def test_annotators_improve_the_order(self, task):
        true, noisy, P, annotator = task
        trusted, others = (np.arange(100), true[:100]), slice(100, None)
        wrong = (noisy != true)[others].ravel()
        precision = []
        for known in (None, annotator):
            issues = find_label_issues(noisy, P, trusted=trusted, min_p_wrong=0, groups=known)
            precision.append(average_precision_score(wrong, scores_of(issues, noisy.shape)[others].ravel()))
        assert precision[1] > precision[0] + 0.05

    def test_one_annotator_changes_nothing(self, task):
        true, noisy, P, _ = task
        trusted = np.arange(100), true[:100]
        alone = find_label_issues(noisy, P, trusted=trusted, groups=["a"] * len(noisy), min_p_wrong=0)
        without = find_label_issues(noisy, P, trusted=trusted, min_p_wrong=0)
        wrong = (noisy != true)[alone.row, alone.label]
        other = (noisy != true)[without.row, without.label]
        difference = average_precision_score(wrong, alone.p_wrong) - average_precision_score(other, without.p_wrong)
        assert abs(difference) < 0.02

    def test_blocks_of_rows_get_their_own_annotators(self, task, monkeypatch):
        true, noisy, P, annotator = task
        arguments = {"trusted": (np.arange(100), true[:100]), "annotators": annotator, "min_p_wrong": 0}
        expected = find_label_issues(noisy, P, **arguments)
        monkeypatch.setattr("ccmn.audit.label_issues.MAX_BLOCK_ENTRIES", 64)
        assert_allclose(find_label_issues(noisy, P, **arguments).p_wrong, expected.p_wrong)

    def test_errors(self, task):
        true, noisy, P, annotator = task
        with pytest.raises(ValueError, match="groups have no effect without verified rows"):
            find_label_issues(noisy, P, groups=annotator)
        with pytest.raises(ValueError, match=r"groups must have one entry per row \(2000\); got 10"):
            find_label_issues(noisy, P, trusted=(range(10), true[:10]), groups=annotator[:10])


class TestVotes:
    @pytest.fixture
    def task(self):
        """Majority labels of three votes, each wrong with probability .25."""
        true, clean = make_labels(strength=1.0)
        wrong = np.random.default_rng(7).random((len(true), 3, 4)) < 0.25
        votes = np.where(wrong, 1 - true[:, None], true[:, None])
        return true, (votes.mean(1) > 0.5).astype(float), clean, votes

    def test_dissent_improves_the_order(self, task):
        true, noisy, P, votes = task
        trusted, others = (np.arange(100), true[:100]), slice(100, None)
        wrong = (noisy != true)[others].ravel()
        precision = []
        for known in (None, votes):
            issues = find_label_issues(noisy, P, trusted=trusted, min_p_wrong=0, votes=known)
            precision.append(average_precision_score(wrong, scores_of(issues, noisy.shape)[others].ravel()))
        assert precision[1] > precision[0] + 0.05

    def test_dissent_is_the_share_of_other_votes(self, task):
        true, noisy, P, votes = task
        votes = votes.copy()
        votes[1, 2] = votes[3] = np.nan
        found = score_labels(noisy, P, None, (range(50), true[:50]), None, votes).surplus.rows(slice(0, 5))
        for i, j in np.ndindex(5, 4):
            given = [vote for vote in votes[i, :, j] if not np.isnan(vote)]
            assert found[i, j] == pytest.approx(np.mean([vote != noisy[i, j] for vote in given]) if given else 0.0)

    def test_errors(self, task):
        true, noisy, P, votes = task
        with pytest.raises(ValueError, match="votes have no effect without verified rows"):
            find_label_issues(noisy, P, votes=votes)
        with pytest.raises(ValueError, match="votes on 2000 rows and 4 labels; got 10 and 4"):
            find_label_issues(noisy, P, trusted=(range(10), true[:10]), votes=votes[:10])
        with pytest.raises(ValueError, match="got both"):
            find_label_issues(noisy, P, trusted=(range(10), true[:10]), votes=votes, groups=["a"] * 2000)
