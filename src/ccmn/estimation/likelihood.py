"""Held-out likelihood of the noisy labels over a grid of noise rates.

For every label, forward-corrected logistic models are fitted at a coarse grid of pairs (rho_pos, rho_neg). All labels,
pairs and folds are solved as one stacked problem (:func:`held_out_logits`). The log-odds of held-out rows are then
recalibrated at every pair of a fine grid. The surface of a label is the held-out log-likelihood at all pairs of this
grid; the rates are estimated from it (:func:`label_surfaces`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn._threads import limit_threads, solver_operations
from ccmn._validation import FloatArray
from ccmn.estimation.noise_rates import NoiseType
from ccmn.estimation.out_of_fold import (
    MAX_FEATURES,
    MAX_OTHER_LABELS,
    N_LANDMARKS,
    Fold,
    feature_maps,
    label_features,
    stratified_folds,
)

N_FOLDS = 3
"""Folds of the held-out likelihood."""
N_ITERATIONS = 40
"""Gradient steps of the stacked models. With 24 steps the errors of the rates on yeast are .01 larger."""
RIDGE = 30.0
"""Ridge term of the preconditioner in mean eigenvalues of the features: directions of large variance come first."""
MIN_ROWS = 12
"""Below this number of rows no model is fitted and the surfaces are flat."""
MAX_ROWS = 20_000
"""Rows that are used for fitting and evaluation."""
MIN_ROWS_KEPT = 2_000
"""Rows that are used even if ``MAX_WORK`` is exceeded."""
MAX_WORK = 5e8
"""Rows x models x features above which fewer rows are used; it takes about ten seconds on one core."""
MAX_ENTRIES = 2**23
"""Rows x models in one stacked problem."""
MIN_CLASS_SIZE = 20
"""A label with fewer observed rows of its rarer class gets one model only and is shrunk towards the other labels."""
N_BINS = 64
"""Bins of equal size into which held-out scores are grouped for calibration."""
N_NEIGHBORS = 3
"""Fitted pairs whose log-odds are tried at each pair of the fine grid."""
N_NEWTON_STEPS = 12
"""Newton steps of the calibration."""
SLOPE_MEAN, SLOPE_SD = 0.2, 0.5
"""Mean and standard deviation of the normal prior on the logarithm of the calibration slope."""
_MIN_PROBABILITY = 1e-6

ProgressCallback = Callable[[int, int], None]
"""Progress callback: called with the number of finished steps and their total number."""


class Grid(NamedTuple):
    """Grid of all pairs of the rates ``pos`` (A,) and ``neg`` (B,)."""

    pos: FloatArray
    neg: FloatArray

    @property
    def pairs(self) -> tuple[FloatArray, FloatArray]:
        """Both rates of all pairs, two arrays (A, B)."""
        pos, neg = np.meshgrid(self.pos, self.neg, indexing="ij")
        return pos, neg

    def prior(self, observed: float) -> FloatArray:
        r"""Return the prevalence that each pair implies, :math:`(\tilde p - \rho_{neg}) / r`, clipped to [0, 1]."""
        pos, neg = self.pairs
        signal = np.maximum(1 - pos - neg, _MIN_PROBABILITY)
        return np.clip((observed - neg) / signal, 0, 1)

    def possible(self, observed: float) -> NDArray[np.bool_]:
        """Return the pairs that leave a signal and imply a prevalence in [0, 1], up to the resolution of the grid."""
        pos, neg = self.pairs
        return (pos + neg <= 0.85) & (neg <= observed + 0.03) & (1 - pos >= observed - 0.05)


def _steps(count: int, width: float) -> FloatArray:
    """Return 0, width, 2 width, ..."""
    return np.arange(count, dtype=np.float64) * width


GRIDS: dict[NoiseType, Grid] = {
    "both": Grid(_steps(16, 0.05), _steps(36, 0.02)),
    "partial": Grid(np.zeros(1), _steps(86, 0.01)),
    "missing": Grid(_steps(86, 0.01), np.zeros(1)),
}
"""Fine grid of each noise type. The steps of rho_pos are wider because it is identified less precisely."""

FITTED_GRIDS: dict[NoiseType, Grid] = {
    "both": Grid(np.array([0.0, 0.25, 0.5]), np.array([0.0, 0.1, 0.25, 0.45])),
    "partial": Grid(np.zeros(1), _steps(9, 0.1)),
    "missing": Grid(_steps(5, 0.2), np.zeros(1)),
}
"""Coarse grid of each noise type at which models are fitted; the fitted directions change little between its pairs."""


class Surfaces(NamedTuple):
    """Held-out log-likelihood surfaces of all labels: one value for every pair of rates."""

    values: list[FloatArray]
    """Log-likelihoods over the grid of each label's noise type, -inf where a pair is impossible."""
    scores: FloatArray
    """Out-of-fold probabilities of the noisy labels by the models without noise correction, (m, q)."""
    rows: NDArray[np.intp]
    """Rows to which ``scores`` belong, (m,)."""
    deviance: FloatArray
    """Deviance of the best fit of each label, (q,); NaN if unknown. See :func:`deviance`."""


