"""Risk control: thresholds that guarantee a metric on the true labels."""

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq

from ccmn import ClassConditionalNoise, PartialNoise, control_risk
from ccmn.estimation import NoiseRates
from ccmn.noise import TransitionNoise
from metrics.strategies import central_difference
from reference import noisy_vectors

AT_LEAST = ("recall", "precision")
N_STARTS = {"recall": 1, "precision": 8, "hamming": 24}
"""Metrics, and the number of sequences of tests that share the error probability."""
EASY = {"recall": 0.01, "precision": 0.01, "hamming": 0.99}
"""Targets that every threshold of these tests meets."""


def make_task(n, q=4, noise=None, random_state=0, difficulty=1.0):
    """Return scores, true labels and noisy labels of n rows."""
    rng = np.random.default_rng(random_state)
    scores = rng.normal(size=(n, q))
    Y = (scores + difficulty * rng.normal(size=(n, q)) > 0.8).astype(float)
    return scores, Y, Y if noise is None else noise.corrupt(Y, random_state=rng)


def row_parts(metric, p, scores, threshold):
    """Return N and D (n, 2) of rows of true or soft labels without NaN."""
    h, none = scores >= threshold, np.zeros_like(p)
    return {
        "recall": lambda: np.stack([np.where(h, p, none).sum(1), p.sum(1)], 1),
        "precision": lambda: np.stack([np.where(h, p, none).sum(1), h.sum(1)], 1),
        "hamming": lambda: np.stack([np.where(h, 1 - p, p).mean(1), np.ones(len(p))], 1),
    }[metric]()


def one_error(metric, noise):
    """Return N and D of one wrong label with the most extreme debiased value."""
    values = noise.debias(np.array([[0.0] * noise.n_labels, [1.0] * noise.n_labels]))
    if metric == "recall":
        return 0.0, values[1].max()
    if metric == "precision":
        return values[0].min(), 1.0
    return max(values[1].max(), (1 - values[0]).max()) / noise.n_labels, 1 / noise.n_labels


def value(metric, p, scores, threshold):
    """Return the metric of true labels, or its estimate from soft labels."""
    N, D = row_parts(metric, p, scores, threshold).sum(0)
    return N / D


def reference_margin(metric, p, scores, threshold, tau, level, noise, rate_variance=None):
    """Return the upper confidence bound of the constraint by a t test with one additional error."""
    sign = 1 if metric in AT_LEAST else -1
    constraint, n = sign * row_parts(metric, p, scores, threshold) @ [-1, tau], len(p)
    extra = sign * np.dot(one_error(metric, noise), [-1, tau]) / n
    variance = constraint.var(ddof=1) / n + extra**2
    if rate_variance is not None:
        variance += rate_variance(tau)
    return constraint.mean() + extra + scipy.stats.t.ppf(1 - level, n - 1) * math.sqrt(variance)


def reference_control(metric, p, scores, grid, target, error, noise):
    """Return the selected threshold by sequences of tests, or None."""
    n_starts = min(N_STARTS[metric], len(grid))
    order = list(grid) if metric == "recall" else list(grid)[::-1]
    accepted = []
    for k in range(n_starts):
        for threshold in order[k * (len(grid) - 1) // n_starts :]:
            if reference_margin(metric, p, scores, threshold, target, error / n_starts, noise) > 0:
                break
            accepted.append(threshold)
    if not accepted:
        return None
    if metric == "hamming":
        return min(accepted, key=lambda t: value(metric, p, scores, t))
    return max(accepted) if metric == "recall" else min(accepted)


def estimate_at(Y_noisy, scores, noise, metric, threshold, **options):
    """Return the estimate at a given threshold."""
    return control_risk(Y_noisy, scores, noise, metric, EASY[metric], 0.6, thresholds=[threshold], **options)


@pytest.mark.parametrize("metric", N_STARTS)
@pytest.mark.parametrize("rates", [((0.25, 0.5, 0.0), (0.25, 0.25, 0.0)), ((0.0,) * 3, (0.5, 0.25, 0.25))])
def test_estimate_is_unbiased(metric, rates):
    # Every noisy label vector occurs as often as its probability says, in units of 1/64: the estimate is then exact.
    noise = ClassConditionalNoise(*rates)
    rng = np.random.default_rng(0)
    Y = np.array(list(itertools.product((0, 1), repeat=3)), dtype=float)
    scores = rng.normal(size=Y.shape) + Y
    noisy_rows, rows = [], []
    for i, true in enumerate(Y):
        for noisy, probability in noisy_vectors(true, *rates):
            assert (64 * probability).is_integer()
            noisy_rows += [noisy] * int(64 * probability)
            rows += [i] * int(64 * probability)
    found = estimate_at(np.array(noisy_rows), scores[rows], noise, metric, 0.5)
    assert found.estimate == pytest.approx(value(metric, Y, scores, 0.5))


@pytest.mark.parametrize("metric", N_STARTS)
@pytest.mark.parametrize("noise", [None, ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.2, 0.0])])
def test_threshold_and_bound_against_reference(metric, noise):
    scores, _, noisy = make_task(150, 3, noise, random_state=3, difficulty=0.3)
    model = noise or ClassConditionalNoise(0.0, 0.0, n_labels=3)
    p, grid = model.debias(noisy), np.quantile(scores, np.linspace(0, 0.98, 40))
    target = {"recall": 0.7, "precision": 0.6, "hamming": 0.3}[metric]
    found = control_risk(noisy, scores, noise, metric, target, 0.8, thresholds=grid)
    assert found.threshold == reference_control(metric, p, scores, grid, target, 0.2, model)
    level = 0.2 / N_STARTS[metric]
    expected = brentq(
        lambda tau: reference_margin(metric, p, scores, found.threshold, tau, level, model), 0, 1, xtol=1e-10
    )
    assert found.bound == pytest.approx(expected, abs=1e-8)
    assert found.estimate == pytest.approx(value(metric, p, scores, found.threshold))
    assert (found.bound >= target) if metric in AT_LEAST else (found.bound <= target)


