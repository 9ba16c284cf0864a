"""Metrics of label rankings: ranking loss, average precision, coverage and one-error.

Functions with the suffix ``_rows`` return one value per row; functions with the suffix ``_from`` do the same for a
``Ranking`` that several metrics share. They work on tensors with broadcast leading dimensions, without validation and
without host synchronization on accelerators.

>>> Y, scores = torch.tensor([[1, 0], [0, 1]]), torch.randn(5, 2, 2)  # five models, two rows, two labels
>>> ranking = Ranking.of(Y, scores)
>>> ranking_loss_from(ranking).shape, average_precision_from(ranking).shape
(torch.Size([5, 2]), torch.Size([5, 2]))

Counts are stored in float64, in which integers up to 2^53 are exact. If there are at most ``MAX_PAIRWISE_LABELS``
labels, counts are stored in the dtype of the scores, in which all possible values are exact as well.

``BatchedMetrics`` computes three metrics of many models on the same rows, epoch after epoch. Quantities that depend
only on the labels are computed once, the metrics share one ranking per call, and buffers are reused between calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ccmn._containers import Labels
from ccmn._validation import check_choice
from ccmn.metrics.corrected_metrics import (
    corrected_average_precision,
    corrected_coverage,
    corrected_one_error,
    estimate_multilinear,
    pooled_ranking_loss,
    single_label_average_precision,
    single_label_coverage,
    single_label_ranking_loss,
)
from ccmn.metrics.metric import (
    Estimate,
    Noise,
    Value,
    estimate,
    map_row_blocks,
    read_noisy_scores,
    read_scores,
    resolve_noise_model,
)

Ties = Literal["full", "half"]

MAX_PAIRWISE_LABELS = 32
"""Up to this number of labels, ranks are computed from all pairs: sorting many short rows is slower."""

HIT_WEIGHT = 64
"""Weight of a true label in a count that stores rank and hits in one number; larger than the number of labels."""

MAX_PAIRS_PER_BLOCK = 1 << 17
"""Maximum number of pairs that are compared at a time. Buffers of this size fit in the CPU cache."""

MAX_SCORES_PER_BLOCK = 1 << 18
"""Maximum number of scores per block on a CPU. Blocks of this size fit in the cache."""


@overload
def ranking_loss(Y: Labels, scores: Any, ties: Ties = "full", noise: None = None) -> Value: ...
@overload
def ranking_loss(Y: Labels, scores: Any, ties: Ties = "full", *, noise: Noise) -> Estimate: ...
def ranking_loss(Y: Labels, scores: Any, ties: Ties = "full", noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the fraction of label pairs (relevant, irrelevant) in the wrong order; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|P_i| |N_i|} \sum_{j \in P_i} \sum_{k \in N_i}
              \left( 1[f_{ij} < f_{ik}] + c\, 1[f_{ij} = f_{ik}] \right)

    Here :math:`P_i` are the true labels of row i and :math:`N_i` the others. A row without pairs counts 0. With
    ``ties="full"`` this is ``label_ranking_loss`` of scikit-learn.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame or nested lists of shape (n, q)
        Real-valued scores :math:`f`.
    ties : {"full", "half"}, default="full"
        Weight of a tied pair: c = 1 as in scikit-learn, or c = 1/2 as in Eq. (2) of [1]_.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, the pooled loss is estimated: wrong pairs of all rows divided by pairs of all rows, with
        c = 1/2. Both sums are unbiased [2]_ and their ratio is consistent. For a transition matrix, where exactly one
        label of each row is true, the pooled loss equals the mean over rows and the estimate is unbiased.

    Returns
    -------
    float, tensor or Estimate
        Ranking loss; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.
    .. [2] N. Natarajan, I. S. Dhillon, P. Ravikumar and A. Tewari, "Learning with Noisy Labels", NeurIPS, 2013.

    Examples
    --------
    >>> from ccmn.metrics import ranking_loss
    >>> ranking_loss([[1, 0, 0]], [[0.5, 0.5, 0.2]]), ranking_loss([[1, 0, 0]], [[0.5, 0.5, 0.2]], ties="half")
    (0.5, 0.25)
    """
    check_choice(ties, "ties", ("full", "half"))
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        if resolve_noise_model(noise, noisy).flips_independent:
            return estimate(
                noisy,
                noise,
                lambda p, weights: pooled_ranking_loss(p, f, weights),
                "consistent",
                metric="ranking_loss",
                undefined="the corrected number of relevant-irrelevant label pairs is not positive",
            )
        return estimate(
            noisy,
            noise,
            lambda p, weights: single_label_ranking_loss(p, f, weights),
            "unbiased",
            metric="ranking_loss",
            complete_rows=True,
        )
    true, real, to_output = read_scores(Y, scores)
    return to_output(map_row_blocks(partial(ranking_loss_rows, ties=ties), true, real).mean())


