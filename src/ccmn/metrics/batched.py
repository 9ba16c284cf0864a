"""Hamming loss, ranking loss and average precision of many models on the same rows, epoch after epoch.

What depends on the labels alone is worked out once, what the three share once a call, and memory is used again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ccmn.metrics.classification import hamming_rows
from ccmn.metrics.ranking_metrics import (
    FEW_LABELS,
    HIT,
    Ranking,
    average_precision_from,
    pairs_in_cache,
    ranking_loss_from,
    sum_not_below,
)

_ENTRIES_AT_ONCE = 1 << 18
"""Scores that a CPU works on at a time: they stay in its cache."""


class MetricsTogether:
    """The three metrics of score matrices against one label matrix, or a stack of them.

    Parameters
    ----------
    Y : tensor (..., n, q) of 0 and 1
        Leading dimensions broadcast against those of the scores.

    Examples
    --------
    >>> measure = MetricsTogether(torch.tensor([[1, 0, 1, 0]]))
    >>> measure(torch.tensor([[0.9, 0.8, 0.3, -0.1]]))
    tensor([0.2500, 0.2500, 0.8333], dtype=torch.float64)
    """

    def __init__(self, Y: Tensor) -> None:
        self.Y = Y
        self._counted: _Counted | None = None

    def __call__(self, scores: Tensor) -> Tensor:
        """Scores (..., n, q) -> (3, ...), means over rows in float64; a label is predicted where its score is >= 0."""
        scores = scores.expand(torch.broadcast_shapes(self.Y.shape, scores.shape))  # type: ignore[no-untyped-call]
        if scores.device.type != "cpu":
            return _ranked(self.Y, scores).mean(-1)
        if scores.shape[-1] <= FEW_LABELS:
            if self._counted is None or not self._counted.fits(scores):
                self._counted = _Counted(self.Y, scores)
            return self._counted(scores).mean(-1)
        Y = _aligned(self.Y, scores).expand(len(scores), *[-1] * (scores.ndim - 1))
        return torch.cat([_ranked(Y[part], scores[part]) for part in _parts(scores)], 1).mean(-1)


def _ranked(Y: Tensor, scores: Tensor) -> Tensor:
    """(3, ..., n) by way of a ranking."""
    scores = scores.contiguous()
    ranking = Ranking.of(Y, scores)
    return torch.stack([hamming_rows(Y, scores >= 0), ranking_loss_from(ranking), average_precision_from(ranking)])


def _aligned(Y: Tensor, scores: Tensor) -> Tensor:
    """As many dimensions as the scores have."""
    return Y.reshape((1,) * (scores.ndim - Y.ndim) + Y.shape)


def _parts(scores: Tensor) -> Iterator[slice]:
    """Slices of the first dimension, as many scores at a time as stay in cache."""
    some = max(1, _ENTRIES_AT_ONCE // max(1, scores[0].numel()))
    for start in range(0, len(scores), some):
        yield slice(start, min(start + some, len(scores)))


class _Counted:
    """The same for few labels on a CPU: pair by pair, label by label, so that every operation runs along many rows."""

    def __init__(self, Y: Tensor, like: Tensor) -> None:
        self._given = like.shape, like.dtype
        self._parts = list(_parts(like))
        dtype = torch.promote_types(like.dtype, torch.float32)
        with torch.inference_mode(False):  # what is kept must be writable in any mode
            y = _aligned(Y, like).to(dtype).movedim(-1, 0).contiguous()
            self._y = y.expand(-1, len(like), *y.shape[2:])
            self._weights = self._y * HIT + 1
            positives = self._y.sum(0).double()
            self._pairs = (positives * (len(self._y) - positives)).clamp(min=1)
            self._divide_by, self._empty = positives.clamp(min=1), (positives == 0).double()
            shape = like.shape[-1], self._parts[0].stop, *like.shape[1:-1]
            self._f, self._rank, self._hits = torch.empty(3, *shape, dtype=dtype).unbind(0)
            self._ratio, self._divisor = torch.empty(2, *shape, dtype=torch.float64).unbind(0)
            self._room = pairs_in_cache(self._f)

    def fits(self, scores: Tensor) -> bool:
        return self._given == (scores.shape, scores.dtype)

    def __call__(self, scores: Tensor) -> Tensor:
        """(3, ..., n)."""
        found = [self._measure(scores[part], part) for part in self._parts]
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    def _measure(self, scores: Tensor, part: slice) -> Tensor:
        f, rank, hits, ratio, divisor = (
            t[:, : len(scores)] for t in (self._f, self._rank, self._hits, self._ratio, self._divisor)
        )
        y = self._y[:, part]
        f.copy_(scores.movedim(-1, 0))
        mistaken = torch.ge(f, 0, out=hits).ne_(y).sum(0).double()
        sum_not_below(f, self._weights[:, part], self._room[:, :, : len(scores)], out=rank)
        torch.mul(rank, 1 / HIT, out=hits).floor_()
        rank.sub_(hits, alpha=HIT)
        hits.mul_(y)
        precision = ratio.copy_(hits).div_(divisor.copy_(rank)).sum(0)
        wrong = rank.mul_(y).sub_(hits).sum(0).double()
        # A row without a true label has a precision of 0 up to here, and counts 1.
        precision = (precision + self._empty[part]) / self._divide_by[part]
        return torch.stack([mistaken / len(f), wrong / self._pairs[part], precision])
