r"""Likelihood of the noise rates of every label: a surface over the grid of both rates.

The grid has the terms of the prior: rho_pos, the share of the *true* labels that are missing, and phi, the share of the
*given* labels that are false. With the observed share o of a label,

.. math:: \pi = \frac{o (1 - \phi)}{1 - \rho_{pos}}, \qquad
          \rho_{neg} = \frac{\phi\, o}{1 - \pi} = \frac{\phi\, o\, (1 - \rho_{pos})}{1 - \rho_{pos} - o (1 - \phi)} .

The value at a pair is the likelihood of equation (*) for the best of a few scores: the log-odds f of the noisy labels,
and the scores of models that were fitted to equation (*) at the nearest coarse pairs of rates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import xlogy
from torch import Tensor

from ccmn._validation import FloatArray
from ccmn.estimation.link import Bins, bin_scores, fit_link
from ccmn.training.default_settings import DEFAULTS, MIN_PROBABILITY, N_GRADIENT_STEPS, DefaultSettings

MIN_SIGNAL = 0.15
"""Guard: pairs with 1 - rho_pos - rho_neg below this value are not in the grid, as debiased labels vary too much."""
N_NEIGHBORS = 3
"""Numerical resolution: coarse pairs whose scores are tried at each pair of the grid."""
_MAX_ENTRIES = 2**23
"""Rows x models that are fitted at a time."""


class Surfaces(NamedTuple):
    """Likelihood of q labels over A x B pairs of rates, and the fits of equation (*) to f."""

    value: FloatArray
    """Log-likelihood (q, A, B), -inf where a pair is impossible."""
    rho_pos: FloatArray
    """Values (A,)."""
    phi: FloatArray
    """Values (B,)."""
    rho_neg: FloatArray
    """Values (q, A, B)."""
    slope: FloatArray
    offset: FloatArray
    """Fits of equation (*) to f at every pair, (q, A, B)."""
    share: FloatArray
    """Observed share o of every label, (q,)."""
    n: FloatArray
    """Observed rows of every label, (q,)."""
    gain: FloatArray
    """Out-of-fold log-likelihood of f minus that of the observed share, in standard errors, (q,)."""


def rate_grid(share: FloatArray, settings: DefaultSettings = DEFAULTS) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rho_pos (A,), phi (B,) and rho_neg (q, A, B), which is NaN at pairs that are impossible."""
    pos, phi = np.arange(0, 1 - MIN_SIGNAL + 1e-9, settings.grid[0]), np.arange(0, 1, settings.grid[1])
    return pos, phi, implied_rho_neg(share[:, None, None], pos[:, None], phi)


def implied_rho_neg(o: Any, rho_pos: Any, phi: Any) -> FloatArray:
    """Return rho_neg of observed share, rho_pos and phi; NaN if pi > 1 or if there is not enough signal."""
    rest = 1 - rho_pos - o * (1 - phi)  # (1 - pi) (1 - rho_pos)
    rho_neg = phi * o * (1 - rho_pos) / np.maximum(rest, MIN_PROBABILITY)
    possible = (rest > 0) & (rho_pos + rho_neg <= 1 - MIN_SIGNAL)
    return np.where(possible | (rho_pos + phi == 0), rho_neg, np.nan)  # no noise is always possible


def label_surfaces(
    f: FloatArray,
    Y: FloatArray,
    features: NDArray[Any] | None = None,
    sample_weight: FloatArray | None = None,
    folds: NDArray[np.intp] | None = None,
    settings: DefaultSettings = DEFAULTS,
) -> Surfaces:
    """Return the surfaces of all labels.

    ``f`` (n, q) are out-of-fold log-odds of the noisy labels or probabilities ``Y`` (n, q), which are NaN where not
    observed. ``features`` (n, d) are the centered dense features of the forward-corrected models, which require the
    ``folds`` of the rows; without features, f is used alone. Only ratios of the ``sample_weight`` (n,) matter.
    """
    weight = np.ones(len(f)) if sample_weight is None else sample_weight / sample_weight.mean()
    observed = ~np.isnan(Y)
    labels, weights = np.where(observed, Y, 0.0), weight[:, None] * observed
    n = weights.sum(0)
    share = np.where(n > 0, (weights * labels).sum(0) / np.maximum(n, MIN_PROBABILITY), 0.5)
    pos, phi, rho_neg = rate_grid(share, settings)
    rho_pos = np.broadcast_to(pos[:, None], rho_neg.shape[1:])
    value, slope, offset = np.full(rho_neg.shape, -np.inf), np.ones(rho_neg.shape), np.zeros(rho_neg.shape)
    scores, pairs = forward_scores(features, labels, weights, folds, share, settings)
    for j in range(Y.shape[1]):
        possible = ~np.isnan(rho_neg[j])
        p, m, rows = rho_pos[possible], rho_neg[j][possible], observed[:, j]
        if not 0 < share[j] < 1 or n[j] == 0:
            value[j][possible] = 0.0
            offset[j][possible] = np.sign(share[j] - 0.5) * np.log1p(n[j])
            continue
        y, w = labels[rows, j], weights[rows, j]
        fit = fit_link(bin_scores(f[rows, j, None], y, w), p, m, settings.slope)
        slope[j][possible], offset[j][possible], best = fit.slope, fit.offset, fit.value
        if len(pairs[j]):
            bins = bin_scores(scores[j][rows].astype(np.float64), y, w)
            for k in _nearest_pairs(p, m, pairs[j]).T:
                best = np.maximum(best, fit_link(Bins(*(part[k] for part in bins)), p, m, settings.slope).value)
        value[j][possible] = best
    return Surfaces(value, pos, phi, rho_neg, slope, offset, share, n, likelihood_gain(f, labels, weights, share))


