"""Ranks of few labels by counting, pair by pair, on a CPU: label by label, so that operations run along many rows.

Average precision over the ranking of a row's labels.

How well scores rank true labels above the others: ranking loss (Eq. (2) of the paper), coverage, one-error.

Counts are kept in float64, where whole numbers up to 2^53 are exact: all pairs of 94 million labels. Those of few
labels are kept in the type of the scores, where all that can occur are exact too.
"""

from __future__ import annotations

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
    estimate_products,
    exclusive_average_precision,
    exclusive_coverage,
    exclusive_ranking_loss,
    pooled_ranking_loss,
)
from ccmn.metrics.metric import Estimate, Noise, Value, estimate, in_blocks, model_of, read_noisy_scores, read_scores

FEW_LABELS = 32
"""Up to so many labels are compared pair by pair: sorting many short rows is slow."""
HIT = 64
"""What a true label adds to a count that holds two at once; more than there are labels to count."""
_PAIRS_AT_ONCE = 1 << 17
"""Pairs that are compared at a time: they stay in a CPU's cache."""


def pairs_in_cache(f: Tensor) -> Tensor:
    """Room for ``sum_not_below`` to compare some labels of f (q, ...) with all."""
    some = max(1, min(len(f), _PAIRS_AT_ONCE // max(1, f.numel())))
    return f.new_empty(some, *f.shape)


def sum_not_below(f: Tensor, weights: Tensor, room: Tensor, out: Tensor) -> Tensor:
    """The sum of the weights w_k over all k with f_k >= f_j, for every j: (q, ...) and (q, ...) to (q, ...)."""
    some = len(room)
    for start in range(0, len(f), some):
        part = f[start : start + some]
        # Comparisons into floating numbers are vectorised, into booleans they are not.
        not_below = torch.ge(f, part.unsqueeze(1), out=room[: len(part)])
        torch.sum(not_below.mul_(weights), 1, out=out[start : start + some])
    return out


@overload
def average_precision(Y: Labels, scores: Any, noise: None = None) -> Value: ...
@overload
def average_precision(Y: Labels, scores: Any, noise: Noise) -> Estimate: ...
def average_precision(Y: Labels, scores: Any, noise: Noise | None = None) -> Value | Estimate:
    r"""At the place of each true label: the part of true labels down to there; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|P_i|} \sum_{j \in P_i}
              \frac{|\{k \in P_i : f_{ik} \geq f_{ij}\}|}{|\{k : f_{ik} \geq f_{ij}\}|}

    with :math:`P_i` the true labels of row i. A row with no label, or with all of them, counts 1. This is
    scikit-learn's ``label_ranking_average_precision_score``, not its ``average_precision_score``.

    Parameters
    ----------
    Y : array, tensor, DataFrame or nested lists of shape (n, q), values 0 and 1
    scores : the same, real values :math:`f`
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Unbiased where rates and q
        are small enough for the rows at hand (``ccmn.metrics.corrected_metrics``), else approximate. Rows with NaN are left
        out.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> average_precision([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]])
    0.8333333333333333
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        return estimate_products(
            noisy, f, noise, corrected_average_precision, exclusive_average_precision, metric="average_precision"
        )
    true, real, answer = read_scores(Y, scores)
    return answer(in_blocks(average_precision_rows, true, real).mean())


def average_precision_rows(Y: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The average precision of each row: (..., q) and (..., q), broadcast, to (...) in float64."""
    return average_precision_from(Ranking.of(Y, scores))


def average_precision_from(ranking: Ranking) -> torch.Tensor:
    """``average_precision_rows`` from a ranking at hand."""
    # Both to float64 first: a division of unlike types is ten times as slow.
    total = ((ranking.labels * ranking.hits).double() / ranking.rank.double()).sum(-1)
    return torch.where(ranking.positives > 0, total / ranking.positives, 1.0)


Ties = Literal["full", "half"]


@dataclass(frozen=True)
class Ranking:
    """Every label with its rank: worked out once, for any metric that needs it.

    Tied labels share their rank, the lowest place among them. ``Ranking.of`` takes one sort, O(q log q) time and O(q)
    memory per row (few labels are compared pair by pair: sorting many short rows is slow), and reads nothing back from
    a device.

    Parameters
    ----------
    labels : tensor of shape (..., q)
        The labels, 0/1 or debiased ones, floating, in an order of ours (that of their scores, where they were sorted).
    positives : tensor of shape (...)
        Number of true labels in the row.
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

    labels: torch.Tensor
    positives: torch.Tensor
    rank: torch.Tensor
    hits: torch.Tensor

    @classmethod
    def of(cls, Y: torch.Tensor, scores: torch.Tensor) -> Ranking:
        """Rank the labels Y (..., q) by scores (..., q); leading dimensions broadcast."""
        few = scores.shape[-1] <= FEW_LABELS
        if few and scores.is_cuda:
            return cls._compare(Y, scores)
        # Counting holds two whole numbers in one, which labels that are not whole would spoil.
        if few and scores.device.type == "cpu" and not Y.is_floating_point():
            return cls._count(Y, scores)
        return cls._sort(Y, scores)

    @classmethod
    def _sort(cls, Y: torch.Tensor, scores: torch.Tensor) -> Ranking:
        shape = torch.broadcast_shapes(Y.shape, scores.shape)  # type: ignore[no-untyped-call]
        lowest_first, order = scores.sort(dim=-1)
        lower = _count_lower(lowest_first)
        labels = Y.double().expand(shape).gather(-1, order.expand(shape))
        positives = labels.sum(-1)
        missed = (labels.cumsum(-1) - labels).gather(-1, lower.expand(shape))
        return cls(labels, positives, rank=shape[-1] - lower, hits=positives.unsqueeze(-1) - missed)

    @classmethod
    def _compare(cls, Y: torch.Tensor, scores: torch.Tensor) -> Ranking:
        """The same, pair by pair, for an accelerator: O(q^2), in a handful of operations."""
        not_below = (scores.unsqueeze(-2) >= scores.unsqueeze(-1)).double()
        labels = Y.double().expand(torch.broadcast_shapes(Y.shape, scores.shape))  # type: ignore[no-untyped-call]
        hits = (not_below * labels.unsqueeze(-2)).sum(-1)
        return cls(labels, labels.sum(-1), rank=not_below.sum(-1), hits=hits)

    @classmethod
    def _count(cls, Y: torch.Tensor, scores: torch.Tensor) -> Ranking:
        """The same, pair by pair, for a CPU: with rows innermost, where many are taken by one instruction."""
        shape = torch.broadcast_shapes(Y.shape, scores.shape)  # type: ignore[no-untyped-call]
        dtype = torch.promote_types(scores.dtype, torch.float32)
        f = scores.to(dtype).expand(shape).movedim(-1, 0).contiguous()
        y = Y.reshape((1,) * (len(shape) - Y.ndim) + Y.shape).to(dtype).movedim(-1, 0).contiguous()
        # One count holds both, rank + 64 hits.
        rank = sum_not_below(f, y * HIT + 1, pairs_in_cache(f), out=torch.empty_like(f))
        hits = torch.floor(rank / HIT)
        rank.sub_(hits, alpha=HIT)
        return cls(y.movedim(0, -1), y.sum(0).double(), rank=rank.movedim(0, -1), hits=hits.movedim(0, -1))


def _count_lower(lowest_first: torch.Tensor) -> torch.Tensor:
    """For each of the sorted scores, how many are strictly lower: the place at which its ties begin."""
    differs = lowest_first[..., 1:] != lowest_first[..., :-1]
    places = torch.arange(lowest_first.shape[-1], device=lowest_first.device).expand(lowest_first.shape)
    if lowest_first.device.type == "cpu" and bool(differs.all()):
        return places  # no ties, which a CPU can tell at once
    begins = torch.nn.functional.pad(differs, (1, 0), value=True)
    return torch.where(begins, places, 0).cummax(-1).values


@overload
def ranking_loss(Y: Labels, scores: Any, ties: Ties = "full", noise: None = None) -> Value: ...
@overload
def ranking_loss(Y: Labels, scores: Any, ties: Ties = "full", *, noise: Noise) -> Estimate: ...
def ranking_loss(Y: Labels, scores: Any, ties: Ties = "full", noise: Noise | None = None) -> Value | Estimate:
    r"""Part of the pairs (true label, other label) in the wrong order, averaged over rows; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|P_i| |N_i|} \sum_{j \in P_i} \sum_{k \in N_i}
              \left( 1[f_{ij} < f_{ik}] + c\, 1[f_{ij} = f_{ik}] \right)

    with :math:`P_i` the true labels of row i and :math:`N_i` the others. A row without such pairs (no label, or all
    of them) counts 0 and stays in the average, as in scikit-learn's ``label_ranking_loss``.

    Parameters
    ----------
    Y : array, tensor, DataFrame or nested lists of shape (n, q), values 0 and 1
    scores : the same, real values :math:`f`
    ties : "full" or "half"
        What a tied pair counts: c = 1 as in scikit-learn, or c = 1/2 as in Eq. (2) of the paper.
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. It is then pooled, wrong
        pairs of all rows over pairs of all rows, ties 1/2: consistent. (Where a transition matrix says that
        exactly one label of a row is true, the two agree, and the estimate is unbiased.)

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> ranking_loss([[1, 0, 0]], [[0.5, 0.5, 0.2]])
    0.5
    >>> ranking_loss([[1, 0, 0]], [[0.5, 0.5, 0.2]], ties="half")
    0.25
    """
    check_choice(ties, "ties", ("full", "half"))
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        if not model_of(noise, noisy).flips_independent:
            return estimate(
                noisy,
                noise,
                lambda p, weights: exclusive_ranking_loss(p, f, weights),
                "unbiased",
                metric="ranking_loss",
                complete_rows=True,
            )
        return estimate(
            noisy,
            noise,
            lambda p, weights: pooled_ranking_loss(p, f, weights),
            "consistent",
            metric="ranking_loss",
            undefined="the corrected number of relevant-irrelevant label pairs is not positive",
        )
    true, real, answer = read_scores(Y, scores)
    return answer(in_blocks(partial(ranking_loss_rows, ties=ties), true, real).mean())


def ranking_loss_rows(Y: torch.Tensor, scores: torch.Tensor, ties: Ties = "full") -> torch.Tensor:
    """The ranking loss of each row: (..., q) and (..., q), broadcast, to (...) in float64."""
    return ranking_loss_from(Ranking.of(Y, scores), ties)


def ranking_loss_from(ranking: Ranking, ties: Ties = "full") -> torch.Tensor:
    """``ranking_loss_rows`` from a ranking at hand."""
    labels, positives = ranking.labels, ranking.positives
    # Seen from a true label: the other labels that are not below it.
    wrong = (labels * (ranking.rank - ranking.hits)).sum(-1).double()
    if ties == "half":
        # Seen from another label: the true labels strictly below it. The two counts differ by the ties.
        strictly_wrong = ((1 - labels) * (positives.unsqueeze(-1) - ranking.hits)).sum(-1)
        wrong = (wrong + strictly_wrong) / 2
    pairs = positives * (labels.shape[-1] - positives)
    return wrong / pairs.clamp(min=1)


def pooled_wrong_from(ranking: Ranking) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Per row the weight of wrong pairs (ties 1/2) and of all pairs, for real-valued labels p: (...) each.

    .. math:: \sum_{j \neq k} p_j (1 - p_k) (1[f_j < f_k] + \tfrac12 1[f_j = f_k])
              = \tfrac12 \Big( \sum_j (p_j r_j - h_j) + \sum_{j \neq k} p_j (1 - p_k) \Big)

    with :math:`r_j` the rank and :math:`h_j = \sum_{k: f_k \geq f_j} p_k` the hits of label j: products of two p
    cancel, so that a ranking is all it takes.
    """
    p, total = ranking.labels, ranking.positives
    pairs = total * (p.shape[-1] - total) - (p * (1 - p)).sum(-1)
    return ((p * ranking.rank - ranking.hits).sum(-1) + pairs) / 2, pairs


@overload
def coverage(Y: Labels, scores: Any, normalised: bool = False, noise: None = None) -> Value: ...
@overload
def coverage(Y: Labels, scores: Any, normalised: bool = False, *, noise: Noise) -> Estimate: ...
def coverage(Y: Labels, scores: Any, normalised: bool = False, noise: Noise | None = None) -> Value | Estimate:
    r"""How far down the ranking one has to go to meet every true label; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} c_i, \qquad
              c_i = \left|\{k : f_{ik} \geq \min_{j \in P_i} f_{ij}\}\right|

    with :math:`P_i` the true labels of row i; a row without any counts 0. This is scikit-learn's ``coverage_error``.

    Parameters
    ----------
    Y : array, tensor, DataFrame or nested lists of shape (n, q), values 0 and 1
    scores : the same, real values :math:`f`
    normalised : bool
        :math:`\max(c_i - 1, 0) / q` in place of :math:`c_i`, as in the journal version of the paper.
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Unbiased where rates and q
        are small enough for the rows at hand (``ccmn.metrics.corrected_metrics``), else approximate. Rows with NaN are left
        out.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> coverage([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]])
    3.0
    >>> coverage([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]], normalised=True)
    0.5
    """
    if noise is not None:
        noisy, f = read_noisy_scores(Y, scores, noise)
        ways = (partial(way, normalised=normalised) for way in (corrected_coverage, exclusive_coverage))
        q = f.shape[-1]
        bounds = (0.0, (q - 1) / q if normalised else float(q))
        return estimate_products(noisy, f, noise, *ways, metric="coverage", bounds=bounds)
    true, real, answer = read_scores(Y, scores)
    return answer(in_blocks(partial(coverage_rows, normalised=normalised), true, real).mean())


def coverage_rows(Y: torch.Tensor, scores: torch.Tensor, normalised: bool = False) -> torch.Tensor:
    """The coverage of each row: (..., q) and (..., q), broadcast, to (...) in float64. It needs no sort."""
    true = Y.bool()
    lowest = torch.where(true, scores, torch.inf).amin(-1, keepdim=True)
    # Without a true label the lowest is infinity, which an infinite score reaches: hence the factor.
    count = (scores >= lowest).sum(-1, dtype=torch.float64) * true.any(-1)
    return (count - 1).clamp(min=0) / Y.shape[-1] if normalised else count


@overload
def one_error(Y: Labels, scores: Any, noise: None = None) -> Value: ...
@overload
def one_error(Y: Labels, scores: Any, noise: Noise) -> Estimate: ...
def one_error(Y: Labels, scores: Any, noise: Noise | None = None) -> Value | Estimate:
    r"""Part of the rows whose top-scored label is not a true one; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \Big( 1 - \frac{1}{|T_i|} \sum_{j \in T_i} y_{ij} \Big),
              \qquad T_i = \arg\max_j f_{ij}

    Where several labels tie at the top, :math:`T_i` holds them all: the expected value when the tie is broken at
    random. A row without true labels counts 1.

    Parameters
    ----------
    Y : array, tensor, DataFrame or nested lists of shape (n, q), values 0 and 1
    scores : the same, real values :math:`f`
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Unbiased. Rows with NaN are
        left out.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
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
    true, real, answer = read_scores(Y, scores)
    return answer(in_blocks(one_error_rows, true, real).mean())


def one_error_rows(Y: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The one-error of each row: (..., q) and (..., q), broadcast, to (...) in float64. It needs no sort."""
    top = scores == scores.amax(-1, keepdim=True)
    return 1 - (top * Y).sum(-1, dtype=torch.float64) / top.sum(-1, dtype=torch.float64)