def ranking_loss_rows(Y: Tensor, scores: Tensor, ties: Ties = "full") -> Tensor:
    """Return the ranking loss of each row: (..., q) and (..., q) -> (...), float64."""
    return ranking_loss_from(Ranking.of(Y, scores), ties)


def ranking_loss_from(ranking: Ranking, ties: Ties = "full") -> Tensor:
    """Return the ranking loss of each row of a ranking."""
    labels, positives = ranking.labels, ranking.positives
    # For each true label: the number of false labels that are not below it.
    wrong = (labels * (ranking.rank - ranking.hits)).sum(-1).double()
    if ties == "half":
        # For each false label: the number of true labels strictly below it. The two counts differ by the ties.
        strictly_wrong = ((1 - labels) * (positives.unsqueeze(-1) - ranking.hits)).sum(-1)
        wrong = (wrong + strictly_wrong) / 2
    pairs = positives * (labels.shape[-1] - positives)
    return wrong / pairs.clamp(min=1)


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


@overload
def average_precision(Y: Labels, scores: Any, noise: None = None) -> Value: ...
@overload
def average_precision(Y: Labels, scores: Any, noise: Noise) -> Estimate: ...
def average_precision(Y: Labels, scores: Any, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the label ranking average precision; higher is better.

    For each true label, the precision is the fraction of true labels among all labels that rank at least as high. It is
    averaged over the true labels of each row and over rows:

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|P_i|} \sum_{j \in P_i}
              \frac{|\{k \in P_i : f_{ik} \geq f_{ij}\}|}{|\{k : f_{ik} \geq f_{ij}\}|}

    Here :math:`P_i` are the true labels of row i. A row in which no label or every label is true counts 1. This is
    ``label_ranking_average_precision_score`` of scikit-learn [1]_, not its ``average_precision_score``.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame or nested lists of shape (n, q)
        Real-valued scores :math:`f`.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, the estimate is unbiased if noise rates and q are small enough for the number of rows,
        otherwise approximate; the user guide on metrics states the condition. Rows with NaN are excluded.

    Returns
    -------
    float, tensor or Estimate
        Average precision; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is
        given.

    References
    ----------
    .. [1] G. Tsoumakas, I. Katakis and I. Vlahavas, "Mining Multi-Label Data", in Data Mining and Knowledge Discovery
       Handbook, Springer, 2010.

    Examples
    --------
    >>> from ccmn.metrics import average_precision
    >>> average_precision([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]])
    0.8333333333333333
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        return estimate_multilinear(
            noisy, f, noise, corrected_average_precision, single_label_average_precision, metric="average_precision"
        )
    true, real, to_output = read_scores(Y, scores)
    return to_output(map_row_blocks(average_precision_rows, true, real).mean())


def average_precision_rows(Y: Tensor, scores: Tensor) -> Tensor:
    """Return the average precision of each row: (..., q) and (..., q) -> (...), float64."""
    return average_precision_from(Ranking.of(Y, scores))


def average_precision_from(ranking: Ranking) -> Tensor:
    """Return the average precision of each row of a ranking."""
    # Both operands are converted first: dividing tensors of different dtypes is ten times as slow.
    total = ((ranking.labels * ranking.hits).double() / ranking.rank.double()).sum(-1)
    return torch.where(ranking.positives > 0, total / ranking.positives, 1.0)