def label_surfaces(
    X: Any, Y: FloatArray, noise_type: Sequence[NoiseType], seed: int, on_progress: ProgressCallback | None = None
) -> Surfaces:
    """Return the surfaces of all labels: at each pair of rates, the better of linear and kernel features counts.

    The steps that ``on_progress`` counts are the folds of both kinds of features, and the calibration.
    """
    n, q = Y.shape
    observed = observed_prevalence(Y)
    if n < MIN_ROWS:
        return Surfaces(flat_surfaces(Y, noise_type), np.tile(observed, (n, 1)), np.arange(n), np.full(q, np.nan))
    rare = np.minimum((Y == 1).sum(0), (Y == 0).sum(0)) < MIN_CLASS_SIZE
    pairs = [
        fitted_pairs(label_type, p)[: 1 if few else None] for label_type, p, few in zip(noise_type, observed, rare)
    ]
    rows = np.sort(np.random.default_rng(seed).permutation(n)[: number_of_rows(X.shape[1], pairs)])
    Y = Y[rows]
    folds = stratified_folds(Y, N_FOLDS, np.random.default_rng(seed))
    maps = feature_maps(X[rows], seed)
    steps = itertools.count(1)

    def finish_step() -> None:
        if on_progress is not None:
            on_progress(next(steps), len(maps) * len(folds) + 1)

    with limit_threads(solver_operations(maps[0])):
        logits = [held_out_logits(features, Y, pairs, folds, finish_step) for features in maps]
    grids = [GRIDS[label_type] for label_type in noise_type]
    surfaces_by_map = [[surface(f[j], Y[:, j], pairs[j], grids[j]) for j in range(q)] for f in logits]
    values = [np.maximum.reduce(both) for both in zip(*surfaces_by_map)]
    misfit = [
        min(
            deviance(f[j], Y[:, j], values_of_map[j], pairs[j], grids[j])
            for f, values_of_map in zip(logits, surfaces_by_map)
        )
        for j in range(q)
    ]
    finish_step()
    uncorrected = scipy.special.expit(np.stack([logits[0][j][:, 0] for j in range(q)], 1))
    return Surfaces(values, uncorrected, rows, np.array(misfit))


def fitted_pairs(noise_type: NoiseType, observed: float) -> FloatArray:
    """Return the pairs of rates (P, 2) at which models of a label are fitted; the first pair is (0, 0)."""
    pos, neg = FITTED_GRIDS[noise_type].pairs
    wanted = (pos + neg <= 0.8 + 1e-9) & (neg <= observed + 0.05) & (1 - pos >= observed - 0.1)
    wanted[0, 0] = True
    return np.stack([pos[wanted], neg[wanted]], 1)


