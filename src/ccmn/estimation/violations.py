r"""Tests of class-conditional noise that need no trusted rows.

All tests compare the noisy labels with out-of-fold log-odds of a linear model of the features. These scores are
calibrated without a shape assumption (isotonic regression), so that rates of any size and a misfit of the model leave
no trace in the residuals of a label. What remains is specific to one violation:

- *Confused labels.* Where the features indicate label j most clearly, j is absent and label k present instead.
- *Noise near the decision boundary.* The other labels predict label j worse at p = 1/2 than at p = 1/4 or 3/4; or the
  noisy posterior is flatter at 1/2 than rates of any size explain, and still reaches its ends.
- *Feature-dependent noise.* All labels become less predictable along one direction of the features, or false labels
  become more frequent among the rows that certainly do not have them.
- *Wrong noise type.* The rate that the declared noise type excludes is clearly positive for most labels.

``benchmarks/diagnosis.py`` measures false alarms and power; the limits were selected on draws 0 to 14 of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from ccmn._threads import limit_threads, solver_operations
from ccmn._validation import FloatArray
from ccmn.estimation.evidence import Evidence
from ccmn.estimation.likelihood import (
    RIDGE,
    SLOPE_MEAN,
    SLOPE_SD,
    Split,
    StackedModels,
    bin_scores,
    calibrate,
    fit_models,
)
from ccmn.estimation.noise_rates import Flag, NoiseType
from ccmn.estimation.out_of_fold import N_COMPONENTS, reduce_features, standardize, stratified_folds

MIN_ROWS = 500
"""The tests are skipped if fewer rows have all labels observed: their limits were selected on larger data."""
MAX_ROWS = 5_000
"""Random rows that are used, so that the tests take at most a few seconds."""
MIN_CLASS_SIZE = 20
"""Labels with fewer rows of their rarer class are left out."""
MAX_LABELS = 100
"""Number of labels that are used; the most balanced ones are kept."""
N_FOLDS = 5
"""Folds of the out-of-fold scores and of the regressions on them."""
MAX_FLAGS = 5
"""Flags of one test for single labels."""

MIN_CONFUSABLE = 40
"""Positives from which on a label is tested for confusions, and smallest number of its top rows."""
MIN_EXPLAINED = 0.6
"""Smallest share of the absent labels that the other label explains; true labels that exclude each other reach 0.7."""
MIN_MOVED, MIN_Z_CONFUSED = 0.15, 6.0
"""Smallest lower bound of the share of moved labels, and smallest difference of the shares of the other label in
standard errors, for a single pair of labels; they account for q (q - 1) tests."""
MIN_MOVED_OF_MANY, MIN_Z_OF_MANY = 0.07, 3.5
"""The same limits if many labels are confused at once: three, and one of eight labels."""

BOUNDARY_EDGES = (0.15, 0.35, 0.65, 0.85)
"""Limits of the calibrated probabilities left of, at and right of the decision boundary."""
MAX_DEPENDENCE_RATIO = 0.75
"""The dependence at the boundary is compared with this multiple of the dependence on both sides of it."""
MIN_Z_BOUNDARY, MIN_Z_SIDES = 2.5, 3.5
"""Smallest value of that comparison in standard errors, and smallest excess of each side over the boundary."""
MIN_Z_DEPENDENCE = 6.0
"""Smallest dependence on each side in standard errors: without any dependence there is nothing to compare."""
BOUNDARY_STRENGTH = 0.5
"""The test of the shape compares class-conditional noise with flips that have this multiple of min(eta, 1 - eta).
Half of the strongest possible noise, because errors of the scores smooth the posterior."""
MIN_SHAPE_GAIN = 10.0
"""Smallest log-likelihood ratio of it, summed over labels; class-conditional noise reached 3 in draws 0 to 3."""
MIN_SHAPE_LABELS = 0.4
"""Smallest share of labels with a positive log-likelihood ratio."""
MAX_SHAPE_ROWS, SHAPE_COMPONENTS, SHAPE_FOLDS = 15_000, 300, 3
"""Random rows, principal components and folds of the scores for this test if there are more rows than ``MAX_ROWS``. The
evidence in the shape grows faster with the rows than that of the other tests, because the scores also become better."""
SHAPE_STARTS = ((0.2, 0.0, -4.0, -4.0), (0.4, 0.0, -0.5, -4.0), (0.4, 0.0, -4.0, -1.0), (0.4, 0.0, -0.5, -1.5))
"""Starting values: log of the slope, offset, and log-odds of rho_pos and rho_neg divided by their largest values."""
MAX_SHAPE_RATES = (0.7, 0.5)
"""Largest rho_pos and rho_neg of the test of the shape."""
SHAPE_STEPS = 30
"""Steps from each of the starting values."""

MIN_SLOPE_DIFFERENCE = 0.6
"""Smallest difference of the pooled calibration slopes between the outer quarters of the selected direction."""
MIN_Z_SLOPE = 8.0
"""Smallest out-of-fold correlation of direction and slope, in standard errors. Clean data reach 7: see the module."""
MIN_FLOOR_DIFFERENCE = 0.015
"""Smallest median difference of the floors (share of positives among certain negatives) along the direction."""
MIN_T_FLOOR = 3.8
"""Smallest t statistic of these differences over the labels."""
MIN_FLOOR_LABELS, MAX_FLOOR_PREVALENCE = 15, 0.2
"""The floors of labels with at most this share of positives are compared, if there are enough of them: labels are
dependent, so that the t statistic of few labels is unreliable."""
FLOOR_SHARE = 0.3
"""Share of the rows with the lowest scores, which count as certain negatives of such labels."""
RIDGE_GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Ridge terms of the regression that selects the direction, in multiples of the trace of the features' moments."""