@overload
def coverage(Y: Labels, scores: Any, normalized: bool = False, noise: None = None) -> Value: ...
@overload
def coverage(Y: Labels, scores: Any, normalized: bool = False, *, noise: Noise) -> Estimate: ...
def coverage(Y: Labels, scores: Any, normalized: bool = False, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the number of top-ranked labels needed to include all true labels; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} c_i, \qquad
              c_i = \left|\{k : f_{ik} \geq \min_{j \in P_i} f_{ij}\}\right|

    Here :math:`P_i` are the true labels of row i. A row without true labels counts 0. This is ``coverage_error`` of
    scikit-learn [1]_.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame or nested lists of shape (n, q)
        Real-valued scores :math:`f`.
    normalized : bool, default=False
        Whether to average :math:`\max(c_i - 1, 0) / q` instead of :math:`c_i`, as in [2]_.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, the estimate is unbiased if noise rates and q are small enough for the number of rows,
        otherwise approximate; the user guide on metrics states the condition. Rows with NaN are excluded.

    Returns
    -------
    float, tensor or Estimate
        Coverage; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] G. Tsoumakas, I. Katakis and I. Vlahavas, "Mining Multi-Label Data", in Data Mining and Knowledge Discovery
       Handbook, Springer, 2010.
    .. [2] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> from ccmn.metrics import coverage
    >>> coverage([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]])
    3.0
    >>> coverage([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]], normalized=True)
    0.5
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        q = f.shape[-1]
        return estimate_multilinear(
            noisy,
            f,
            noise,
            partial(corrected_coverage, normalized=normalized),
            partial(single_label_coverage, normalized=normalized),
            metric="coverage",
            bounds=(0.0, (q - 1) / q if normalized else float(q)),
        )
    true, real, to_output = read_scores(Y, scores)
    return to_output(map_row_blocks(partial(coverage_rows, normalized=normalized), true, real).mean())


def coverage_rows(Y: Tensor, scores: Tensor, normalized: bool = False) -> Tensor:
    """Return the coverage of each row, without sorting: (..., q) and (..., q) -> (...), float64."""
    true = Y.bool()
    lowest = torch.where(true, scores, torch.inf).amin(-1, keepdim=True)
    # Without true labels the lowest score is infinity, and scores can be infinite: multiply the count by 0.
    count = (scores >= lowest).sum(-1, dtype=torch.float64) * true.any(-1)
    return (count - 1).clamp(min=0) / Y.shape[-1] if normalized else count


