"""Slopes of labels: the posterior mean of a slow reference, shrinkage, and what they leave unchanged."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from scipy.special import expit
from scipy.stats import rankdata

from ccmn import CCMNClassifier, ClassConditionalNoise, load_model
from ccmn.data import load_dataset
from ccmn.models.calibration import (
    linear_probability,
    linear_probability_tensor,
)
from ccmn.models.predictor import common_slope, label_slopes
from ccmn.noise import TransitionNoise

pytestmark = pytest.mark.filterwarnings("ignore:The selected learning rate")

Q = 6
NOISE = ClassConditionalNoise([0.2, 0.1, 0.3, 0.2, 0.1, 0.1], [0.1, 0.2, 0.1, 0.2, 0.1, 0.2])


def make_scores(n: int, slopes: list[float], seed: int = 0, rate: float = 0.2):
    """Return scores and debiased labels whose true probabilities are sigma(slope * score)."""
    rng = np.random.default_rng(seed)
    f = rng.normal(size=(n, len(slopes))) * 2 - 0.5
    noise = ClassConditionalNoise([rate] * len(slopes), [rate] * len(slopes))
    return f, noise.debias(noise.corrupt((rng.random(f.shape) < expit(f * slopes)).astype(int), random_state=seed))


def reference_slopes(f: np.ndarray, p: np.ndarray, slope: float, weights: np.ndarray) -> list[float]:
    """Return the slopes from the formulas: sums over rows in Python, and numerical integration over the posterior."""
    columns = [
        [(w, slope * x, y) for w, x, y in zip(weights, f[:, j], p[:, j]) if not math.isnan(y)]
        for j in range(f.shape[1])
    ]

    def g(j: int, b: float) -> float:
        return sum(w * x * (1 / (1 + math.exp(-math.exp(b) * x)) - y) for w, x, y in columns[j])

    v = [sum((w * x * (1 / (1 + math.exp(-x)) - y)) ** 2 for w, x, y in rows) for rows in columns]
    information = [(g(j, 1e-4) - g(j, -1e-4)) / 2e-4 for j in range(len(v))]
    excess = sum(g(j, 0) ** 2 / v[j] for j in range(len(v))) - (len(v) - 1)
    tau2 = max(0, excess) / sum(i**2 / v_j for i, v_j in zip(information, v))
    result = []
    for j in range(len(v)):
        if tau2 == 0:
            result.append(slope)
            continue

        def density(b: float, j: int = j) -> float:
            return math.exp(-(g(j, b) ** 2) / (2 * v[j]) - b**2 / (2 * tau2))

        total, mean = (
            scipy.integrate.quad(call, -1.5, 1.5, epsabs=1e-7)[0] for call in (density, lambda b: b * density(b))
        )
        result.append(slope * math.exp(mean / total))
    return result


@pytest.mark.parametrize("slopes", [[0.4, 0.8, 1.6, 0.8], [0.7, 0.7, 0.7]])
def test_slopes_equal_those_of_the_reference(slopes):
    f, p = make_scores(60, slopes, rate=0.1)
    p[:5, 0] = np.nan
    weights = np.random.default_rng(1).uniform(0.5, 1.5, 60)
    slope = common_slope(f, p, weights)
    found = label_slopes(f, p, slope, weights)
    np.testing.assert_allclose(found, reference_slopes(f, p, slope, weights), rtol=1e-3)
    np.testing.assert_allclose(label_slopes(f, p, slope, 7 * weights), found, rtol=1e-9)


def test_different_slopes_are_found():
    true = [0.4, 0.6, 0.8, 1.0, 1.2, 1.6]
    f, p = make_scores(40_000, true)
    np.testing.assert_allclose(label_slopes(f, p, common_slope(f, p)), true, rtol=0.08)


def test_labels_with_little_information_keep_the_common_slope():
    """Few observed rows, or much noise: the slope of such a label is nearer to the common slope."""
    true = [0.4, 0.4, 0.6, 0.8, 1.2, 1.6, 0.4]
    f, p = make_scores(2000, true)
    slope = common_slope(f, p)
    noisy = make_scores(2000, true, rate=0.45)[1]
    few = p.copy()
    few[30:, 0], few[:, 1], few[:, 6] = np.nan, noisy[:, 1], np.nan
    distance = np.abs(np.log(label_slopes(f, few, slope) / slope))
    assert distance[0] < 0.5 * abs(np.log(0.4 / slope))
    assert distance[1] < 0.5 * abs(np.log(0.4 / slope))
    assert distance[6] == 0


def test_slopes_that_differ_by_chance_are_equal():
    equal = 0
    for seed in range(20):
        f, p = make_scores(200, [0.8] * Q, seed, rate=0.3)
        slope = common_slope(f, p)
        found = label_slopes(f, p, slope)
        assert np.abs(np.log(found / slope)).max() < 1
        equal += bool((found == slope).all())
    assert equal >= 8  # more than half on average, because the variance between labels is estimated without bias
    assert (label_slopes(f[:, :1], p[:, :1], slope) == slope).all()


@pytest.fixture(scope="module")
def task():
    """Return features, noisy labels and true labels; some labels are nearly random."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 8))
    f = X @ rng.normal(size=(8, Q)) * [0.1, 0.2, 0.5, 1.0, 2.0, 3.0]
    Y = (rng.random(f.shape) < expit(f)).astype(int)
    return X, NOISE.corrupt(Y, random_state=0), Y


