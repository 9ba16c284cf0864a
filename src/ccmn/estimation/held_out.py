"""Forward-corrected logistic models of every label at several pairs of rates, all at once, and what they foresee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ccmn._validation import FloatArray
from ccmn.estimation.features import label_features
from ccmn.estimation.scores import Fold

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