def number_of_rows(d: int, pairs: Sequence[FloatArray]) -> int:
    """Return how many rows are used for d features and the given models, within the limits of this module."""
    width = max(min(d, MAX_FEATURES), N_LANDMARKS) + min(len(pairs), MAX_OTHER_LABELS)
    models = sum(len(label) for label in pairs)
    return int(np.clip(MAX_WORK / (width * models), MIN_ROWS_KEPT, MAX_ROWS))


def flat_surfaces(Y: FloatArray, noise_type: Sequence[NoiseType]) -> list[FloatArray]:
    """Return surfaces on which all possible pairs of rates are equally likely."""
    return [
        np.where(GRIDS[label_type].possible(p), 0.0, -np.inf)
        for label_type, p in zip(noise_type, observed_prevalence(Y))
    ]


def observed_prevalence(Y: FloatArray) -> FloatArray:
    """Return the share of observed positives of every label; 1/2 where nothing was observed."""
    n_observed = (~np.isnan(Y)).sum(0)
    return np.where(n_observed > 0, np.nansum(Y, 0) / np.maximum(n_observed, 1), 0.5)


class StackedModels(NamedTuple):
    """Models of one stacked problem: the label and the pair of rates of each, and the feature to leave out."""

    label: Tensor
    rho_pos: Tensor
    rho_neg: Tensor
    own_column: Tensor
    """Column of the label itself among the features, or -1."""

    @property
    def signal(self) -> Tensor:
        """1 - rho_pos - rho_neg of every model."""
        return 1 - self.rho_pos - self.rho_neg


class Split(NamedTuple):
    """Features (m, D) and noisy labels (m, q) of some rows."""

    Z: Tensor
    labels: Tensor


def held_out_logits(
    X: FloatArray,
    Y: FloatArray,
    pairs: Sequence[FloatArray],
    folds: Sequence[Fold],
    on_fold_end: Callable[[], None] | None = None,
) -> list[FloatArray]:
    r"""Return log-odds of the *true* labels of held-out rows, for every label and every assumed pair of rates.

    The model of a pair is

    .. math:: P(\tilde y = 1 \mid z) = \rho_{neg} + (1 - \rho_{pos} - \rho_{neg})\, \sigma(w z + b),

    where z are the features and the other noisy labels. It is fitted to the other folds by accelerated gradient steps
    with the preconditioner :math:`(Z^\top Z / 4n + \lambda I)^{-1}`. The step at which the likelihood of the held-out
    fold is largest is kept.

    Parameters
    ----------
    X : array of shape (n, d)
        Centered features.
    Y : array of shape (n, q)
        Noisy labels, NaN where not observed.
    pairs : list of q arrays of shape (P_j, 2)
        Pairs (rho_pos, rho_neg) of each label.
    folds : list of int arrays
        Partition of the rows.
    on_fold_end : callable, optional
        Called after each fold.

    Returns
    -------
    list of q arrays of shape (n, P_j)
        Log-odds.
    """
    others, column = label_features(Y)
    Z = torch.from_numpy(np.concatenate([X, others], 1).astype(np.float32))
    labels = torch.from_numpy(Y.astype(np.float32))
    own_columns = np.where(column >= 0, X.shape[1] + column, -1)
    result = [np.empty((len(Y), len(p))) for p in pairs]
    for k, fold in enumerate(folds):
        rest = np.concatenate([other_fold for j, other_fold in enumerate(folds) if j != k])
        training, testing = (Split(Z[rows], labels[rows]) for rows in map(torch.from_numpy, (np.sort(rest), fold)))
        preconditioner = _preconditioner(training.Z)
        for part in _label_blocks(pairs, len(rest)):
            label = np.repeat(part, [len(pairs[j]) for j in part])
            rates = torch.from_numpy(np.concatenate([pairs[j] for j in part]).astype(np.float32))
            models = StackedModels(
                torch.from_numpy(label), rates[:, 0], rates[:, 1], torch.from_numpy(own_columns[label])
            )
            logits = fit_models(training, testing, models, preconditioner).numpy()
            for j, columns in zip(part, np.split(logits, np.cumsum([len(pairs[j]) for j in part])[:-1], 1)):
                result[j][fold] = columns
        if on_fold_end is not None:
            on_fold_end()
    return result