def test_default_thresholds_are_quantiles_with_geometric_numbers_of_predicted_labels():
    scores, Y, _ = make_task(3000, 2, difficulty=0.5)
    counts = np.unique(np.geomspace(3000 / 200, 6000, 384).round().astype(int))
    grid = np.sort(scores, axis=None)[6000 - counts]
    for metric, target in (("recall", 0.9), ("precision", 0.7), ("hamming", 0.2)):
        default, given = (control_risk(Y, scores, None, metric, target, thresholds=t) for t in (None, grid))
        assert (default.threshold, default.bound) == (given.threshold, given.bound)


@pytest.mark.filterwarnings("ignore:hamming")
def test_sequences_of_tests_start_at_equal_distances():
    """Only the threshold that separates the labels passes, so that the target is met if a sequence starts there."""
    scores, grid = np.linspace(0, 1, 2000)[:, None], np.linspace(0.02, 0.98, 49)
    found = [control_risk(scores >= t, scores, None, "hamming", 0.01, thresholds=grid).guaranteed for t in grid[::-1]]
    assert np.flatnonzero(found).tolist() == list(range(0, 48, 2))


@pytest.mark.parametrize("metric", N_STARTS)
def test_uncertain_rates_widen_the_bound(metric):
    noise = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.2, 0.15])
    scores, _, noisy = make_task(200, 3, noise, random_state=4, difficulty=0.3)
    rates = rates_with_errors(noise, noisy, se=0.02)
    found = estimate_at(noisy, scores, rates, metric, 0.2)
    sign = 1 if metric in AT_LEAST else -1

    def rate_variance(tau):
        def constraint(noise):
            return (sign * row_parts(metric, noise.debias(noisy), scores, 0.2) @ [-1, tau]).mean()

        return ((central_difference(constraint, noise) * [rates.se_pos, rates.se_neg]) ** 2).sum()

    # A grid of one threshold has one start.
    p, level = noise.debias(noisy), 0.4
    reference = brentq(
        lambda tau: reference_margin(metric, p, scores, 0.2, tau, level, noise, rate_variance), 0, 1, xtol=1e-8
    )
    assert found.bound == pytest.approx(reference, abs=1e-5)
    known = estimate_at(noisy, scores, noise, metric, 0.2).bound
    assert (found.bound < known) if metric in AT_LEAST else (found.bound > known)


def rates_with_errors(noise, noisy, se, low=0.01):
    """Return the rates of a noise model as estimates with standard errors."""
    known = NoiseRates.known(noise, noisy)
    q, error = noise.n_labels, np.full(noise.n_labels, se)
    ci = np.tile([low, 0.5], (q, 1))
    fields = {**vars(known), "se_pos": error, "se_neg": error, "ci_pos": ci, "ci_neg": ci}
    return NoiseRates(**fields)


