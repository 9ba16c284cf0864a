"""Three metrics of many models on the same rows, epoch after epoch, for the fleet of runs that are trained together.

Quantities that depend only on the labels are computed once, the metrics share one ranking per call, and buffers are
reused between calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ccmn.metrics.ranking_metrics import (
    Ranking,
    average_precision_from,
    ranking_loss_from,
)

MAX_PAIRWISE_LABELS = 32
"""Up to this number of labels, ranks are computed from all pairs: sorting many short rows is slower."""

HIT_WEIGHT = 64
"""Weight of a true label in a count that stores rank and hits in one number; larger than the number of labels."""

MAX_PAIRS_PER_BLOCK = 1 << 17
"""Maximum number of pairs that are compared at a time. Buffers of this size fit in the CPU cache."""

MAX_SCORES_PER_BLOCK = 1 << 18
"""Maximum number of scores per block on a CPU. Blocks of this size fit in the cache."""


def pooled_wrong_from(ranking: Ranking) -> tuple[Tensor, Tensor]:
    r"""Return the weights of wrong pairs (a tied pair counts 1/2) and of all pairs of each row, for real-valued labels.

    .. math:: \sum_{j \neq k} p_j (1 - p_k) (1[f_j < f_k] + \tfrac12 1[f_j = f_k])
              = \tfrac12 \Big( \sum_j (p_j r_j - h_j) + \sum_{j \neq k} p_j (1 - p_k) \Big)

    Here :math:`p_j` is the value of label j, :math:`r_j` its rank and
    :math:`h_j = \sum_{k: f_k \geq f_j} p_k` its hits. Products of two p cancel on the right-hand side, so the ranking
    is sufficient.
    """
    p, total = ranking.labels, ranking.positives
    pairs = total * (p.shape[-1] - total) - (p * (1 - p)).sum(-1)
    return ((p * ranking.rank - ranking.hits).sum(-1) + pairs) / 2, pairs


class BatchedMetrics:
    """Hamming loss, ranking loss and average precision of score matrices for one label matrix or a stack of them.

    Leading dimensions of the labels ``Y`` (..., n, q) broadcast with those of the scores.

    >>> metrics = BatchedMetrics(torch.tensor([[1, 0, 1, 0]]))
    >>> metrics(torch.tensor([[0.9, 0.8, 0.3, -0.1]]))
    tensor([0.2500, 0.2500, 0.8333], dtype=torch.float64)
    """

    def __init__(self, Y: Tensor) -> None:
        self.Y = Y
        self._pairwise: _PairwiseMetrics | None = None

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the three metrics as means over rows: (..., n, q) -> (3, ...), float64.

        A label is predicted if its score is at least 0.
        """
        scores = scores.expand(torch.broadcast_shapes(self.Y.shape, scores.shape))  # type: ignore[no-untyped-call]
        if scores.device.type != "cpu":
            return _metrics_by_ranking(self.Y, scores).mean(-1)
        if scores.shape[-1] <= MAX_PAIRWISE_LABELS:
            if self._pairwise is None or not self._pairwise.fits(scores):
                self._pairwise = _PairwiseMetrics(self.Y, scores)
            return self._pairwise(scores).mean(-1)
        Y = self.Y[(None,) * (scores.ndim - self.Y.ndim)].expand(len(scores), *[-1] * (scores.ndim - 1))
        return torch.cat([_metrics_by_ranking(Y[block], scores[block]) for block in _blocks(scores)], 1).mean(-1)


def _metrics_by_ranking(Y: Tensor, scores: Tensor) -> Tensor:
    scores = scores.contiguous()
    ranking, wrong = Ranking.of(Y, scores), (scores >= 0) != Y.bool()
    hamming = wrong.sum(-1).double() / Y.shape[-1]
    return torch.stack([hamming, ranking_loss_from(ranking), average_precision_from(ranking)])


def _blocks(scores: Tensor) -> Iterator[slice]:
    size = max(1, MAX_SCORES_PER_BLOCK // max(1, scores[0].numel()))
    for start in range(0, len(scores), size):
        yield slice(start, min(start + size, len(scores)))


class _PairwiseMetrics:
    """The three metrics for few labels on a CPU, from comparisons of all label pairs.

    Labels are the outermost dimension, so that every operation is vectorized over rows.
    """

    def __init__(self, Y: Tensor, like: Tensor) -> None:
        self._shape, self._dtype = like.shape, like.dtype
        self._slices = list(_blocks(like))
        dtype = torch.promote_types(like.dtype, torch.float32)
        with torch.inference_mode(False):  # buffers must also be writable outside inference mode
            y = Y[(None,) * (like.ndim - Y.ndim)].to(dtype).movedim(-1, 0).contiguous()
            self._y = y.expand(-1, len(like), *y.shape[2:])
            self._weights = self._y * HIT_WEIGHT + 1
            positives = self._y.sum(0).double()
            self._n_pairs = (positives * (len(self._y) - positives)).clamp(min=1)
            self._n_positives, self._empty = positives.clamp(min=1), (positives == 0).double()
            shape = like.shape[-1], self._slices[0].stop, *like.shape[1:-1]
            self._f, self._rank, self._hits = torch.empty(3, *shape, dtype=dtype).unbind(0)
            self._ratio, self._divisor = torch.empty(2, *shape, dtype=torch.float64).unbind(0)
            size = max(1, min(len(self._f), MAX_PAIRS_PER_BLOCK // max(1, self._f.numel())))
            self._pair_buffer = self._f.new_empty(size, *self._f.shape)

    def fits(self, scores: Tensor) -> bool:
        """Return whether the buffers have the shape and the dtype for these scores."""
        return (self._shape, self._dtype) == (scores.shape, scores.dtype)

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the three metrics of each row: (3, ..., n)."""
        results = [self._compute(scores[block], block) for block in self._slices]
        return results[0] if len(results) == 1 else torch.cat(results, 1)

    def _compute(self, scores: Tensor, block: slice) -> Tensor:
        """Return the three metrics of one block."""
        buffers = (self._f, self._rank, self._hits, self._ratio, self._divisor)
        f, rank, hits, ratio, divisor = (buffer[:, : len(scores)] for buffer in buffers)
        y = self._y[:, block]
        f.copy_(scores.movedim(-1, 0))
        errors = torch.ge(f, 0, out=hits).ne_(y).sum(0).double()
        sum_not_below(f, self._weights[:, block], self._pair_buffer[:, :, : len(scores)], out=rank)
        torch.mul(rank, 1 / HIT_WEIGHT, out=hits).floor_()
        rank.sub_(hits, alpha=HIT_WEIGHT)
        hits.mul_(y)
        precision = ratio.copy_(hits).div_(divisor.copy_(rank)).sum(0)
        wrong = rank.mul_(y).sub_(hits).sum(0).double()
        # A row without true labels counts 1; its sum of precisions is 0.
        precision = (precision + self._empty[block]) / self._n_positives[block]
        return torch.stack([errors / len(f), wrong / self._n_pairs[block], precision])


def sum_not_below(f: Tensor, weights: Tensor, buffer: Tensor, out: Tensor) -> Tensor:
    """Return for every label j the sum of the weights w_k with f_k >= f_j, (q, ...), by blocks of labels j."""
    size = len(buffer)
    for start in range(0, len(f), size):
        block = f[start : start + size]
        # Comparisons with floating output are vectorized; those with boolean output are not.
        not_below = torch.ge(f, block.unsqueeze(1), out=buffer[: len(block)])
        torch.sum(not_below.mul_(weights), 1, out=out[start : start + size])
    return out