def _label_blocks(pairs: Sequence[FloatArray], n: int) -> Iterator[list[int]]:
    """Yield consecutive labels whose models fit into ``MAX_ENTRIES`` together (at least one label)."""
    part: list[int] = []
    columns = 0
    for j, p in enumerate(pairs):
        if part and (columns + len(p)) * n > MAX_ENTRIES:
            yield part
            part, columns = [], 0
        part.append(j)
        columns += len(p)
    if part:
        yield part


def _preconditioner(Z: Tensor) -> Tensor:
    """Return (Z'Z / 4n + l2 I)^-1; 1/4 bounds the curvature of the logistic likelihood."""
    gram = (Z.T @ Z).double() / (4 * len(Z))
    l2 = RIDGE * gram.diagonal().mean().clamp(min=1e-12)
    inverse: Tensor = torch.linalg.inv(gram + l2 * torch.eye(len(gram), dtype=torch.float64))
    return inverse.float()


def fit_models(training: Split, testing: Split, models: StackedModels, preconditioner: Tensor) -> Tensor:
    """Fit all models and return the log-odds (m, C) of the testing rows, each model at its best step."""
    Z, signal = training.Z, models.signal
    Y, Y_test = training.labels[:, models.label], testing.labels[:, models.label]
    observed, observed_test = ~Y.isnan(), ~Y_test.isnan()
    Y, Y_test = Y.nan_to_num(), Y_test.nan_to_num()
    counts, partly_observed = observed.sum(0).clamp(min=1), not bool(observed.all())
    # The intercept starts at the log-odds of the prevalence that the rates imply.
    b = torch.logit(((Y.sum(0) / counts - models.rho_neg) / signal).clamp(0.01, 0.99))
    W = torch.zeros(Z.shape[1], len(signal))
    ahead_W, ahead_b = W, b
    best = torch.full((len(signal),), -torch.inf)
    kept = torch.zeros_like(Y_test)
    for step in range(N_ITERATIONS):
        if step % 2 == 0:
            logits = testing.Z @ W + b
            value = (observed_test * log_likelihood(logits, Y_test, models)).sum(0)
            kept, best = torch.where(value > best, logits, kept), torch.maximum(value, best)
        gradient = likelihood_gradient(torch.addmm(ahead_b, Z, ahead_W), Y, models)
        if partly_observed:
            gradient.mul_(observed)
        update = preconditioner @ (Z.T @ gradient / counts)
        new_W = ahead_W + _without_own_label(update, models.own_column, preconditioner)
        new_b = ahead_b + 4 * gradient.sum(0) / counts
        momentum = step / (step + 3)
        ahead_W, ahead_b = new_W + momentum * (new_W - W), new_b + momentum * (new_b - b)
        W, b = new_W, new_b
    return kept


def _without_own_label(update: Tensor, own_column: Tensor, preconditioner: Tensor) -> Tensor:
    """Project the update of each model so that the weight of its own label stays zero."""
    column = own_column.clamp(min=0)
    excess = update[column, torch.arange(len(own_column))] / preconditioner[column, column]
    return update - preconditioner[:, column] * torch.where(own_column >= 0, excess, 0.0)


def noisy_probability(logits: Tensor, models: StackedModels) -> Tensor:
    """Return rho_neg + r sigma(f), bounded away from 0 and 1."""
    g = models.rho_neg + models.signal * torch.sigmoid(logits)
    return g.clamp(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY)


def log_likelihood(logits: Tensor, Y: Tensor, models: StackedModels) -> Tensor:
    """Return log P(noisy label | z) of every entry."""
    g = noisy_probability(logits, models)
    return torch.where(Y > 0, g, 1 - g).log()