def test_errors_of_rates_near_zero_add_up():
    noise = ClassConditionalNoise(0.01, 0.01, n_labels=4)
    scores, _, noisy = make_task(2000, 4, noise)
    apart, together = (
        estimate_at(noisy, scores, rates_with_errors(noise, noisy, 0.01, low), "recall", 0.0).bound
        for low in (0.001, 0.0)
    )
    assert together < apart


@pytest.mark.parametrize("metric", N_STARTS)
def test_trusted_rows_against_reference(metric):
    noise, wrong = ClassConditionalNoise(0.2, 0.2, n_labels=3), ClassConditionalNoise(0.1, 0.05, n_labels=3)
    scores, Y, noisy = make_task(240, 3, noise, random_state=5, difficulty=0.5)
    rows = np.arange(0, 240, 4)
    others = np.setdiff1d(np.arange(240), rows)
    found = estimate_at(noisy, scores, wrong, metric, 0.3, trusted=(rows, Y[rows]))
    p, tau, m = wrong.debias(noisy), EASY[metric], rows.size
    parts = [(Y, rows), (p, rows), (p, others)]
    true, soft, rest = (row_parts(metric, labels[at], scores[at], 0.3) for labels, at in parts)
    contrast = np.array([-1.0, tau])
    g, f, h = true @ contrast, soft @ contrast, rest @ contrast
    weight = np.clip(np.cov(g, f)[0, 1] / (f.var(ddof=1) + m * h.var(ddof=1) / others.size), 0, 1)
    N, D = true.mean(0) + weight * (rest.mean(0) - soft.mean(0))
    assert found.estimate == pytest.approx(N / D)
    assert found.n_rows == m

    sign = 1 if metric in AT_LEAST else -1
    clean = ClassConditionalNoise(0.0, 0.0, n_labels=3)

    def margin(tau):
        contrast = sign * np.array([-1.0, tau])
        extra = one_error(metric, clean) @ contrast / m
        variance = ((true - weight * soft) @ contrast).var(ddof=1) / m
        variance += weight**2 * (rest @ contrast).var(ddof=1) / others.size + extra**2
        return np.array([N, D]) @ contrast + extra + scipy.stats.t.ppf(0.6, m - 1) * math.sqrt(variance)

    assert found.bound == pytest.approx(brentq(margin, 0, 1, xtol=1e-10), abs=1e-8)


def test_all_rows_trusted_equals_clean_labels():
    noise = PartialNoise(0.2, n_labels=4)
    scores, Y, noisy = make_task(200, 4, noise)
    trusted = control_risk(noisy, scores, noise, target=0.5, trusted=Y)
    clean = control_risk(Y, scores, None, target=0.5)
    assert (trusted.threshold, trusted.bound) == (clean.threshold, clean.bound)


def test_sample_without_errors_is_not_certain():
    # No label is missed. The exact binomial test needs log(0.1) / log(0.9) = 22 positives.
    Y, scores = np.ones((60, 1)), np.linspace(0, 1, 60)[:, None]
    thresholds = [-1.0, 0.0]
    with pytest.warns(UserWarning, match="cannot be guaranteed"):
        few = control_risk(Y[:15], scores[:15], None, thresholds=thresholds)
    assert not few.guaranteed
    assert control_risk(Y[:30], scores[:30], None, thresholds=thresholds).guaranteed
    assert 15 < few.rows_needed < 30


@pytest.mark.parametrize(("metric", "target"), [("recall", 0.97), ("precision", 0.7), ("hamming", 0.13)])
def test_rows_needed(metric, target):
    noise = ClassConditionalNoise(0.3, 0.2, n_labels=4)
    scores, _, noisy = make_task(20, 4, noise, random_state=2, difficulty=0.3)
    with pytest.warns(UserWarning, match=f"{metric} .* cannot be guaranteed with confidence 0.95 from 20 rows"):
        few = control_risk(noisy, scores, noise, metric, target, 0.95)
    assert not few.guaranteed
    assert 20 < few.rows_needed < math.inf
    grid = np.unique(scores)
    for factor, enough in ((0.8, False), (1.2, True)):
        # Copies of the same rows have the same means; their number changes the variance only.
        copies = np.resize(np.arange(20), 20 * round(factor * few.rows_needed / 20))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = control_risk(noisy[copies], scores[copies], noise, metric, target, 0.95, thresholds=grid)
        assert found.guaranteed == enough


def test_target_out_of_reach():
    scores, Y, _ = make_task(400, difficulty=3.0)
    with pytest.warns(UserWarning, match="more rows do not help"):
        found = control_risk(Y, scores, None, "precision", 0.9, thresholds=[0.0, 0.5])
    assert (found.threshold, found.rows_needed) == (math.inf, math.inf)
    assert found.predict(scores).sum() == 0
    assert found.to_dict()["threshold"] is None


