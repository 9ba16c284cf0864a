r"""The double sum over half of the pairs, for a symmetric surrogate (the sigmoid).

With :math:`\phi(t) + \phi(-t) = 2 \phi(0)` the two orders of a pair need one value of phi:

.. math:: p_j n_k \phi(t) + p_k n_j \phi(-t) = (p_j n_k - p_k n_j)\, \phi(t) + 2 \phi(0)\, p_k n_j

and its slope is the weight in brackets times phi'(t).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses.pairs.result import PairSums, Wanted
from ccmn.losses.pairs.workspace import workspace
from ccmn.losses.surrogates import Surrogate


def symmetric_pair_sum(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, wanted: Wanted, tile: int
) -> PairSums:
    """Value and gradient by the scores, rows in tiles of at most ``tile`` pairs (or one row)."""
    rows, q = scores.shape
    steps = q // 2
    some = max(1, tile // max(1, q * steps))
    value, by_scores = scores.new_empty(rows), torch.empty_like(scores)
    room = workspace(4 * q * steps * min(some, rows), scores.dtype, scores.device)
    for start in range(0, rows, some):
        part = slice(start, start + some)
        _rows(scores[part], pos[part], neg[part], surrogate, room, value[part], by_scores[part])
    return PairSums(value, by_scores if wanted.by_scores else None, None, None)


def _rows(
    scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate, room: Tensor, value: Tensor, by_scores: Tensor
) -> None:
    """Pairs (j, j + s mod q) for s = 1 .. q/2: every pair once, those half way round twice at half weight."""
    rows, q = scores.shape
    steps = q // 2
    f, p, n = (t.t().contiguous() for t in (scores, pos, neg))
    # Twice the labels in a row: label j + s of every j is then a window that is read where it lies.
    f_k, p_k, n_k = (
        torch.cat((t, t)).as_strided((steps, q, rows), (rows, rows, 1), storage_offset=rows) for t in (f, p, n)
    )
    minus_t, other, weights, phi = (b[: steps * q * rows].view(steps, q, rows) for b in room.chunk(4))
    torch.sub(f_k, f, out=minus_t)
    torch.mul(p_k, n, out=other)
    torch.mul(p, n_k, out=weights).sub_(other)
    if q % 2 == 0:
        weights[-1] *= 0.5
        other[-1] *= 0.5
    constant = other.sum((0, 1))
    slope = other
    surrogate.fill(minus_t, weights, phi, slope)
    torch.add(phi.sum((0, 1)), constant, alpha=2 * surrogate.at_zero, out=value)
    taken = scores.new_zeros(2 * q, rows)
    for s in range(steps):
        taken[s + 1 : s + 1 + q] += slope[s]
    by_scores.copy_((slope.sum(0) - taken[:q] - taken[q:]).t())
