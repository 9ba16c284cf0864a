"""Tests of the noise model without trusted rows: formulas, detection of each violation, and no false alarms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from ccmn import diagnose_noise
from ccmn.data import make_noisy_multilabel
from ccmn.estimation import violations
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.likelihood import bin_scores
from ccmn.estimation.violations import (
    BOUNDARY_STRENGTH,
    RATE_PAIRS,
    _predict_from_others,
    calibrate_scores,
    confusions,
    find_violations,
    rate_likelihood,
    read_scores,
    read_shape_scores,
    shape_gains,
)
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

N, Q = 2500, 10
DATA = make_noisy_multilabel(N, 10, Q, strength=6.0, random_state=1)
RNG = np.random.default_rng(7)


def codes(Y, noise_type="both", **options):
    evidence = Evidence(Y=Y.astype(float), noise_type=(noise_type,) * Y.shape[1], **({"X": DATA.X} | options))
    return {flag.code for flag in find_violations(evidence)}


def confuse():
    """Move 35 % of the positives of every even label to the next label."""
    noisy = DATA.Y.copy()
    for j in range(0, Q, 2):
        moved = (DATA.Y[:, j] == 1) & (DATA.Y[:, j + 1] == 0) & (np.random.default_rng(j).random(N) < 0.35)
        noisy[moved, j], noisy[moved, j + 1] = 0, 1
    return noisy


def flip_at_boundary():
    rate = np.minimum(DATA.posterior, 1 - DATA.posterior)
    return np.where(np.random.default_rng(0).random((N, Q)) < rate, 1 - DATA.Y, DATA.Y)


def flip_by_feature():
    rate = 0.6 * DATA.X[:, 0].argsort().argsort()[:, None] / N
    draw = np.random.default_rng(0).random((N, Q))
    return np.where(DATA.Y == 1, draw >= rate, draw < rate / 5).astype(int)


@pytest.mark.parametrize(
    ("noisy", "code"),
    [
        (confuse, "confused_labels"),
        (flip_at_boundary, "boundary_noise"),
        (flip_by_feature, "feature_dependent_noise"),
    ],
)
def test_each_violation_raises_its_flag(noisy, code):
    """A moved label is also a feature-dependent addition to the other label, and may be flagged as both."""
    allowed = {code, "feature_dependent_noise"} if code == "confused_labels" else {code}
    assert {code} <= codes(noisy()) <= allowed


@pytest.mark.parametrize(
    "noise",
    [
        ClassConditionalNoise(0.0, 0.0, n_labels=Q),
        ClassConditionalNoise(0.3, 0.2, n_labels=Q),
        MissingNoise(0.4, n_labels=Q),
        PartialNoise(0.3, n_labels=Q),
    ],
)
def test_class_conditional_noise_is_not_flagged(noise):
    assert codes(noise.corrupt(DATA.Y, random_state=0)) == set()


def test_correct_labels_are_not_flagged():
    """Rows without labels, and nested labels: a parent holds if any child does, and children need a gate."""
    rng = np.random.default_rng(0)
    assert codes(np.where(rng.random((N, 1)) < 0.1, 0, DATA.Y)) == set()
    gate = rng.random((N, 1)) < expit(1.2 * DATA.X[:, :1] - 1)
    children = gate & (rng.random((N, Q)) < expit(0.7 * DATA.X @ rng.normal(size=(10, Q))))
    assert codes(np.column_stack([children.any(1), children])) == set()


def test_declared_noise_type_is_contradicted_only_if_wrong():
    added = PartialNoise(0.3, n_labels=Q).corrupt(DATA.Y, random_state=0)
    removed = MissingNoise(0.4, n_labels=Q).corrupt(DATA.Y, random_state=0)
    assert codes(added, "missing") == codes(removed, "partial") == {"noise_type_contradicted"}
    assert codes(added, "partial") == codes(removed, "missing") == set()


def test_probabilities_replace_features():
    noisy = confuse()
    proba = np.column_stack([calibrate_scores(DATA.X @ w, y) for w, y in zip(np.eye(10)[:Q] + 0.1, noisy.T)])
    proba = 0.5 * proba + 0.5 * DATA.posterior
    found = diagnose_noise(Y_noisy=pd.DataFrame(noisy, columns=list("abcdefghij")), pred_proba=proba)
    assert np.isnan(found.p_value).all()
    flag = next(flag for flag in found.flags if flag.code == "confused_labels")
    pairs = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), ("i", "j")]
    assert any({flag.name} < set(pair) and f"label {(set(pair) - {flag.name}).pop()!r}" in flag.note for pair in pairs)
    with pytest.raises(ValueError, match="got neither"):
        diagnose_noise(Y_noisy=noisy)


def test_few_complete_rows_are_not_tested():
    noisy = confuse().astype(float)
    assert codes(noisy[:499], X=DATA.X[:499]) == set()
    partly = noisy.copy()
    partly[600:, 0] = np.nan
    assert codes(partly) == codes(noisy[:600], X=DATA.X[:600])
    partly[:, 0] = np.nan
    assert codes(partly) == set()


def test_share_of_moved_labels_is_estimated():
    score = np.sort(RNG.normal(size=3000))[::-1]
    true = score > 1
    moved = true & (RNG.random(3000) < 0.35)
    other = RNG.random(3000) < 0.2
    Y = np.column_stack([true & ~moved, other | moved]).astype(float)
    found = confusions(Y, np.column_stack([score, -score]))
    assert [(pair.label, pair.other) for pair in found] == [(0, 1)]
    assert found[0].moved == pytest.approx(0.35, abs=0.08)
    independent = np.column_stack([true & ~moved, other]).astype(float)
    assert not confusions(independent, np.column_stack([score, -score]))


def test_predictions_from_others_equal_ridge_regressions():
    residuals = RNG.normal(size=(90, 4)) @ RNG.normal(size=(4, 4))
    predicted = _predict_from_others(residuals)
    fold = np.random.default_rng(0).permutation(90) % 3
    for k in range(3):
        training, held_out = residuals[fold != k], residuals[fold == k]
        l2 = 0.3 + 20 * 4 / len(training)
        for j in range(4):
            A, b = np.delete(training, j, 1), training[:, j]
            w = np.linalg.solve(A.T @ A / len(A) + l2 * np.eye(3), A.T @ b / len(A))
            np.testing.assert_allclose(predicted[fold == k, j], np.delete(held_out, j, 1) @ w)


def noisy_posteriors():
    """Return scores, and labels with flips near the boundary (twice, with rates and without) and with rates only."""
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 3, 20_000)
    eta = 1 / (1 + np.exp(-logits))
    flips = np.minimum(eta, 1 - eta) * (1 - 2 * eta)
    proba = np.column_stack([eta + flips, 0.1 + 0.7 * eta + 0.5 * flips, 0.1 + 0.7 * eta, 0.6 * eta])
    return np.tile(logits[:, None], 4), (rng.random(proba.shape) < proba).astype(float)


def test_shape_gains_separate_flips_near_the_boundary_from_rates():
    gains = shape_gains(*noisy_posteriors())
    assert (gains[:2] > 5).all()
    assert (gains[2:] < -5).all()


def test_shape_gains_match_a_general_optimizer():
    logits, Y = noisy_posteriors()
    gains = shape_gains(logits, Y)
    for j in range(4):
        centers, zeros, ones = bin_scores(logits[:, j], Y[:, j] == 1)

        def loss(t, strength, centers=centers, zeros=zeros, ones=ones):
            eta = expit(np.exp(t[0]) * centers + t[1])
            pos, neg = 0.7 * expit(t[2]), 0.5 * expit(t[3])
            g = (1 - pos) * eta + neg * (1 - eta) + strength * np.minimum(eta, 1 - eta) * (1 - 2 * eta)
            g = np.clip(g, 1e-6, 1 - 1e-6)
            return -(ones * np.log(g) + zeros * np.log(1 - g)).sum() + 0.5 * ((t[0] - 0.2) / 0.5) ** 2

        starts = [(0, 0, a, b) for a in (-3, 0) for b in (-3, 0)]
        plain, flipped = (
            min(minimize(loss, start, (strength,), "BFGS").fun for start in starts)
            for strength in (0.0, BOUNDARY_STRENGTH)
        )
        assert gains[j] == pytest.approx(plain - flipped, rel=0.02, abs=0.2)


def test_large_data_have_more_rows_for_the_shape(monkeypatch):
    monkeypatch.setattr(violations, "MAX_ROWS", 1000)
    evidence = Evidence(Y=DATA.Y.astype(float), noise_type=("both",) * Q, X=DATA.X)
    scores = read_scores(evidence, 1000)
    assert scores.Y.shape == (1000, Q)
    assert read_shape_scores(evidence, scores).Y.shape == (N, Q)
    few = evidence.subset(np.arange(900))
    scores = read_scores(few)
    assert read_shape_scores(few, scores) is scores


def test_rate_likelihood_is_largest_at_the_true_rates():
    logits = RNG.normal(0, 4, 20_000)
    noisy = (RNG.random(20_000) < 0.2 + 0.5 / (1 + np.exp(-1.2 * logits))).astype(float)
    np.testing.assert_allclose(RATE_PAIRS[rate_likelihood(logits, noisy).argmax()], [0.3, 0.2])