@overload
def one_error(Y: Labels, scores: Any, noise: None = None) -> Value: ...
@overload
def one_error(Y: Labels, scores: Any, noise: Noise) -> Estimate: ...
def one_error(Y: Labels, scores: Any, noise: Noise | None = None) -> Value | Estimate:
    r"""Compute the fraction of rows whose top-ranked label is not a true label; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \Big( 1 - \frac{1}{|T_i|} \sum_{j \in T_i} y_{ij} \Big),
              \qquad T_i = \arg\max_j f_{ij}

    If several labels tie at the top, :math:`T_i` contains all of them; the result is the expected value under random
    tie-breaking. A row without true labels counts 1. The metric was introduced in [1]_.

    Parameters
    ----------
    Y : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y` in {0, 1}. With ``noise``, noisy labels; NaN where not observed.
    scores : array, tensor, DataFrame or nested lists of shape (n, q)
        Real-valued scores :math:`f`.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. If given, debiased labels replace y. The estimate is unbiased. Rows with NaN are excluded.

    Returns
    -------
    float, tensor or Estimate
        One-error; a 0-dimensional tensor if an argument is a tensor, an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] R. E. Schapire and Y. Singer, "BoosTexter: A Boosting-based System for Text Categorization", Machine
       Learning 39(2-3), 2000.

    Examples
    --------
    >>> from ccmn.metrics import one_error
    >>> one_error([[1, 0, 0], [1, 0, 0]], [[0.9, 0.2, 0.1], [0.5, 0.5, 0.1]])
    0.25
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_one_error(p, f, weights),
            "unbiased",
            metric="one_error",
            complete_rows=True,
        )
    true, real, to_output = read_scores(Y, scores)
    return to_output(map_row_blocks(one_error_rows, true, real).mean())


def one_error_rows(Y: Tensor, scores: Tensor) -> Tensor:
    """Return the one-error of each row, without sorting: (..., q) and (..., q) -> (...), float64."""
    top = scores == scores.amax(-1, keepdim=True)
    return 1 - (top * Y).sum(-1, dtype=torch.float64) / top.sum(-1, dtype=torch.float64)


@dataclass(frozen=True)
class Ranking:
    """Ranks of the labels of each row, computed once and shared by several metrics.

    Tied labels share the largest rank number among them. ``Ranking.of`` needs one sort: O(q log q) time and O(q) memory
    per row. For at most ``MAX_PAIRWISE_LABELS`` labels it compares all pairs instead. It does not synchronize with an
    accelerator.

    Parameters
    ----------
    labels : tensor of shape (..., q)
        Labels, 0/1 or debiased, floating. They are in the order of the other fields, which need not be that of the
        columns.
    positives : tensor of shape (...)
        Number of true labels of the row.
    rank : tensor of shape (..., q)
        Number of labels with this score or a higher one.
    hits : tensor of shape (..., q)
        Number of true labels among those ``rank`` labels.

    Examples
    --------
    >>> ranking = Ranking.of(torch.tensor([1, 0, 0]), torch.tensor([0.5, 0.5, 0.2]))
    >>> ranking.rank.tolist(), ranking.hits.tolist()
    ([2.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    """

    labels: Tensor
    positives: Tensor
    rank: Tensor
    hits: Tensor

    @classmethod
    def of(cls, Y: Tensor, scores: Tensor) -> Ranking:
        """Rank the labels Y (..., q) by scores (..., q); leading dimensions broadcast."""
        pairwise = scores.shape[-1] <= MAX_PAIRWISE_LABELS
        if pairwise and scores.is_cuda:
            return cls._compare(Y, scores)
        # Counting stores two integers in one number, which requires integer labels.
        if pairwise and scores.device.type == "cpu" and not Y.is_floating_point():
            return cls._count(Y, scores)
        return cls._sort(Y, scores)

    @classmethod
    def _sort(cls, Y: Tensor, scores: Tensor) -> Ranking:
        """Rank labels by sorting."""
        shape = torch.broadcast_shapes(Y.shape, scores.shape)  # type: ignore[no-untyped-call]
        ascending, order = scores.sort(dim=-1)
        lower = _count_lower(ascending)
        labels = Y.double().expand(shape).gather(-1, order.expand(shape))
        positives = labels.sum(-1)
        missed = (labels.cumsum(-1) - labels).gather(-1, lower.expand(shape))
        return cls(labels, positives, rank=shape[-1] - lower, hits=positives.unsqueeze(-1) - missed)

    @classmethod
    def _compare(cls, Y: Tensor, scores: Tensor) -> Ranking:
        """Rank labels by comparing all pairs, with few kernel launches: O(q^2) memory per row."""
        not_below = (scores.unsqueeze(-2) >= scores.unsqueeze(-1)).double()
        labels = Y.double().expand(torch.broadcast_shapes(Y.shape, scores.shape))  # type: ignore[no-untyped-call]
        hits = (not_below * labels.unsqueeze(-2)).sum(-1)
        return cls(labels, labels.sum(-1), rank=not_below.sum(-1), hits=hits)

    @classmethod
    def _count(cls, Y: Tensor, scores: Tensor) -> Ranking:
        """Rank labels by comparing all pairs on a CPU. Rows are the innermost dimension, for vectorization."""
        shape = torch.broadcast_shapes(Y.shape, scores.shape)  # type: ignore[no-untyped-call]
        dtype = torch.promote_types(scores.dtype, torch.float32)
        f = scores.to(dtype).expand(shape).movedim(-1, 0).contiguous()
        y = Y.reshape((1,) * (len(shape) - Y.ndim) + Y.shape).to(dtype).movedim(-1, 0).contiguous()
        # One count stores both numbers: rank + HIT_WEIGHT * hits.
        rank = sum_not_below(f, y * HIT_WEIGHT + 1, allocate_pair_buffer(f), out=torch.empty_like(f))
        hits = torch.floor(rank / HIT_WEIGHT)
        rank.sub_(hits, alpha=HIT_WEIGHT)
        return cls(y.movedim(0, -1), y.sum(0).double(), rank=rank.movedim(0, -1), hits=hits.movedim(0, -1))


def _count_lower(ascending: Tensor) -> Tensor:
    """Return for each of the sorted scores the number of strictly lower scores."""
    differs = ascending[..., 1:] != ascending[..., :-1]
    positions = torch.arange(ascending.shape[-1], device=ascending.device).expand(ascending.shape)
    if ascending.device.type == "cpu" and bool(differs.all()):
        return positions  # No ties. On an accelerator, this check would need a synchronization.
    starts = torch.nn.functional.pad(differs, (1, 0), value=True)
    return torch.where(starts, positions, 0).cummax(-1).values


def allocate_pair_buffer(f: Tensor) -> Tensor:
    """Return the buffer in which ``sum_not_below`` compares a block of labels of f (q, ...) with all labels."""
    size = max(1, min(len(f), MAX_PAIRS_PER_BLOCK // max(1, f.numel())))
    return f.new_empty(size, *f.shape)


def sum_not_below(f: Tensor, weights: Tensor, buffer: Tensor, out: Tensor) -> Tensor:
    """Return for every label j the sum of the weights w_k with f_k >= f_j: (q, ...) and (q, ...) -> (q, ...)."""
    size = len(buffer)
    for start in range(0, len(f), size):
        block = f[start : start + size]
        # Comparisons with floating output are vectorized; those with boolean output are not.
        not_below = torch.ge(f, block.unsqueeze(1), out=buffer[: len(block)])
        torch.sum(not_below.mul_(weights), 1, out=out[start : start + size])
    return out


class BatchedMetrics:
    """Hamming loss, ranking loss and average precision of score matrices for one label matrix or a stack of them.

    Parameters
    ----------
    Y : tensor of shape (..., n, q)
        True labels in {0, 1}. Leading dimensions broadcast with the leading dimensions of the scores.

    Examples
    --------
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
        Y = _add_dimensions(self.Y, scores).expand(len(scores), *[-1] * (scores.ndim - 1))
        return torch.cat([_metrics_by_ranking(Y[block], scores[block]) for block in _blocks(scores)], 1).mean(-1)


def _metrics_by_ranking(Y: Tensor, scores: Tensor) -> Tensor:
    """Return the three metrics of each row from one ranking: (3, ..., n)."""
    scores = scores.contiguous()
    ranking, wrong = Ranking.of(Y, scores), (scores >= 0) != Y.bool()
    hamming = wrong.sum(-1).double() / Y.shape[-1]
    return torch.stack([hamming, ranking_loss_from(ranking), average_precision_from(ranking)])


def _add_dimensions(Y: Tensor, scores: Tensor) -> Tensor:
    """Return the labels with as many dimensions as the scores."""
    return Y.reshape((1,) * (scores.ndim - Y.ndim) + Y.shape)


def _blocks(scores: Tensor) -> Iterator[slice]:
    """Yield slices of the first dimension with at most ``MAX_SCORES_PER_BLOCK`` scores, but at least one entry."""
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
            y = _add_dimensions(Y, like).to(dtype).movedim(-1, 0).contiguous()
            self._y = y.expand(-1, len(like), *y.shape[2:])
            self._weights = self._y * HIT_WEIGHT + 1
            positives = self._y.sum(0).double()
            self._n_pairs = (positives * (len(self._y) - positives)).clamp(min=1)
            self._n_positives, self._empty = positives.clamp(min=1), (positives == 0).double()
            shape = like.shape[-1], self._slices[0].stop, *like.shape[1:-1]
            self._f, self._rank, self._hits = torch.empty(3, *shape, dtype=dtype).unbind(0)
            self._ratio, self._divisor = torch.empty(2, *shape, dtype=torch.float64).unbind(0)
            self._pair_buffer = allocate_pair_buffer(self._f)

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
