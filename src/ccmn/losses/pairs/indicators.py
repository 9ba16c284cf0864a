r"""The double sum of the hinge from indicators alone, in tiles that stay in cache.

With :math:`m_{jk} = 1[f_k > f_j - 1]` (the pairs that count) and :math:`s_{jk} = p_j n_k m_{jk}`,

.. math:: \frac{\partial L}{\partial f_j} = \sum_k s_{kj} - \sum_k s_{jk}, \qquad
          L = \sum_{j \ne k} s_{jk} (1 - f_j + f_k) = \sum_{j \ne k} s_{jk} + \sum_j f_j \frac{\partial L}{\partial f_j}

so that neither the differences nor phi itself are ever written down.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.losses.pairs.result import PairSums, Wanted
from ccmn.losses.pairs.workspace import workspace


def hinge_indicator_sum(scores: Tensor, pos: Tensor, neg: Tensor, wanted: Wanted, tile: int) -> PairSums:
    """Value and gradient by the scores, rows in tiles of at most ``tile`` pairs (or one row)."""
    rows, q = scores.shape
    some = min(rows, max(1, tile // (q * q)))
    room = workspace(2 * q * q * some, scores.dtype, scores.device)
    value, by_scores = scores.new_empty(rows), torch.empty_like(scores)
    for start in range(0, rows, some):
        part = slice(start, start + some)
        _rows(scores[part], pos[part], neg[part], room, value[part], by_scores[part])
    return PairSums(value, by_scores if wanted.by_scores else None, None, None)


def _rows(scores: Tensor, pos: Tensor, neg: Tensor, room: Tensor, value: Tensor, by_scores: Tensor) -> None:
    # Rows go last: the innermost loop then runs over rows, not over a few labels.
    f, p, n = (t.t().contiguous() for t in (scores, pos, neg))
    q, rows = f.shape
    counts, weighted = (part[: q * q * rows].view(q, q, rows) for part in room.chunk(2))
    torch.gt(f, (f - 1).unsqueeze(1), out=counts)
    counts.diagonal(0, 0, 1).zero_()
    as_positive = torch.mul(counts, n, out=weighted).sum(1).mul_(p)
    slopes = counts.mul_(p.unsqueeze(1)).sum(0).mul_(n).sub_(as_positive)
    # The slopes add up to 0, so that the scores may be moved: small ones keep their digits.
    torch.sum(as_positive.addcmul_(f - f.mean(0), slopes), 0, out=value)
    by_scores.copy_(slopes.t())