def likelihood_gain(f: FloatArray, Y: FloatArray, weights: FloatArray, share: FloatArray) -> FloatArray:
    """Return the mean gain in log-likelihood of f over the observed share of every label, in standard errors."""
    o = np.clip(share, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    gain = Y * f - np.logaddexp(0, f) - xlogy(Y, o) - xlogy(1 - Y, 1 - o)
    n = np.maximum(weights.sum(0), 1)
    mean = (weights * gain).sum(0) / n
    se = np.sqrt((weights * (gain - mean) ** 2).sum(0)) / n
    return np.asarray(mean / np.maximum(se, MIN_PROBABILITY))


# -- Forward-corrected models


def forward_scores(
    features: NDArray[Any] | None,
    Y: FloatArray,
    weights: FloatArray,
    folds: NDArray[np.intp] | None,
    share: FloatArray,
    settings: DefaultSettings = DEFAULTS,
) -> tuple[list[NDArray[np.float32]], list[FloatArray]]:
    """Return held-out log-odds (n, P_j) of models fitted to equation (*) at coarse pairs (P_j, 2), for every label."""
    q = Y.shape[1]
    if features is None or folds is None:
        return [np.empty((len(Y), 0), np.float32)] * q, [np.empty((0, 2))] * q
    pos, phi = np.array(settings.coarse[0])[:, None], np.array(settings.coarse[1])
    neg = implied_rho_neg(share[:, None, None], pos, phi)
    pos = np.broadcast_to(pos, neg.shape[1:])
    neg[(share <= 0) | (share >= 1)] = np.nan
    pairs = [np.stack([pos[~np.isnan(r)], r[~np.isnan(r)]], 1) for r in neg]
    Z = torch.from_numpy(np.ascontiguousarray(features, np.float32))
    scores = [np.zeros((len(Y), len(p)), np.float32) for p in pairs]
    step = max(1, _MAX_ENTRIES // (len(Y) * neg[0].size))
    for start in range(0, q, step):
        part = range(start, min(start + step, q))
        column = np.repeat(part, [len(pairs[j]) for j in part])
        rates = torch.from_numpy(np.concatenate([pairs[j] for j in part]).astype(np.float32))
        targets, w = (torch.from_numpy(values[:, column].astype(np.float32)) for values in (Y, weights))
        for k in np.unique(folds):
            train, test = (torch.from_numpy(np.flatnonzero(rows)) for rows in (folds != k, folds == k))
            fitted = _fit_forward(Z[train], targets[train], w[train], Z[test], targets[test], w[test], rates)
            for j in part:
                scores[j][folds == k] = fitted[:, column == j]
    return scores, pairs


def _fit_forward(
    Z: Tensor, Y: Tensor, weight: Tensor, Z_test: Tensor, Y_test: Tensor, weight_test: Tensor, rates: Tensor
) -> NDArray[np.float32]:
    r"""Fit w and b of :math:`P = \rho_{neg} + r\, \sigma(w z + b)` by accelerated gradient steps.

    Return the log-odds of the test rows at the step where their likelihood is largest.
    """
    pos, neg = rates.T
    signal, total = 1 - pos - neg, weight.sum(0).clamp(min=1)

    def likelihood(f: Tensor) -> tuple[Tensor, Tensor]:
        s = signal * torch.sigmoid(f)
        return s, (s + neg).clamp_(MIN_PROBABILITY, 1 - MIN_PROBABILITY)

    preconditioner = _preconditioner(Z)
    b = torch.logit((((weight * Y).sum(0) / total - neg) / signal).clamp(0.01, 0.99))
    W = torch.zeros(Z.shape[1], len(rates), dtype=Z.dtype)
    ahead_W, ahead_b, best, kept = W, b, torch.full_like(b, -torch.inf), torch.zeros_like(Y_test)
    for step in range(N_GRADIENT_STEPS):
        if step % 2 == 0:
            f = torch.addmm(b, Z_test, W)
            P = likelihood(f)[1]
            value = (weight_test * (Y_test * P.log() + (1 - Y_test) * (1 - P).log())).sum(0)
            kept, best = torch.where(value > best, f, kept), torch.maximum(value, best)
        s, P = likelihood(torch.addmm(ahead_b, Z, ahead_W))
        # dlogP / df = (y - P) / (P (1 - P)) r sigma (1 - sigma)
        gradient = (Y - P).mul_(s).mul_(1 - s / signal).div_(P * (1 - P)).mul_(weight).div_(total)
        new_W, new_b = ahead_W + preconditioner @ (Z.T @ gradient), ahead_b + 4 * gradient.sum(0)
        momentum = step / (step + 3)
        ahead_W, ahead_b = new_W + momentum * (new_W - W), new_b + momentum * (new_b - b)
        W, b = new_W, new_b
    return kept.numpy()


def _preconditioner(Z: Tensor) -> Tensor:
    """Return (Z'Z / 4n + l2 I)^-1; 1/4 bounds the curvature of the logistic likelihood."""
    gram = (Z.T @ Z).double() / (4 * len(Z))
    l2 = 30.0 * gram.diagonal().mean().clamp(min=1e-12)
    inverse: Tensor = torch.linalg.inv(gram + l2 * torch.eye(len(gram), dtype=torch.float64))
    return inverse.float()


def _nearest_pairs(pos: FloatArray, neg: FloatArray, pairs: FloatArray) -> NDArray[np.intp]:
    """Return the indices of the coarse pairs that are nearest to each pair."""
    distance = np.abs(pos[:, None] - pairs[:, 0]) / 2 + np.abs(neg[:, None] - pairs[:, 1])
    return np.argsort(distance, 1, kind="stable")[:, :N_NEIGHBORS]
