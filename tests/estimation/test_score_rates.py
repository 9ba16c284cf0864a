"""Noise rates that depend on the score: likelihood, selection, uncertainty, and use in metrics, audits and models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression

from ccmn import (
    CCMNClassifier,
    ClassConditionalNoise,
    CorrectedClassifier,
    ScoreDependentNoise,
    estimate_score_noise,
    find_label_issues,
)
from ccmn.audit import audit_labels, p_wrong, suggest_labels
from ccmn.estimation import score_rates
from ccmn.estimation.score_rates import (
    SCORES,
    PenalizedLikelihood,
    PlattScaling,
    TrustedEntries,
    fit_rates,
    log_likelihood,
)
from ccmn.metrics import METRICS, average_precision, hamming_loss, micro_f1, precision_at_k
from ccmn.noise import GroupedNoise

CLEAR = ClassConditionalNoise([0.0, 0.0, 0.1], [0.0, 0.0, 0.02])
BOUNDARY = ClassConditionalNoise([0.35, 0.3, 0.35], [0.3, 0.35, 0.25])
NOISE = ScoreDependentNoise({0.0: CLEAR, 0.5: BOUNDARY, 1.0: CLEAR})


def sample(noise, n, seed):
    """Return true labels, noisy labels and exact probabilities of the noisy labels."""
    rng = np.random.default_rng(seed)
    scores = rng.beta(0.7, 1.0, (n, noise.n_labels)) * 0.85 + 0.1
    rows = noise.at(scores)
    true = (rng.random(scores.shape) < (scores - rows.rho_neg) / (1 - rows.rho_pos - rows.rho_neg)).astype(float)
    return true, noise.corrupt(true, scores, random_state=seed + 1000), scores


def reference_likelihood(data, weights, at, parameters):
    """Penalized negative log-likelihood, entry by entry."""
    k, q = len(at), data.n_labels
    total = 0.0
    rates = []
    for part in np.split(parameters, 2):
        pooled, offset, deviation = (
            part[:k],
            part[k : k + q],
            part[k + q :].reshape(-1, q) if k > 1 else np.zeros((k, q)),
        )
        rates.append(
            [[1 / (1 + np.exp(-(pooled[a] + offset[j] + deviation[a, j]))) for j in range(q)] for a in range(k)]
        )
        total += 0.5 * (0.1 * ((pooled + 2) ** 2).sum() + (offset**2).sum() + 4 * (deviation**2).sum())
    for row, j, positive, flipped, score in zip(data.row, data.label, data.positive, data.flipped, data.score):
        pos, neg = (np.interp(score, at, [rate[a][j] for a in range(k)]) for rate in rates)
        flip = pos if positive else neg
        eta = (score - neg) / max(1 - pos - neg, 0.1)
        true = eta if positive else 1 - eta
        log_true = 0.0 if true > 1 else np.log(true) if true > 0.02 else np.log(0.02) - (0.02 - true) / 0.02
        total -= weights[row] * (np.log(flip if flipped else 1 - flip) + log_true)
    return total


@pytest.mark.parametrize("at", [SCORES, (0.5,)])
def test_likelihood_and_gradient(at):
    true, noisy, scores = sample(NOISE, 40, 0)
    true[3, 1] = noisy[5, 2] = np.nan
    data = TrustedEntries.of(noisy, true, scores)
    assert len(data.row) == 118
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, 40).astype(float)
    objective = PenalizedLikelihood(data, weights, at)
    for scale in (0.3, 2.0):
        parameters = rng.normal(-1, scale, 2 * objective.size)
        value, gradient = objective(parameters)
        assert value == pytest.approx(reference_likelihood(data, weights, at, parameters))
        numeric = scipy.optimize.approx_fprime(parameters, lambda t: objective(t)[0], 1e-6)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-2)


def test_log_likelihood_of_rows():
    true, noisy, scores = sample(NOISE, 30, 0)
    data = TrustedEntries.of(noisy, true, scores)
    found = log_likelihood(data, SCORES, (NOISE.rho_pos, NOISE.rho_neg))
    rows = NOISE.at(scores)
    flip = np.clip(np.where(true == 1, rows.rho_pos, rows.rho_neg), 1e-9, 1)
    np.testing.assert_allclose(found, np.log(np.where(true != noisy, flip, 1 - flip)).sum(1))


def test_platt_scaling_is_logistic_regression():
    rng = np.random.default_rng(0)
    probabilities = rng.random((3000, 2))
    labels = (rng.random((3000, 2)) < probabilities**2).astype(float)
    labels[:100, 1] = np.nan
    found = PlattScaling.of(labels, probabilities)
    for j in range(2):
        observed = ~np.isnan(labels[:, j])
        x = np.log(probabilities[observed, j] / (1 - probabilities[observed, j]))[:, None]
        model = LogisticRegression(C=1e4, tol=1e-8).fit(x, labels[observed, j])
        assert found.slope[j] == pytest.approx(model.coef_[0, 0], abs=0.01)
        assert found.offset[j] == pytest.approx(model.intercept_[0], abs=0.01)


def test_rates_are_recovered():
    true, noisy, scores = sample(NOISE, 4000, 0)
    found = estimate_score_noise(noisy, scores, (range(4000), true))
    assert found.depends_on_score
    assert found.gain > 10 * found.gain_se
    # Few rows have scores near 1; the rates at 0 and 1/2 have standard errors of about .02.
    assert np.abs(found.noise.rho_neg[:2] - NOISE.rho_neg[:2]).max() < 0.08
    assert np.abs(found.noise.rho_pos[1:] - NOISE.rho_pos[1:]).max() < 0.08


@pytest.mark.slow
def test_class_conditional_noise_is_selected_if_it_suffices():
    selected = []
    for seed in range(12):
        noise = ClassConditionalNoise.sample(5, (0.05, 0.1, 0.2), random_state=seed)
        true, noisy, scores = sample(ScoreDependentNoise({0.5: noise}), 200, seed)
        found = estimate_score_noise(noisy, scores, (range(200), true))
        selected.append(found.depends_on_score)
        if not found.depends_on_score:
            assert found.noise.scores == (0.5,)
            assert np.abs(found.noise.rho_pos[0] - noise.rho_pos).mean() < 0.1
    assert sum(selected) <= 1


def test_labels_are_shrunk_towards_the_pooled_rates():
    true, noisy, scores = sample(NOISE, 300, 0)
    true[5:, 2] = np.nan  # the third label has five verified rows
    found = estimate_score_noise(noisy, scores, (range(300), true)).noise
    assert np.abs(found.rho_neg[1, 2] - found.rho_neg[1, :2].mean()) < 0.1


def test_few_rows_give_class_conditional_rates():
    true, noisy, scores = sample(NOISE, 19, 0)
    found = estimate_score_noise(noisy, scores, (range(19), true))
    assert not found.depends_on_score
    assert np.isnan(found.gain)


def test_scores_are_calibrated_to_the_noisy_labels():
    true, noisy, scores = sample(NOISE, 3000, 0)
    shrunk = 0.5 * scores + 0.1
    found = estimate_score_noise(noisy, shrunk, (range(500), true[:500]))
    calibrated = found.calibrate(shrunk)
    assert np.abs(calibrated.mean(0) - noisy.mean(0)).max() < 0.01
    assert np.abs(calibrated - scores).mean() < 0.3 * np.abs(shrunk - scores).mean()


class TestMetrics:
    TRUE, NOISY, SCORES = sample(NOISE, 6000, 3)
    PREDICTED = SCORES >= 0.4

    @pytest.mark.parametrize("name", METRICS)
    def test_known_rates_give_the_metric_on_true_labels(self, name):
        metric = METRICS[name]
        second = self.PREDICTED if metric.needs == "labels" else self.SCORES
        found = metric.function(self.NOISY, second, noise=NOISE.at(self.SCORES))
        assert found.value == pytest.approx(metric.function(self.TRUE, second), abs=4 * found.se)
        assert found.se < 0.1

    def test_mean_rates_are_biased(self):
        biased = hamming_loss(self.NOISY, self.PREDICTED, noise=NOISE.mean(self.SCORES))
        assert abs(biased.value - hamming_loss(self.TRUE, self.PREDICTED)) > 3 * biased.se

    def test_uncertain_rates_increase_the_standard_error(self):
        found = estimate_score_noise(self.NOISY, self.SCORES, (range(200), self.TRUE[:200]))
        known = micro_f1(self.NOISY, self.PREDICTED, noise=found.noise.at(found.calibrate(self.SCORES)))
        estimated = micro_f1(self.NOISY, self.PREDICTED, noise=found.at(self.SCORES))
        assert estimated.value == pytest.approx(known.value)
        assert estimated.se > 1.5 * known.se
        assert estimated.value == pytest.approx(micro_f1(self.TRUE, self.PREDICTED), abs=3 * estimated.se)
        assert estimated.status == "consistent"

    def test_variance_is_that_of_the_bootstrap_samples(self):
        found = estimate_score_noise(self.NOISY, self.SCORES, (range(200), self.TRUE[:200]))
        rates = found.at(self.SCORES[:50])
        rng = np.random.default_rng(0)
        slopes = rng.normal(size=(2, 50, 3))
        calibrated = found.calibrate(self.SCORES[:50])
        values = []
        for pos, neg in found.samples:
            models = {s: ClassConditionalNoise(p, q) for s, p, q in zip(found.noise.scores, pos, neg)}
            rows = ScoreDependentNoise(models).at(calibrated)
            changes = np.stack([rows.rho_pos - rates.noise.rho_pos, rows.rho_neg - rates.noise.rho_neg])
            values.append((slopes * changes).sum())
        assert rates.variance(*slopes) == pytest.approx(np.square(values).mean())

    def test_errors(self):
        with pytest.raises(TypeError, match=r"got ScoreDependentNoise.*noise\.at"):
            hamming_loss(self.NOISY, self.PREDICTED, noise=NOISE)
        with pytest.raises(TypeError, match=r"got GroupedNoise.*noise\.at"):
            hamming_loss(self.NOISY, self.PREDICTED, noise=GroupedNoise({"a": CLEAR}))
        with pytest.raises(ValueError, match="rates of the 10 rows of Y; got rates of 5 rows"):
            average_precision(self.NOISY[:10], self.SCORES[:10], noise=NOISE.at(self.SCORES[:5]))
        with pytest.raises(TypeError, match="ClassConditionalNoise"):
            precision_at_k(self.NOISY, self.SCORES, 1, noise=NOISE.at(self.SCORES))


class TestAudit:
    TRUE, NOISY, SCORES = sample(NOISE, 2000, 5)

    def test_posterior_at_the_rates_of_each_entry(self):
        issues = find_label_issues(self.NOISY, self.SCORES, NOISE, min_p_wrong=0)
        rows = NOISE.at(self.SCORES)
        expected = p_wrong(self.NOISY, self.SCORES, rows.rho_pos, rows.rho_neg)
        np.testing.assert_allclose(issues.p_wrong, expected[issues.row, issues.label])
        listed = issues[issues.p_wrong > 0.3]
        wrong = (self.TRUE != self.NOISY)[listed.row, listed.label]
        assert wrong.mean() == pytest.approx(listed.p_wrong.mean(), abs=4 * 0.5 / np.sqrt(len(listed)))

    def test_estimated_rates(self):
        found = estimate_score_noise(self.NOISY, self.SCORES, (range(300), self.TRUE[:300]))
        issues = find_label_issues(self.NOISY, self.SCORES, found, min_p_wrong=0.3)
        wrong = (self.TRUE != self.NOISY)[issues.row, issues.label]
        assert abs(wrong.mean() - issues.p_wrong.mean()) < 0.1
        assert suggest_labels(self.NOISY, self.SCORES, found).shape == self.NOISY.shape

    def test_audit_reports_mean_rates(self):
        X = np.random.default_rng(0).normal(size=(2000, 2))
        found = audit_labels(X, self.NOISY, NOISE, pred_proba=self.SCORES)
        assert found.noise == NOISE.mean(self.SCORES)
        flips = (self.TRUE == 0) & (self.NOISY == 1)
        assert found.summary.false.sum() == pytest.approx(flips.sum(), rel=0.2)


class TestModels:
    def test_noise_is_inverted_in_the_probabilities(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(3000, 2))
        noisy = (rng.random((3000, 2)) < 1 / (1 + np.exp(-2 * X))).astype(int)
        models = {0: ClassConditionalNoise([0.3, 0.3], [0.0, 0.05]), 1: ClassConditionalNoise([0.0, 0.0], [0.4, 0.3])}
        noise = ScoreDependentNoise(models)
        model = CorrectedClassifier(LogisticRegression(), noise).fit(X, noisy)
        scores = np.column_stack([part.predict_proba(X)[:, 1] for part in model.estimators_])
        rows = noise.at(scores)
        expected = (scores - rows.rho_neg) / (1 - rows.rho_pos - rows.rho_neg)
        np.testing.assert_allclose(model.decision_function(X), expected - 0.5)
        inside = (expected > 0.001) & (expected < 0.999)
        proba = model.predict_proba(X)
        np.testing.assert_allclose(proba[inside], expected[inside])
        assert ((proba > 0) & (proba < 1)).all()

    def test_estimated_noise_also_calibrates(self):
        rng = np.random.default_rng(0)
        true, noisy, scores = sample(NOISE, 3000, 1)
        X = np.log(scores / (1 - scores)) + 0 * rng.normal(size=scores.shape)
        found = estimate_score_noise(noisy, scores, (range(500), true[:500]))
        model = CorrectedClassifier(LogisticRegression(C=1e-3), found).fit(X, noisy)
        noisy_proba = np.column_stack([part.predict_proba(X)[:, 1] for part in model.estimators_])
        calibrated = found.calibrate(noisy_proba)
        rows = found.noise.at(calibrated)
        expected = (calibrated - rows.rho_neg) / (1 - rows.rho_pos - rows.rho_neg)
        np.testing.assert_allclose(model.decision_function(X), expected - 0.5)

    @pytest.mark.parametrize("noise", [NOISE, NOISE.at(np.full((60, 3), 0.5))])
    def test_classifier_names_the_alternative(self, noise):
        with pytest.raises(TypeError, match=r"CorrectedClassifier\(CCMNClassifier\(noise=None\), noise\)"):
            CCMNClassifier(noise).fit(np.ones((60, 2)), np.ones((60, 3)))


def test_names_and_containers():
    true, noisy, scores = sample(NOISE, 200, 0)
    frame = pd.DataFrame(noisy, columns=list("abc"))
    found = estimate_score_noise(frame, scores, true)
    assert found.noise.label_names == ("a", "b", "c")
    np.testing.assert_array_equal(found.noise.rho_pos, estimate_score_noise(noisy, scores, true).noise.rho_pos)
    with pytest.raises(ValueError, match="pred_proba"):
        found.at(pd.DataFrame(scores, columns=list("acb")))


def test_errors():
    true, noisy, scores = sample(NOISE, 50, 0)
    with pytest.raises(ValueError, match="requires trusted rows with verified labels; got none"):
        estimate_score_noise(noisy, scores, np.full(true.shape, np.nan))
    with pytest.raises(ValueError, match="pred_proba"):
        estimate_score_noise(noisy, scores[:40], (range(10), true[:10]))
    with pytest.raises(ValueError, match="between 0 and 1"):
        estimate_score_noise(noisy, 2 * scores, (range(10), true[:10]))


def test_rates_of_many_wrong_labels_are_limited():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, (300, 2)).astype(float)
    rates = fit_rates(TrustedEntries.of(1 - true, true, rng.random((300, 2))), np.ones(300), SCORES)
    assert (rates[0] + rates[1] <= 0.9 + 1e-9).all()


def test_penalties_of_the_reference():
    assert (score_rates.POOLED_MEAN, score_rates.POOLED_PENALTY) == (-2.0, 0.1)
    assert (score_rates.LABEL_PENALTY, score_rates.DEVIATION_PENALTY) == (1.0, 4.0)
