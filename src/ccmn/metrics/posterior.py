r"""How probable each true label is, given its noisy value and its score: soft labels of small variance.

.. math:: P(y = 1 \mid \tilde y, f) = \frac{\eta\, P(\tilde y \mid 1)}{\eta\, P(\tilde y \mid 1) + (1 - \eta)
          P(\tilde y \mid 0)}, \qquad \eta = P(y = 1 \mid f)

with :math:`\eta` from the rows at hand: debiased labels regressed on the scores, label by label, by a function that
increases, and brought into [0, 1]. For labels without noise this is the label itself.

What it stands for: debiased labels are unbiased in products, but a product of q of them has a variance that grows
exponentially with q. Posterior probabilities do not; in return a product of them takes the labels of a row as
independent, given scores and noisy labels. They are not quite: the estimate is approximate.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn.metrics.estimate import Soften, debias

_EDGE = 1e-9
"""Probabilities stay this far from 0 and 1, so that evidence is never divided by nothing."""

_HALVINGS = 60


def by_scores(scores: Tensor) -> Soften:
    """Posterior probabilities given these scores (n, q)."""

    def soften(Y: Tensor, rho_pos: Tensor, rho_neg: Tensor, weights: Tensor) -> Tensor:
        prior = clean_probability(debias(Y, rho_pos, rho_neg, weights), scores, weights)
        return posterior(Y, prior, rho_pos, rho_neg)

    return soften


def posterior(Y: Tensor, prior: Tensor, rho_pos: Tensor, rho_neg: Tensor) -> Tensor:
    """Bayes' rule for noisy labels with these rates; NaN stays NaN."""
    prior = prior.clamp(_EDGE, 1 - _EDGE)
    if_true = prior * torch.where(Y == 1, 1 - rho_pos, rho_pos)
    if_false = (1 - prior) * torch.where(Y == 1, rho_neg, 1 - rho_neg)
    return torch.where(Y.isnan(), torch.nan, if_true / (if_true + if_false))


def clean_probability(p: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
    r"""P(y = 1 | f) for every entry, from debiased labels: isotonic in the score, in [0, 1], with the right total.

    Debiased labels are noisy, so their means over stretches of scores leave [0, 1]; cut off, they would add up to too
    many labels, many times too many where labels are many and rare. The nearest probabilities that add up to
    :math:`\sum p` are :math:`\min(\max(m - t, 0), 1)` with one t for all.
    """
    seen = ~p.isnan()
    cell = torch.from_numpy(_isotonic_cells(p, scores, weights)).to(p.device)
    share = (seen * weights.unsqueeze(-1)).flatten()
    empty = share.new_zeros(int(cell.max()) + 1)
    size = empty.index_add(0, cell.flatten(), share)
    total = empty.index_add(0, cell.flatten(), share * p.nan_to_num(0.0).flatten())
    mean = total / size.clamp_min(torch.finfo(torch.float64).tiny)
    shift = _shift(mean, size)
    return (mean - shift).clamp(0, 1)[cell]


def _shift(mean: Tensor, size: Tensor) -> Tensor:
    """The t at which the probabilities have the total of the means; differentiable, though found by halving."""
    goal = (size * mean).sum()
    with torch.no_grad():
        low, high = mean.min() - 1, mean.max()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            above = (size * (mean - middle).clamp(0, 1)).sum() > goal
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    inside, full = (mean > middle) & (mean < middle + 1), mean >= middle + 1
    # With the cells known that are cut at neither end, the total is linear in t.
    room = (size * inside).sum()
    exact = ((size * mean * inside).sum() + (size * full).sum() - goal) / room.clamp_min(torch.finfo(room.dtype).tiny)
    return torch.where(room > 0, exact, middle)


def _isotonic_cells(p: Tensor, scores: Tensor, weights: Tensor) -> NDArray[np.int64]:
    """(n, q) numbers of cells: in each, the increasing function that fits the label best has one value."""
    targets, f, w = (t.detach().double().cpu().numpy() for t in (p, scores, weights))
    cells, first = np.zeros(targets.shape, dtype=np.int64), 0
    for j in range(targets.shape[1]):
        rows = np.flatnonzero(~np.isnan(targets[:, j]))
        if rows.size:
            cells[rows, j] = first + _blocks(targets[rows, j], f[rows, j], w[rows])
            first = int(cells[rows, j].max()) + 1
    return cells


def _blocks(p: NDArray[np.float64], f: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.int64]:
    from sklearn.isotonic import isotonic_regression

    # Largest first among tied scores: a run that falls becomes one block.
    order = np.lexsort((-p, f))
    fitted = isotonic_regression(p[order], sample_weight=w[order])
    number = np.concatenate(([0], np.cumsum(np.diff(fitted) > 0)))
    result = np.empty(len(p), dtype=np.int64)
    result[order] = number
    return result