@pytest.fixture(scope="module")
def fitted(task):
    return fit(task[0], task[1])


def fit(X, Y, noise=NOISE, **params):
    params = {"loss": "hamming", "surrogate": "sigmoid", "model": "linear", "lr": 0.05, "epochs": 30, **params}
    return CCMNClassifier(noise, random_state=0, **params).fit(X, Y)


def test_thresholds_and_ranks_within_labels_do_not_change(task, fitted):
    X, scores, p = task[0], fitted.decision_function(task[0]), fitted.predict_proba(task[0])
    slopes = fitted._scorer.slope
    assert slopes.shape == (Q,)
    assert slopes.max() > 1.5 * slopes.min()
    assert (rankdata(scores, axis=0) == rankdata(p, axis=0)).all()
    assert ((p >= 0.5) == fitted.predict(X)).all()
    np.testing.assert_allclose(p, expit(slopes * scores))


def test_log_loss_on_true_labels_decreases(task, monkeypatch):
    X, noisy, Y = task
    scorer = fit(X[:800], noisy[:800])._scorer
    monkeypatch.setattr("ccmn.models.predictor.MAX_LABEL_SLOPES", 0)
    common = fit(X[:800], noisy[:800])._scorer
    scores = scorer.scores(X[800:])
    assert (common.scores(X[800:]) == scores).all()
    with_slopes, with_one = (
        (np.logaddexp(0, a * scores) - Y[800:] * a * scores).mean() for a in (scorer.slope, common.slope)
    )
    assert with_slopes < with_one - 0.002


@pytest.mark.slow
@pytest.mark.parametrize("surrogate", ["sigmoid", "hinge"])
def test_calibration_error_on_yeast(real_data, surrogate, monkeypatch):
    """The calibration error (10 bins, mean over labels) on true test labels decreases by more than a tenth."""
    data = load_dataset(real_data / "yeast.npz")
    order = np.random.default_rng(0).permutation(len(data.Y))
    train, test = order[:1600], order[1600:]
    noise = ClassConditionalNoise(*np.random.default_rng(1).uniform(0.05, 0.35, (2, 14)))
    noisy = noise.corrupt(data.Y[train], random_state=0)

    def calibration_error():
        clf = CCMNClassifier(noise, loss="hamming", surrogate=surrogate, model="linear", random_state=0)
        p = clf.fit(data.X[train], noisy).predict_proba(data.X[test])
        bins, difference = np.minimum((p * 10).astype(int), 9), data.Y[test] - p
        sums = [np.abs(np.where(bins == k, difference, 0).sum(0)) for k in range(10)]
        return np.sum(sums, 0).mean() / len(test)

    with_slopes = calibration_error()
    monkeypatch.setattr("ccmn.models.predictor.MAX_LABEL_SLOPES", 0)
    assert with_slopes < 0.9 * calibration_error()


def test_saved_model_and_module(task, fitted, tmp_path):
    X, p = task[0], fitted.predict_proba(task[0])
    fitted.save(tmp_path / "m.ccmn")
    loaded = load_model(tmp_path / "m.ccmn")
    assert (loaded.predict_proba(X) == p).all()
    for clf in (fitted, loaded):
        np.testing.assert_allclose(clf.to_torch()(torch.tensor(X)).numpy(), p, atol=1e-5)


def test_where_all_labels_have_one_slope(task, monkeypatch):
    """Ranking losses and classes keep the order of labels in a row; very many labels have too few scores."""
    X, noisy, Y = task
    ranking = fit(X, noisy, loss="ranking")
    assert np.ndim(ranking._scorer.slope) == 0
    order = rankdata(ranking.decision_function(X), axis=1)
    assert (rankdata(ranking.predict_proba(X), axis=1) == order).all()
    classes = fit(X, Y.argmax(1), TransitionNoise(np.eye(Q)))
    assert np.ndim(classes._scorer.slope) == 0
    monkeypatch.setattr("ccmn.models.predictor.MAX_LABEL_SLOPES", Q - 1)
    assert np.ndim(fit(X, noisy)._scorer.slope) == 0


def test_slopes_are_fitted_on_some_rows(task, fitted, monkeypatch):
    monkeypatch.setattr("ccmn.models.predictor.MAX_LABEL_SLOPE_ENTRIES", 100 * Q)
    fewer = fit(task[0], task[1])._scorer.slope
    assert (fewer != fitted._scorer.slope).any()
    assert np.abs(np.log(fewer / fitted._scorer.slope)).max() < 1


@pytest.mark.parametrize("tails", [(0.0, 0.0), (0.05, 0.0), (0.0, 0.01), (0.02, 0.05)])
def test_linear_probabilities_increase_and_are_exact_between_the_tails(tails):
    low, high = tails
    p = np.linspace(-2 * low, 1 + 2 * high, 1001)
    found = linear_probability(2 * p - 1, tails)
    assert ((found > 0) & (found < 1)).all()
    assert (np.diff(found) > 0).all()
    exact = (p >= low) & (p <= 1 - high)
    np.testing.assert_allclose(found[exact][1:-1], p[exact][1:-1], atol=1e-12)
    np.testing.assert_allclose(np.diff(found)[1:-1], np.diff(found)[2:], rtol=0.2)  # no jump of value or slope
    of_tensor = linear_probability_tensor(torch.tensor(2 * p - 1), torch.tensor(tails, dtype=torch.float64))
    np.testing.assert_allclose(of_tensor.numpy(), found, atol=1e-12)
