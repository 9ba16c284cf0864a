"""Forward-corrected logistic models of every label at several pairs of rates, all at once, and what they foresee.

The held-out likelihood of a label's noisy values over a grid of rates: what the data say of its two rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn._validation import FloatArray
from ccmn.estimation.noise_rates import Side
from ccmn.estimation.out_of_fold import LANDMARKS, MOST_LABELS, WIDEST, Fold, heads, label_features, spread_folds

ITERATIONS = 40
RIDGE = 30.0
"""l2 in the metric of the steps, in mean eigenvalues of the features: strong directions are fitted first."""
MOST_ENTRIES = 2**23
"""Rows times models that are worked on at once."""
_EDGE = 1e-6


class Models(NamedTuple):
    """Columns of one stacked problem: the label, the pair of rates and the evidence column to leave out of each."""

    label: Tensor
    rho_pos: Tensor
    rho_neg: Tensor
    own: Tensor
    """The place of the label itself among the features, or -1."""

    @property
    def signal(self) -> Tensor:
        return 1 - self.rho_pos - self.rho_neg


def held_out_logits(
    X: FloatArray, Y: FloatArray, pairs: Sequence[FloatArray], folds: Sequence[Fold]
) -> list[FloatArray]:
    r"""Log-odds of the *true* label of rows held out, for every label and every pair of rates assumed.

    For each pair the model is

    .. math:: P(\tilde y = 1 \mid z) = \rho_{neg} + (1 - \rho_{pos} - \rho_{neg})\, \sigma(w z + b),

    z the features and the other noisy labels. It is fitted to the other folds by accelerated steps in the metric
    :math:`(Z^\top Z / 4n + \lambda I)^{-1}`, and stopped where the likelihood of the fold's noisy labels is best.

    Parameters
    ----------
    X : (n, d)
        Centred features.
    Y : (n, q)
        Noisy labels, NaN where not observed.
    pairs : q arrays (P_j, 2)
    folds : row numbers, a partition

    Returns
    -------
    q arrays (n, P_j)
    """
    others, place = label_features(Y)
    Z = torch.from_numpy(np.concatenate([X, others], 1).astype(np.float32))
    labels = torch.from_numpy(Y.astype(np.float32))
    own = np.where(place >= 0, X.shape[1] + place, -1)
    result = [np.empty((len(Y), len(p))) for p in pairs]
    for k, fold in enumerate(folds):
        rest = np.concatenate([other for j, other in enumerate(folds) if j != k])
        training, testing = (Split(Z[rows], labels[rows]) for rows in map(torch.from_numpy, (np.sort(rest), fold)))
        metric = _metric(training.Z)
        for part in _parts(pairs, len(rest)):
            models = _stack(part, pairs, own)
            logits = fit_models(training, testing, models, metric).numpy()
            for j, columns in zip(part, np.split(logits, np.cumsum([len(pairs[j]) for j in part])[:-1], 1)):
                result[j][fold] = columns
    return result


class Split(NamedTuple):
    """Features (m, D) and noisy labels (m, q) of some rows."""

    Z: Tensor
    labels: Tensor


def fit_models(training: Split, testing: Split, models: Models, metric: Tensor) -> Tensor:
    """Fit all models; log-odds (m, C) of the testing rows, each at its own best step."""
    Z, signal = training.Z, models.signal
    Y, Y_test = training.labels[:, models.label], testing.labels[:, models.label]
    seen, seen_test = ~Y.isnan(), ~Y_test.isnan()
    Y, Y_test = Y.nan_to_num(), Y_test.nan_to_num()
    many = seen.sum(0).clamp(min=1)
    W, b = torch.zeros(Z.shape[1], len(signal)), _start(Y.sum(0) / many, models)
    ahead_W, ahead_b = W, b
    best = torch.full((len(signal),), -torch.inf)
    kept = torch.zeros_like(Y_test)
    for step in range(ITERATIONS):
        if step % 2 == 0:
            logits = testing.Z @ W + b
            value = (seen_test * log_likelihood(logits, Y_test, models)).sum(0)
            kept, best = torch.where(value > best, logits, kept), torch.maximum(value, best)
        pull = seen * likelihood_slope(Z @ ahead_W + ahead_b, Y, models)
        new_W = ahead_W + _without_own(metric @ (Z.T @ pull / many), models.own, metric)
        new_b = ahead_b + 4 * pull.sum(0) / many
        momentum = step / (step + 3)
        ahead_W, ahead_b = new_W + momentum * (new_W - W), new_b + momentum * (new_b - b)
        W, b = new_W, new_b
    return kept


def noisy_probability(logits: Tensor, models: Models) -> Tensor:
    """rho_neg + r sigma(f), kept off 0 and 1."""
    return (models.rho_neg + models.signal * torch.sigmoid(logits)).clamp(_EDGE, 1 - _EDGE)


def log_likelihood(logits: Tensor, Y: Tensor, models: Models) -> Tensor:
    """log P(noisy label | z), entry by entry."""
    g = noisy_probability(logits, models)
    return torch.where(Y > 0, g, 1 - g).log()


def likelihood_slope(logits: Tensor, Y: Tensor, models: Models) -> Tensor:
    r""":math:`\partial \log P / \partial f = (\tilde y - g) / (g (1 - g)) \cdot r \sigma' (f)`."""
    g, s = noisy_probability(logits, models), torch.sigmoid(logits)
    return (Y - g) / (g * (1 - g)) * (models.signal * s * (1 - s))


def _without_own(step: Tensor, own: Tensor, metric: Tensor) -> Tensor:
    """The step of a problem without each model's own label: in the metric, a projection of rank one."""
    column = own.clamp(min=0)
    there = step[column, torch.arange(len(own))] / metric[column, column]
    return step - metric[:, column] * torch.where(own >= 0, there, 0.0)