MIN_EXCLUDED: dict[NoiseType, float] = {"partial": 0.35, "missing": 0.05}
"""Smallest median estimate of the rate that a declared noise type excludes (rho_pos is poorly identified)."""
MIN_FLOOR_ADDED = 0.1
"""Smallest median share of positives in the fifth of the rows with the lowest scores if "missing" was declared."""
MIN_TYPE_GAIN = 10.0
"""Smallest log-likelihood ratio, summed over labels, against the declared noise type."""

RATE_PAIRS = np.array(
    [
        (pos, neg)
        for pos in np.arange(0, 0.75, 0.1)
        for neg in (0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
        if pos + neg < 0.85
    ]
)
"""Pairs of rates at which class-conditional noise is fitted to the scores."""


class Scores(NamedTuple):
    """Labels and scores of the rows and labels that are tested."""

    Y: FloatArray
    """Noisy labels in {0, 1}, (n, q)."""
    logits: FloatArray
    """Out-of-fold log-odds of the noisy labels, (n, q)."""
    proba: FloatArray
    """The same scores as probabilities, calibrated by isotonic regression, (n, q)."""
    features: FloatArray
    """Reduced features, or the log-odds if there are no features, (n, d)."""
    labels: NDArray[np.intp]
    """Index of each label in the data, (q,)."""


def find_violations(evidence: Evidence, names: Sequence[str] | None = None) -> tuple[Flag, ...]:
    """Return one flag, or one per label, for every violation of class-conditional noise that is detected."""
    scores = read_scores(evidence)
    if scores is None:
        return ()
    name = (lambda j: repr(names[j])) if names is not None else str
    flags = confused_labels(scores, name)
    flags += boundary_noise(scores, read_shape_scores(evidence, scores))
    return (*flags, *feature_dependent_noise(scores), *contradicted_noise_type(scores, evidence.noise_type))


def read_shape_scores(evidence: Evidence, scores: Scores) -> Scores:
    """Return scores for the test of the shape: from more rows and components if there are more, else the given ones."""
    if len(scores.Y) < MAX_ROWS:
        return scores
    return read_scores(evidence, MAX_SHAPE_ROWS, SHAPE_COMPONENTS, SHAPE_FOLDS) or scores


def read_scores(
    evidence: Evidence, max_rows: int = MAX_ROWS, n_components: int = N_COMPONENTS, n_folds: int = N_FOLDS
) -> Scores | None:
    """Return the scores of complete rows and of labels with both classes, or None if there are too few."""
    if evidence.X is None and evidence.pred_proba is None:
        return None
    complete = np.flatnonzero(~np.isnan(evidence.Y).any(1))
    if complete.size < MIN_ROWS or not np.isin(evidence.Y[complete], (0, 1)).all():
        return None
    rng = np.random.default_rng(evidence.seed)
    rows = np.sort(rng.permutation(complete)[:max_rows])
    rarer = np.minimum(evidence.Y[rows].sum(0), len(rows) - evidence.Y[rows].sum(0))
    labels = np.sort(np.argsort(-rarer, kind="stable")[:MAX_LABELS])
    labels = labels[rarer[labels] >= MIN_CLASS_SIZE]
    if not labels.size:
        return None
    Y = evidence.Y[np.ix_(rows, labels)]
    if evidence.pred_proba is not None:
        logits = scipy.special.logit(np.clip(evidence.pred_proba[np.ix_(rows, labels)], 1e-4, 1 - 1e-4))
        features = standardize(logits)
    else:
        features = reduce_features(evidence.X[rows], evidence.seed, n_components)
        with limit_threads(solver_operations(features)):
            logits = out_of_fold_logits(features, Y, stratified_folds(Y, n_folds, rng))
    proba = np.column_stack([calibrate_scores(*columns) for columns in zip(logits.T, Y.T)])
    return Scores(Y, logits, proba, features, labels)


def out_of_fold_logits(X: FloatArray, Y: FloatArray, folds: Sequence[NDArray[np.intp]]) -> FloatArray:
    """Return out-of-fold log-odds of linear logistic models of the features alone, without the other labels."""
    q = Y.shape[1]
    Z, labels = torch.from_numpy(X.astype(np.float32)), torch.from_numpy(Y.astype(np.float32))
    models = StackedModels(torch.arange(q), torch.zeros(q), torch.zeros(q), torch.full((q,), -1))
    logits = np.empty(Y.shape)
    for fold in folds:
        rest = torch.from_numpy(np.setdiff1d(np.arange(len(Y)), fold))
        held_out = torch.from_numpy(fold)
        gram = (Z[rest].T @ Z[rest]).double() / (4 * len(rest))
        l2 = RIDGE * gram.diagonal().mean().clamp(min=1e-12)
        inverse = torch.linalg.inv(gram + l2 * torch.eye(len(gram), dtype=torch.float64)).float()
        training, testing = Split(Z[rest], labels[rest]), Split(Z[held_out], labels[held_out])
        logits[fold] = fit_models(training, testing, models, inverse).numpy()
    return logits


def calibrate_scores(logits: FloatArray, noisy: FloatArray) -> FloatArray:
    """Return probabilities by isotonic regression; each half of the rows is calibrated on the other half."""
    smallest = 0.5 / len(noisy)
    model = IsotonicRegression(y_min=smallest, y_max=1 - smallest, out_of_bounds="clip")
    odd = np.arange(len(noisy)) % 2 == 1
    proba = np.empty(len(noisy))
    for half in (odd, ~odd):
        proba[half] = model.fit(logits[~half], noisy[~half]).predict(logits[half])
    return proba


def confused_labels(scores: Scores, name: Callable[[int], str]) -> list[Flag]:
    """Flag pairs of labels if one of them was given instead of the other."""
    candidates = confusions(scores.Y, scores.logits)
    found = [pair for pair in candidates if pair.z >= MIN_Z_CONFUSED and pair.low >= MIN_MOVED]
    if len({pair.label for pair in candidates}) >= max(3, scores.Y.shape[1] / 8):
        found = candidates
    flags = []
    for pair in sorted(found, key=lambda pair: -pair.z)[:MAX_FLAGS]:
        j, k = (int(scores.labels[label]) for label in (pair.label, pair.other))
        note = (
            f"In about {pair.moved:.0%} of the rows that clearly indicate this label, label {name(k)} is given "
            "instead: the two labels seem to be confused. Verify rows in which features and label disagree, or merge "
            "both labels; rates per label do not describe confusions."
        )
        flags.append(Flag("confused_labels", note, j))
    return flags


class Confusion(NamedTuple):
    """Label that is replaced by another one."""

    label: int
    other: int
    moved: float
    """Estimated share of rows in which the other label replaces it."""
    low: float
    """Lower bound of this share: two standard errors below it."""
    z: float
    """Difference of the shares of the other label among rows without and with the label, in standard errors."""


def confusions(Y: FloatArray, logits: FloatArray) -> list[Confusion]:
    r"""Return the pairs (j, k) for which label k replaces label j where the features indicate j most clearly.

    Let a and c be the shares of label k among the top rows of label j in which j is absent and present. Label k
    explains the share :math:`\kappa = (a - c) / (1 - c)` of the absent labels. Labels that exclude each other have a
    large :math:`\kappa` as well, but the clearer the features are, the fewer of them are absent. The share of moved
    labels is therefore computed in the first of the top rows: with the share m of rows in which j is absent,

    .. math:: \frac{m \kappa}{m \kappa + (1 - m)(1 - c)} .
    """
    n, q = Y.shape
    found = []
    for j in range(q):
        order = np.argsort(-logits[:, j], kind="stable")
        positives = Y[:, j].sum()
        # Added labels are as frequent among the lowest scores as elsewhere, and the features do not indicate them.
        indicated = positives - n * Y[order[-(n // 10) :], j].mean()
        if positives < MIN_CONFUSABLE or indicated < MIN_CONFUSABLE / 2:
            continue
        size = int(min(max(positives / 2, MIN_CONFUSABLE), n / 4))
        top = Y[order[:size]]
        present = top[:, j] == 1
        n_present, n_absent = int(present.sum()), int((~present).sum())
        if min(n_present, n_absent) < 8:
            continue
        given_absent, given_present = top[~present].mean(0), top[present].mean(0)
        pooled = top.mean(0)
        error = np.sqrt(np.maximum(pooled * (1 - pooled), 1 / size) * (1 / n_present + 1 / n_absent))
        z = (given_absent - given_present) / error
        explained = (given_absent - given_present) / np.maximum(1 - given_present, 1e-9)
        clearest = top[: int(max(min(indicated / 4, size / 2), MIN_CONFUSABLE / 2)), j]
        absent = 1 - clearest.mean()
        for k in np.flatnonzero((z >= MIN_Z_OF_MANY) & (explained >= MIN_EXPLAINED)):
            replaced, kept = absent * explained[k], (1 - absent) * (1 - given_present[k])
            moved = replaced / (replaced + kept)
            low = moved - 2 * np.sqrt(max(moved * (1 - moved), 0.01) / (len(clearest) * (replaced + kept)))
            if k != j and low >= MIN_MOVED_OF_MANY:
                found.append(Confusion(j, int(k), float(moved), float(low), float(z[k])))
    return found


def boundary_noise(scores: Scores, shape_scores: Scores) -> list[Flag]:
    """Flag noise that is strongest where the label is most uncertain."""
    z, excess, dependence = loss_of_dependence(scores.Y, scores.proba)
    if not (z >= MIN_Z_BOUNDARY and excess >= MIN_Z_SIDES and dependence >= MIN_Z_DEPENDENCE):
        gains = shape_gains(shape_scores.logits, shape_scores.Y)
        if gains.sum() < MIN_SHAPE_GAIN or np.mean(gains > 0) < MIN_SHAPE_LABELS:
            return []
    note = (
        "Labels are noisier near the decision boundary than far from it, so rates per label do not describe the noise: "
        "they are too large for clear rows and too small for ambiguous ones. Verify ambiguous rows first, and pass "
        "them as trusted or train on them."
    )
    return [Flag("boundary_noise", note)]


def loss_of_dependence(Y: FloatArray, proba: FloatArray) -> tuple[float, float, float]:
    r"""Return how much weaker the dependence on the other labels is at p = 1/2 than on both sides, in standard errors.

    The residual of each label is predicted linearly from the residuals of the other labels. The dependence in a range
    of p is the regression coefficient of the residual on this prediction, divided by p (1 - p). Class-conditional noise
    weakens it where p is near its smallest or largest value; flips near the boundary weaken it at 1/2. The first value
    compares the boundary with the weighted mean of both sides, the second with the weaker side; the third is the
    dependence on the weaker side.
    """
    if Y.shape[1] < 2:
        return 0.0, 0.0, 0.0
    residuals, weights = Y - proba, proba * (1 - proba)
    predicted = _predict_from_others(residuals / np.sqrt(weights.mean(0)))
    part = np.digitize(proba, BOUNDARY_EDGES)
    slope, variance = np.zeros(3), np.zeros(3)
    for k in range(3):
        inside = part == k + 1
        variance[k] = 1 / max(float((weights * predicted**2)[inside].sum()), 1e-9)
        slope[k] = float((residuals * predicted)[inside].sum()) * variance[k]
    beside = 1 / (1 / variance[0] + 1 / variance[2])
    mean = MAX_DEPENDENCE_RATIO * beside * (slope[0] / variance[0] + slope[2] / variance[2])
    z = (mean - slope[1]) / np.sqrt(variance[1] + MAX_DEPENDENCE_RATIO**2 * beside)
    sides = (slope[[0, 2]] - slope[1]) / np.sqrt(variance[[0, 2]] + variance[1])
    return float(z), float(sides.min()), float((slope / np.sqrt(variance))[[0, 2]].min())


def _predict_from_others(residuals: FloatArray) -> FloatArray:
    """Return out-of-fold ridge predictions of every column from all other columns, by one inverse per fold."""
    n, q = residuals.shape
    fold = np.random.default_rng(0).permutation(n) % 3
    predicted = np.empty((n, q))
    for k in range(3):
        training = residuals[fold != k]
        precision = np.linalg.inv(training.T @ training / len(training) + (0.3 + 20 * q / len(training)) * np.eye(q))
        weights = -precision / precision.diagonal()
        np.fill_diagonal(weights, 0)
        predicted[fold == k] = residuals[fold == k] @ weights
    return predicted


def shape_gains(logits: FloatArray, Y: FloatArray) -> FloatArray:
    r"""Return the log-likelihood of additional flips near the boundary minus that of class-conditional noise, (q,).

    Both models have a logistic posterior :math:`\eta` along the score of a label, and free rates:

    .. math:: P(\tilde y = 1) = \rho_{neg} + r \eta + s \min(\eta, 1 - \eta)(1 - 2 \eta)

    with s = 1/2 and s = 0. Flips near the boundary make the noisy posterior flat at 1/2, and it reaches its ends
    nevertheless. Class-conditional noise moves the ends.
    """
    binned = [bin_scores(scores, noisy == 1) for scores, noisy in zip(logits.T, Y.T)]
    size = max(centers.size for centers, _, _ in binned)
    centers, zeros, ones = (
        np.array([np.pad(values, (0, size - values.size)) for values in part])[:, None] for part in zip(*binned)
    )
    flips, rates = (_largest_likelihood(centers, zeros, ones, strength) for strength in (BOUNDARY_STRENGTH, 0.0))
    gains: FloatArray = flips - rates
    return gains


def _largest_likelihood(centers: FloatArray, zeros: FloatArray, ones: FloatArray, strength: float) -> FloatArray:
    """Return the largest log-likelihood of the bins (q, 1, T) of each label, by damped Fisher scoring from all starts.

    A step that decreases the likelihood is rejected and the damping is increased.
    """

    def evaluate(parameters: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        slope, offset, pos, neg = np.moveaxis(parameters, -1, 0)[..., None]
        eta = scipy.special.expit(np.exp(slope) * centers + offset)
        share_pos, share_neg = scipy.special.expit(pos), scipy.special.expit(neg)
        rho_pos, rho_neg = MAX_SHAPE_RATES[0] * share_pos, MAX_SHAPE_RATES[1] * share_neg
        signal, smaller, sign = 1 - rho_pos - rho_neg, np.minimum(eta, 1 - eta), np.where(eta < 0.5, 1, -1)
        g = np.clip(rho_neg + signal * eta + strength * smaller * (1 - 2 * eta), 1e-6, 1 - 1e-6)
        value = (ones * np.log(g) + zeros * np.log1p(-g)).sum(-1) - 0.5 * ((slope[..., 0] - SLOPE_MEAN) / SLOPE_SD) ** 2
        d_offset = (signal + strength * (sign * (1 - 2 * eta) - 2 * smaller)) * eta * (1 - eta)
        d_rates = -rho_pos * (1 - share_pos) * eta, rho_neg * (1 - share_neg) * (1 - eta)
        return value, g, np.stack([d_offset * np.exp(slope) * centers, d_offset, *d_rates], -2)

    parameters = np.repeat(np.array(SHAPE_STARTS)[None], len(centers), axis=0)
    damping = np.full(parameters.shape[:2], 1e-3)
    value, g, derivatives = evaluate(parameters)
    for _ in range(SHAPE_STEPS):
        weight = 1 / (g * (1 - g))
        gradient = np.einsum("qspt,qst->qsp", derivatives, (ones - (ones + zeros) * g) * weight)
        gradient[..., 0] -= (parameters[..., 0] - SLOPE_MEAN) / SLOPE_SD**2
        information = derivatives * ((ones + zeros) * weight)[..., None, :] @ derivatives.swapaxes(-1, -2)
        information[..., 0, 0] += SLOPE_SD**-2
        diagonal = np.einsum("...pp->...p", information)
        diagonal[...] = diagonal * (1 + damping[..., None]) + 1e-3
        step = np.linalg.solve(information, gradient[..., None])[..., 0]
        trial = parameters + np.clip(step, -1, 1)
        trial_values = evaluate(trial)
        better = trial_values[0] >= value
        parameters = np.where(better[..., None], trial, parameters)
        value = np.where(better, trial_values[0], value)
        g = np.where(better[..., None], trial_values[1], g)
        derivatives = np.where(better[..., None, None], trial_values[2], derivatives)
        damping = np.where(better, 0.3 * damping, 10 * damping)
    largest: FloatArray = value.max(1)
    return largest


def rate_likelihood(logits: FloatArray, noisy: FloatArray) -> FloatArray:
    """Return the log-likelihood of a label at all ``RATE_PAIRS``; -inf where rho_neg exceeds the share of ones."""
    binned = bin_scores(logits, noisy == 1)
    centers, zeros, ones = (np.broadcast_to(values, (len(RATE_PAIRS), values.size)) for values in binned)
    values = calibrate(centers, zeros, ones, RATE_PAIRS[:, 0], RATE_PAIRS[:, 1]).value
    return np.where(RATE_PAIRS[:, 1] <= max(noisy.mean(), 0.01), values, -np.inf)


def feature_dependent_noise(scores: Scores) -> list[Flag]:
    """Flag noise whose rate changes along a direction of the features."""
    slope, z, floor, t = contraction(scores)
    slopes_differ = slope >= MIN_SLOPE_DIFFERENCE and z >= MIN_Z_SLOPE
    if not slopes_differ and not (floor >= MIN_FLOOR_DIFFERENCE and t >= MIN_T_FLOOR):
        return []
    note = (
        "All labels become noisier along a direction of the features, so rates per label do not describe the noise: "
        "they are averages over rows of different quality. Estimate rates per source (groups=) if rows come from "
        "several sources, or train on trusted rows."
    )
    return [Flag("feature_dependent_noise", note)]


def contraction(scores: Scores) -> tuple[float, float, float, float]:
    """Return how the labels change along the direction of the features along which they become less predictable.

    The four values are the difference of the pooled calibration slopes between the outer quarters of the rows, the
    out-of-fold correlation of direction and slope in standard errors, and the median difference of the floors of rare
    labels with its t statistic over these labels (0 if there are few).
    """
    n = len(scores.Y)
    weights = scores.proba * (1 - scores.proba)
    centers = (weights * scores.logits).sum(0) / weights.sum(0)
    centered = np.clip(scores.logits - centers, -4, 4)
    misfit, information = (scores.Y - scores.proba) * centered, weights * centered**2
    root = np.sqrt(information.sum(1) + 1e-12)
    target = misfit.sum(1) / root
    target = target - root * (target @ root) / (root @ root)
    direction, z = _select_direction(scores, root, target)
    quarter = np.argsort(np.argsort(direction, kind="stable")) * 4 // n
    noisy, clear = (np.flatnonzero(quarter == k) for k in (0, 3))
    slopes = [misfit[rows].sum() / max(information[rows].sum(), 1e-9) for rows in (noisy, clear)]
    floors = []
    for rows in (noisy, clear):
        lowest = rows[np.argsort(scores.logits[rows], 0, kind="stable")[: int(FLOOR_SHARE * rows.size)]]
        floors.append(np.take_along_axis(scores.Y, lowest, 0).mean(0))
    difference = (floors[0] - floors[1])[scores.Y.mean(0) <= MAX_FLOOR_PREVALENCE]
    if difference.size < MIN_FLOOR_LABELS:
        return float(slopes[1] - slopes[0]), z, 0.0, 0.0
    t = float(difference.mean() / max(difference.std(), 1e-9) * np.sqrt(difference.size))
    return float(slopes[1] - slopes[0]), z, float(np.median(difference)), t


def _select_direction(scores: Scores, root: FloatArray, target: FloatArray) -> tuple[FloatArray, float]:
    """Return out-of-fold predictions of the calibration slope of each row, and their correlation in standard errors."""
    n, q = scores.Y.shape
    d = scores.features.shape[1]
    features = np.hstack([scores.features, standardize(scores.logits) * np.sqrt(d / q)])
    fold = np.random.default_rng(0).permutation(n) % N_FOLDS
    predicted = np.zeros((len(RIDGE_GRID), n))
    for k in range(N_FOLDS):
        training = features[fold != k] * root[fold != k, None]
        gram, moments = training.T @ training, training.T @ target[fold != k]
        for i, ridge in enumerate(RIDGE_GRID):
            l2 = ridge * max(float(gram.trace()) / len(training), 1e-12) / 10
            coefficients = np.linalg.solve(gram + l2 * np.eye(len(gram)), moments)
            predicted[i, fold == k] = features[fold == k] @ coefficients
    deviation = np.maximum((root * predicted).std(1), 1e-12) * max(float(target.std()), 1e-12)
    correlation = (
        ((root * predicted - (root * predicted).mean(1, keepdims=True)) @ (target - target.mean())) / n / deviation
    )
    best = int(correlation.argmax())
    return predicted[best], float(correlation[best] * np.sqrt(n))


def contradicted_noise_type(scores: Scores, noise_type: Sequence[NoiseType]) -> list[Flag]:
    """Flag a declared noise type if the rate that it excludes is positive for most of its labels."""
    flags = []
    for declared, column, error in (("partial", 0, "removed"), ("missing", 1, "added")):
        labels = [j for j, label in enumerate(scores.labels) if noise_type[label] == declared]
        if not labels:
            continue
        likelihoods = np.array([rate_likelihood(scores.logits[:, j], scores.Y[:, j]) for j in labels])
        gain = float((likelihoods.max(1) - likelihoods[:, RATE_PAIRS[:, column] == 0].max(1)).sum())
        excluded = float(np.median(RATE_PAIRS[likelihoods.argmax(1), column]))
        lowest = np.argsort(scores.logits[:, labels], 0, kind="stable")[: len(scores.Y) // 5]
        floor = float(np.median(np.take_along_axis(scores.Y[:, labels], lowest, 0).mean(0)))
        too_low = declared == "missing" and floor < MIN_FLOOR_ADDED
        if gain < MIN_TYPE_GAIN or excluded < MIN_EXCLUDED[declared] or too_low:  # type: ignore[index]
            continue
        note = (
            f"noise_type={declared!r} was declared, but the noisy labels look as if labels were also {error} (median "
            f"rate about {excluded:.2f}). Use noise_type='both', or pass trusted rows."
        )
        flags.append(Flag("noise_type_contradicted", note))
    return flags