def likelihood_gradient(logits: Tensor, Y: Tensor, models: StackedModels) -> Tensor:
    r"""Return :math:`\partial \log P / \partial f = (\tilde y - g) / (g (1 - g)) \cdot r \sigma' (f)`."""
    # In-place operations: most of the time of the estimation is spent here.
    s = torch.sigmoid(logits)
    signal_s = s * models.signal
    g = (signal_s + models.rho_neg).clamp_(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    return (Y - g).mul_(signal_s).mul_(1 - s).div_(g.mul_(1 - g))


def surface(logits: FloatArray, noisy: FloatArray, pairs: FloatArray, grid: Grid) -> FloatArray:
    r"""Return the held-out log-likelihood (A, B) of one label over the grid.

    At each pair of rates it is the maximum of

    .. math:: \sum_i \log P(\tilde y_i), \qquad P(\tilde y_i = 1) = \rho_{neg} + r\, \sigma(a f_i + b)

    over slope a and offset b (Platt scaling [1]_) and over the held-out log-odds f of the models fitted at the nearest
    pairs. Early stopping makes log-odds too small, by a factor that differs between pairs. Without the slope, which
    has a log-normal prior with median 1.2, the comparison between pairs would be biased.

    References
    ----------
    .. [1] J. Platt, "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood
       Methods", Advances in Large Margin Classifiers, 1999.
    """
    observed = ~np.isnan(noisy)
    positive = noisy[observed] == 1
    possible = grid.possible(float(positive.mean()) if positive.size else 0.5)
    result = np.where(possible, 0.0, -np.inf)
    if positive.all() or not positive.any():
        return result
    bins = [bin_scores(column, positive) for column in logits[observed].T]
    centers, zeros, ones = (np.stack(part) for part in zip(*bins))
    pos, neg = (rates[possible] for rates in grid.pairs)
    result[possible] = np.maximum.reduce(
        [calibrate(centers[k], zeros[k], ones[k], pos, neg).value for k in _nearest_pairs(pos, neg, pairs).T]
    )
    return result


def _nearest_pairs(pos: FloatArray, neg: FloatArray, pairs: FloatArray) -> NDArray[np.intp]:
    """Return the indices of the fitted pairs that are nearest to each pair, in steps of the coarse grid."""
    distance = np.abs(pos[:, None] - pairs[:, 0]) / 0.2 + np.abs(neg[:, None] - pairs[:, 1]) / 0.1
    return np.argsort(distance, 1, kind="stable")[:, :N_NEIGHBORS]


def deviance(logits: FloatArray, noisy: FloatArray, values: FloatArray, pairs: FloatArray, grid: Grid) -> float:
    r"""Return the deviance of the most likely pair of rates from the observed shares of ones in the bins.

    If the noise is class-conditional and the posterior is logistic, it has approximately a :math:`\chi^2` distribution
    with ``N_BINS - 4`` degrees of freedom.
    """
    observed = ~np.isnan(noisy)
    positive = noisy[observed] == 1
    if positive.all() or not positive.any():
        return float("nan")
    i, k = np.unravel_index(int(values.argmax()), values.shape)
    pos, neg = grid.pos[[i]], grid.neg[[k]]
    deviances = []
    for model in _nearest_pairs(pos, neg, pairs)[0]:
        centers, zeros, ones = bin_scores(logits[observed, model], positive)
        saturated = scipy.special.xlogy(ones, ones / (ones + zeros)) + scipy.special.xlogy(
            zeros, zeros / (ones + zeros)
        )
        fitted = calibrate(centers[None], zeros[None], ones[None], pos, neg).value
        deviances.append(2 * float(saturated.sum() - fitted[0]))
    return min(deviances)


def bin_scores(scores: FloatArray, positive: NDArray[Any]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean score, zeros and ones of ``N_BINS`` bins of equal size, in ascending order of the score."""
    order = np.argsort(scores, kind="stable")
    starts = np.unique(np.linspace(0, scores.size, N_BINS, endpoint=False).astype(np.intp))
    size = np.diff(starts, append=scores.size)
    centers = np.add.reduceat(scores[order], starts) / size
    ones = np.add.reduceat(positive[order].astype(np.float64), starts)
    return centers, size - ones, ones


class Calibration(NamedTuple):
    """Largest log-likelihood of each of M problems, with the logarithm of its slope and its offset."""

    value: FloatArray
    slope: FloatArray
    offset: FloatArray


def calibrate(
    scores: FloatArray, zeros: FloatArray, ones: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray
) -> Calibration:
    """Fit slope and offset of the log-odds of bins (M, T) at rates (M,) by damped Newton steps.

    A step that decreases the likelihood is rejected and the damping is increased.
    """
    rho_neg, signal = rho_neg[:, None], (1 - rho_pos - rho_neg)[:, None]

    def evaluate(slope: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        s = scipy.special.expit(np.exp(slope)[:, None] * scores + offset[:, None])
        g = np.clip(rho_neg + signal * s, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        fit = (ones * np.log(g) + zeros * np.log1p(-g)).sum(1)
        return fit - 0.5 * ((slope - SLOPE_MEAN) / SLOPE_SD) ** 2, s, g

    slope, offset = np.full(len(scores), SLOPE_MEAN), np.zeros(len(scores))
    damping = np.full(len(scores), 1e-3)
    value, s, g = evaluate(slope, offset)
    for _ in range(N_NEWTON_STEPS):
        ds, df = signal * s * (1 - s), np.exp(slope)[:, None] * scores
        residual = (ones - (ones + zeros) * g) / (g * (1 - g)) * ds
        weight = (ones + zeros) * ds**2 / (g * (1 - g))
        gradient = (residual * df).sum(1) - (slope - SLOPE_MEAN) / SLOPE_SD**2, residual.sum(1)
        hessian = (
            ((weight * df**2).sum(1) + SLOPE_SD**-2) * (1 + damping),
            (weight.sum(1) + 1e-3) * (1 + damping),
            (weight * df).sum(1),
        )
        determinant = hessian[0] * hessian[1] - hessian[2] ** 2
        trial = (
            slope + np.clip((hessian[1] * gradient[0] - hessian[2] * gradient[1]) / determinant, -1, 1),
            offset + np.clip((hessian[0] * gradient[1] - hessian[2] * gradient[0]) / determinant, -3, 3),
        )
        trial_values = evaluate(*trial)
        better = trial_values[0] >= value
        slope, offset = np.where(better, trial[0], slope), np.where(better, trial[1], offset)
        value = np.where(better, trial_values[0], value)
        s, g = (np.where(better[:, None], new, old) for new, old in zip(trial_values[1:], (s, g)))
        damping = np.where(better, 0.3 * damping, 10 * damping)
    return Calibration(value, slope, offset)


def fit_scaling(
    noisy: NDArray[Any], logits: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return slope and offset (q,) of the log-odds (n, q) of true labels that maximize the likelihood of noisy labels.

    Both are NaN for labels with fewer than ``MIN_CLASS_SIZE`` observed rows of a class.
    """
    slope, offset = np.full((2, noisy.shape[1]), np.nan)
    fitted, bins = list[int](), np.zeros((3, noisy.shape[1], N_BINS))
    for j in range(noisy.shape[1]):
        observed = ~np.isnan(noisy[:, j])
        labels = noisy[observed, j].astype(np.float64)
        if min(labels.sum(), (1 - labels).sum()) >= MIN_CLASS_SIZE:
            values = bin_scores(logits[observed, j], labels)
            bins[:, len(fitted), : values[0].size] = values  # bins without rows do not change the fit
            fitted.append(j)
    if fitted:
        centers, zeros, ones = bins[:, : len(fitted)]
        scaling = calibrate(centers, zeros, ones, rho_pos[fitted], rho_neg[fitted])
        slope[fitted], offset[fitted] = np.exp(scaling.slope), scaling.offset
    return slope, offset