@pytest.mark.parametrize("metric", N_STARTS)
def test_per_label(metric):
    noise = ClassConditionalNoise([0.1, 0.3], [0.2, 0.0])
    scores, _, noisy = make_task(1500, 2, noise, difficulty=0.3)
    target = {"recall": 0.8, "precision": 0.6, "hamming": 0.25}[metric]
    found = control_risk(noisy, scores, noise, metric, target, 0.9, per_label=True)
    assert found.guaranteed.all()
    for j in range(2):
        own = ClassConditionalNoise(noise.rho_pos[[j]], noise.rho_neg[[j]])
        alone = control_risk(noisy[:, [j]], scores[:, [j]], own, metric, target, 0.95)
        assert_allclose((found.threshold[j], found.bound[j]), (alone.threshold, alone.bound))
    assert_array_equal(found.predict(scores), scores >= found.threshold)
    assert "for 2 of 2 labels, jointly with confidence 0.9" in str(found)


def test_transition_noise():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3000, 3))
    Y = np.eye(3)[(scores + 0.3 * rng.normal(size=scores.shape)).argmax(1)]
    noise = TransitionNoise([[0.8, 0.1, 0.1], [0.0, 0.9, 0.1], [0.2, 0.1, 0.7]])
    noisy = noise.corrupt(Y, random_state=1)
    recall = control_risk(noisy, scores, noise, "recall", 0.8)
    assert recall.guaranteed
    assert Y[recall.predict(scores) == 1].sum() >= 0.8 * 3000
    with pytest.raises(TypeError, match="per_label"):
        control_risk(noisy, scores, noise, per_label=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "f1"}, "metric must be"),
        ({"target": 1.0}, "target must be between 0 and 1"),
        ({"confidence": 0.0}, "confidence must be between 0 and 1"),
        ({"scores": np.zeros((3, 4))}, "same shape"),
        ({"scores": np.full((50, 4), np.nan)}, "scores contains NaN"),
        ({"scores": np.full((50, 4), 1j)}, "scores must be a matrix of numbers; got dtype complex128"),
        ({"noise": PartialNoise(0.1, n_labels=3)}, "3 labels"),
        ({"trusted": (np.array([0]), np.zeros((1, 4)))}, "at least 2 trusted rows"),
        ({"trusted": (np.array([0, 1]), np.zeros((2, 3)))}, "4 labels"),
    ],
)
def test_invalid_arguments(change, message):
    scores, Y, _ = make_task(50)
    arguments = {"Y_noisy": Y, "scores": scores, "noise": None, **change}
    with pytest.raises(ValueError, match=message):
        control_risk(**arguments)
    with pytest.raises(TypeError, match="noise model"):
        control_risk(Y, scores, "partial")
    with pytest.raises(ValueError, match="at least 2 calibration rows"):
        control_risk(Y[:1], scores[:1], None)


def violation_rate(metric, noise, target, draws=300, n=400, estimated=False):
    """Return the share of draws whose threshold misses the target on a large sample."""
    q = noise.n_labels
    scores, Y, _ = make_task(20_000, q, random_state=99, difficulty=0.7)
    missed = 0
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        rows = rng.integers(len(Y), size=n)
        noisy, trusted = noise.corrupt(Y[rows], random_state=rng), None
        if estimated:
            trusted = np.arange(100), Y[rows[:100]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = control_risk(noisy, scores[rows], noise, metric, target, 0.8, trusted=trusted)
        h = scores >= found.threshold
        found_value = {
            "recall": Y[h].sum() / Y.sum(),
            "precision": Y[h].mean() if h.any() else 1.0,
            "hamming": (h != (Y == 1)).mean(),
        }[metric]
        missed += found.guaranteed and (found_value < target if metric in AT_LEAST else found_value > target)
    return missed / draws


@pytest.mark.slow
@pytest.mark.parametrize("estimated", [False, True])
@pytest.mark.parametrize("metric", N_STARTS)
def test_violation_rate(metric, estimated):
    noise = ClassConditionalNoise([0.3, 0.2, 0.1, 0.0], [0.0, 0.1, 0.1, 0.2])
    target = {"recall": 0.9, "precision": 0.7, "hamming": 0.17}[metric]
    assert violation_rate(metric, noise, target, estimated=estimated) <= 0.2 + 2 * math.sqrt(0.2 * 0.8 / 300)