def _metric(Z: Tensor) -> Tensor:
    """(Z'Z / 4n + l2)^-1: 1/4 bounds the curvature of the logistic likelihood."""
    gram = (Z.T @ Z).double() / (4 * len(Z))
    l2 = RIDGE * gram.diagonal().mean().clamp(min=1e-12)
    metric: Tensor = torch.linalg.inv(gram + l2 * torch.eye(len(gram), dtype=torch.float64))
    return metric.float()


def _start(observed: Tensor, models: Models) -> Tensor:
    """The log-odds of the prevalence that goes with the rates."""
    prior = ((observed - models.rho_neg) / models.signal).clamp(0.01, 0.99)
    return torch.logit(prior)


def _stack(part: Sequence[int], pairs: Sequence[FloatArray], own: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Models:
    label = np.repeat(part, [len(pairs[j]) for j in part])
    rates = torch.from_numpy(np.concatenate([pairs[j] for j in part]).astype(np.float32))
    return Models(torch.from_numpy(label), rates[:, 0], rates[:, 1], torch.from_numpy(own[label]))


def _parts(pairs: Sequence[FloatArray], n: int) -> Iterator[list[int]]:
    """Labels in turn, as many at a time as ``MOST_ENTRIES`` allows (one at least)."""
    part: list[int] = []
    columns = 0
    for j, p in enumerate(pairs):
        if part and (columns + len(p)) * n > MOST_ENTRIES:
            yield part
            part, columns = [], 0
        part.append(j)
        columns += len(p)
    if part:
        yield part


FOLDS = 3
FEWEST_ROWS = 12
"""Below this many rows nothing is fitted: every pair of rates is as likely as any other."""
MOST_ROWS, FEWEST_KEPT = 20_000, 2_000
"""Rows that the models are fitted to and judged by, at most; and that are kept whatever the work."""
MOST_WORK = 1.5e9
"""Rows times models times features, above which rows are left out: about half a minute on one core."""
FEWEST = 20
"""Observed rows of the rarer class below which a label leans on the others, and few models are fitted to it."""
BINS = 64
"""Cells of held-out scores, equally full, by which a pair of rates is judged."""
NEIGHBOURS = 3
"""Fitted models whose direction each pair of rates may borrow."""
_ROUNDS = 12
_SLOPE, _SLOPE_SPREAD = 0.2, 0.5
"""Log of the factor by which held-out log-odds are too small, before the data are asked, and its deviation."""
_EDGE_surface = 1e-6


class Grid(NamedTuple):
    """Rates (A,) and (B,) whose pairs are looked at."""

    pos: FloatArray
    neg: FloatArray

    @property
    def pairs(self) -> tuple[FloatArray, FloatArray]:
        """All pairs, (A, B) each."""
        pos, neg = np.meshgrid(self.pos, self.neg, indexing="ij")
        return pos, neg

    def prior(self, observed: float) -> FloatArray:
        r"""The share of true positives that goes with each pair, :math:`(\tilde p - \rho_{neg}) / r`, within [0, 1]."""
        pos, neg = self.pairs
        signal = np.maximum(1 - pos - neg, _EDGE_surface)
        return np.clip((observed - neg) / signal, 0, 1)

    def possible(self, observed: float) -> NDArray[np.bool_]:
        """Pairs that leave a signal and, give or take the grid, go with a share of positives between 0 and 1."""
        pos, neg = self.pairs
        return (pos + neg <= 0.85) & (neg <= observed + 0.03) & (1 - pos >= observed - 0.05)


def steps(many: int, width: float) -> FloatArray:
    """0, width, 2 width, ..."""
    return np.arange(many, dtype=np.float64) * width


_NONE = np.zeros(1)
GRIDS: dict[Side, Grid] = {
    "both": Grid(steps(16, 0.05), steps(36, 0.02)),
    "partial": Grid(_NONE, steps(86, 0.01)),
    "missing": Grid(steps(86, 0.01), _NONE),
}
"""Lost labels are known less well than added ones: a wider step is enough."""

_FITTED: dict[Side, Grid] = {
    "both": Grid(steps(4, 0.2), steps(7, 0.1)),
    "partial": Grid(_NONE, steps(9, 0.1)),
    "missing": Grid(steps(5, 0.2), _NONE),
}
"""Pairs at which models are fitted; between them directions change little, and are borrowed."""


class Surfaces(NamedTuple):
    """Log-likelihoods over the grid of each label's side, -inf where impossible; and scores of plain models (n, q)."""

    values: list[FloatArray]
    scores: FloatArray
    rows: NDArray[np.intp]
    """The rows that the scores are of."""
    deviance: FloatArray
    """(q,): how far the best explanation is from the cells' own shares; NaN where there is none (:func:`deviance`)."""


def fitted_pairs(side: Side, observed: float) -> FloatArray:
    """(P, 2): the pairs at which models of a label are fitted, no noise first."""
    grid = _FITTED[side]
    pos, neg = grid.pairs
    wanted = (pos + neg <= 0.8 + 1e-9) & (neg <= observed + 0.05) & (1 - pos >= observed - 0.1)
    wanted[0, 0] = True
    return np.stack([pos[wanted], neg[wanted]], 1)


def label_surfaces(X: Any, Y: FloatArray, sides: Sequence[Side], seed: int) -> Surfaces:
    """The surface of every label: the better of two heads at each pair of rates."""
    n, q = Y.shape
    observed = shares(Y)
    if n < FEWEST_ROWS:
        return Surfaces(flat_surfaces(Y, sides), np.tile(observed, (n, 1)), np.arange(n), np.full(q, np.nan))
    rare = np.minimum((Y == 1).sum(0), (Y == 0).sum(0)) < FEWEST
    pairs = [fitted_pairs(side, p)[: 1 if few else None] for side, p, few in zip(sides, observed, rare)]
    rows = np.sort(np.random.default_rng(seed).permutation(n)[: rows_to_look_at(X.shape[1], pairs)])
    Y = Y[rows]
    folds = spread_folds(Y, FOLDS, np.random.default_rng(seed))
    logits = [held_out_logits(head, Y, pairs, folds) for head in heads(X[rows], seed)]
    by_head = [[surface(head[j], Y[:, j], pairs[j], GRIDS[side]) for j, side in enumerate(sides)] for head in logits]
    values = [np.maximum.reduce(heads_of) for heads_of in zip(*by_head)]
    misfit = [
        min(deviance(head[j], Y[:, j], found[j], pairs[j], GRIDS[side]) for head, found in zip(logits, by_head))
        for j, side in enumerate(sides)
    ]
    plain = scipy.special.expit(np.stack([logits[0][j][:, 0] for j in range(q)], 1))
    return Surfaces(values, plain, rows, np.array(misfit))


def rows_to_look_at(d: int, pairs: Sequence[FloatArray]) -> int:
    """As many rows as the work allows: models of every label, of features and of other labels."""
    width = max(min(d, WIDEST), LANDMARKS) + min(len(pairs), MOST_LABELS)
    models = sum(len(label) for label in pairs)
    return int(np.clip(MOST_WORK / (width * models), FEWEST_KEPT, MOST_ROWS))


def flat_surfaces(Y: FloatArray, sides: Sequence[Side]) -> list[FloatArray]:
    """Every possible pair of rates alike: where nothing is known of the shape of the posterior."""
    return [np.where(GRIDS[side].possible(p), 0.0, -np.inf) for side, p in zip(sides, shares(Y))]


def shares(Y: FloatArray) -> FloatArray:
    """Observed prevalence of every label; 1/2 where nothing was observed."""
    seen = (~np.isnan(Y)).sum(0)
    return np.where(seen > 0, np.nansum(Y, 0) / np.maximum(seen, 1), 0.5)


def surface(logits: FloatArray, noisy: FloatArray, pairs: FloatArray, grid: Grid) -> FloatArray:
    r"""Held-out log-likelihood (A, B) of one label over the grid.

    For each pair of rates, the best of

    .. math:: \sum_i \log P(\tilde y_i), \qquad P(\tilde y_i = 1) = \rho_{neg} + r\, \sigma(a f_i + b)

    over slope a and offset b, and over the held-out log-odds f of the models fitted at the nearest pairs. Models that
    are stopped early are too timid, by a factor that differs from pair to pair; a puts that right (with a log-normal
    prior about 1.2), so that pairs are compared by shape alone.
    """
    seen = ~np.isnan(noisy)
    positive = noisy[seen] == 1
    possible = grid.possible(float(positive.mean()) if positive.size else 0.5)
    result = np.where(possible, 0.0, -np.inf)
    if positive.all() or not positive.any():
        return result
    cells = [cells_of(column, positive) for column in logits[seen].T]
    centres, zeros, ones = (np.stack(part) for part in zip(*cells))
    pos, neg = (side[possible] for side in grid.pairs)
    result[possible] = np.maximum.reduce(
        [calibrated_likelihood(centres[k], zeros[k], ones[k], pos, neg) for k in _nearest(pos, neg, pairs).T]
    )
    return result


def _nearest(pos: FloatArray, neg: FloatArray, pairs: FloatArray) -> NDArray[np.intp]:
    """The numbers of the fitted pairs that are nearest to each pair, in steps of the fitted grid."""
    apart = np.abs(pos[:, None] - pairs[:, 0]) / 0.2 + np.abs(neg[:, None] - pairs[:, 1]) / 0.1
    return np.argsort(apart, 1, kind="stable")[:, :NEIGHBOURS]


def deviance(logits: FloatArray, noisy: FloatArray, values: FloatArray, pairs: FloatArray, grid: Grid) -> float:
    r"""Twice the log-likelihood that is missing to a free share of ones in every cell, at the likeliest pair of rates.

    Where the best class-conditional explanation with a logistic posterior is right, it is about
    :math:`\chi^2` with ``BINS - 4`` degrees of freedom.
    """
    seen = ~np.isnan(noisy)
    positive = noisy[seen] == 1
    if positive.all() or not positive.any():
        return float("nan")
    i, k = np.unravel_index(int(values.argmax()), values.shape)
    near = _nearest(grid.pos[[i]], grid.neg[[k]], pairs)[0]
    missing = []
    for model in near:
        centres, zeros, ones = cells_of(logits[seen, model], positive)
        free = scipy.special.xlogy(ones, ones / (ones + zeros)) + scipy.special.xlogy(zeros, zeros / (ones + zeros))
        fitted = calibrated_likelihood(centres[None], zeros[None], ones[None], grid.pos[[i]], grid.neg[[k]])
        missing.append(2 * float(free.sum() - fitted[0]))
    return min(missing)


def cells_of(scores: FloatArray, positive: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean score, zeros and ones in each of ``BINS`` cells of ascending score, equally full but for a row."""
    order = np.argsort(scores, kind="stable")
    starts = np.unique(np.linspace(0, scores.size, BINS, endpoint=False).astype(np.intp))
    size = np.diff(starts, append=scores.size)
    centres = np.add.reduceat(scores[order], starts) / size
    ones = np.add.reduceat(positive[order].astype(np.float64), starts)
    return centres, size - ones, ones


def calibrated_likelihood(
    scores: FloatArray, zeros: FloatArray, ones: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray
) -> FloatArray:
    """The best log-likelihood over slope and offset, for M pairs at once: cells (M, T), rates (M,)."""
    return calibrate(scores, zeros, ones, rho_pos, rho_neg).value


class Calibration(NamedTuple):
    """The best log-likelihood of each of M problems, the log of its slope, and its offset."""

    value: FloatArray
    slope: FloatArray
    offset: FloatArray


def calibrate(
    scores: FloatArray, zeros: FloatArray, ones: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray
) -> Calibration:
    """Slopes and offsets of log-odds in cells (M, T) that explain their zeros and ones best at rates (M,).

    By Newton's steps: one that would make it worse is not taken; the next is damped.
    """
    rho_neg, signal = rho_neg[:, None], (1 - rho_pos - rho_neg)[:, None]

    def look(slope: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        s = scipy.special.expit(np.exp(slope)[:, None] * scores + offset[:, None])
        g = np.clip(rho_neg + signal * s, _EDGE_surface, 1 - _EDGE_surface)
        fit = (ones * np.log(g) + zeros * np.log1p(-g)).sum(1)
        return fit - 0.5 * ((slope - _SLOPE) / _SLOPE_SPREAD) ** 2, s, g

    slope, offset = np.full(len(scores), _SLOPE), np.zeros(len(scores))
    damping = np.full(len(scores), 1e-3)
    value, s, g = look(slope, offset)
    for _ in range(_ROUNDS):
        ds, steep = signal * s * (1 - s), np.exp(slope)[:, None] * scores
        pull = (ones - (ones + zeros) * g) / (g * (1 - g)) * ds
        weight = (ones + zeros) * ds**2 / (g * (1 - g))
        down = (pull * steep).sum(1) - (slope - _SLOPE) / _SLOPE_SPREAD**2, pull.sum(1)
        curve = (
            ((weight * steep**2).sum(1) + _SLOPE_SPREAD**-2) * (1 + damping),
            (weight.sum(1) + 1e-3) * (1 + damping),
            (weight * steep).sum(1),
        )
        left = curve[0] * curve[1] - curve[2] ** 2
        tried = (
            slope + np.clip((curve[1] * down[0] - curve[2] * down[1]) / left, -1, 1),
            offset + np.clip((curve[0] * down[1] - curve[2] * down[0]) / left, -3, 3),
        )
        found = look(*tried)
        better = found[0] >= value
        slope, offset = np.where(better, tried[0], slope), np.where(better, tried[1], offset)
        value = np.where(better, found[0], value)
        s, g = (np.where(better[:, None], new, old) for new, old in zip(found[1:], (s, g)))
        damping = np.where(better, 0.3 * damping, 10 * damping)
    return Calibration(value, slope, offset)
