"""Metrics of label rankings: ranking loss, average precision, coverage and one-error.

The functions ``*_from`` return one value per row of a ``Ranking``, which several metrics share. They work on tensors
with broadcast leading dimensions, without validation and without host synchronization on accelerators. Counts are
stored in float64, in which integers up to 2^53 are exact.

>>> Y, scores = torch.tensor([[1, 0], [0, 1]]), torch.randn(5, 2, 2)  # five models, two rows, two labels
>>> ranking = Ranking.of(Y, scores)
>>> ranking_loss_from(ranking).shape, average_precision_from(ranking).shape
(torch.Size([5, 2]), torch.Size([5, 2]))
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from ccmn._containers import Labels
from ccmn._validation import check_choice
from ccmn.metrics import corrected_metrics as corrected
from ccmn.metrics.metric import Form, Noise, evaluate, mean_of_row_blocks
from ccmn.noise import NoiseModel

Ties = Literal["full", "half"]

MAX_PAIRWISE_LABELS = 32
"""Up to this number of labels, ranks are computed from all pairs on a GPU: sorting needs more kernel launches."""


def ranking_loss(Y: Labels, scores: Any, ties: Ties = "full", noise: Noise | None = None) -> float:
    r"""Compute the fraction of label pairs (relevant, irrelevant) in the wrong order; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|P_i| |N_i|} \sum_{j \in P_i} \sum_{k \in N_i}
              \left( 1[f_{ij} < f_{ik}] + c\, 1[f_{ij} = f_{ik}] \right)

    Here :math:`P_i` are the true labels of row i and :math:`N_i` the others; a row without pairs counts 0. With full
    ties this is ``label_ranking_loss`` of scikit-learn.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, nested lists or, for Y, sparse matrix of shape (n, q)
        True labels 0 or 1, with ``noise`` noisy ones (NaN if not observed), and real-valued scores :math:`f`.
    ties : {"full", "half"}, default="full"
        Weight of a tied pair: c = 1 as in scikit-learn, or c = 1/2 as in Eq. (2) of [1]_.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The pooled loss, wrong pairs of all rows divided by pairs of all rows with c = 1/2, has a consistent
        estimate. It is unbiased for a transition matrix, where exactly one label of each row is true.

    Returns
    -------
    float or Estimate
        Ranking loss; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> from ccmn.metrics import ranking_loss
    >>> ranking_loss([[1, 0, 0]], [[0.5, 0.5, 0.2]]), ranking_loss([[1, 0, 0]], [[0.5, 0.5, 0.2]], ties="half")
    (0.5, 0.25)
    """
    check_choice(ties, "ties", ("full", "half"))
    plain = partial(mean_of_row_blocks, lambda y, f: ranking_loss_from(Ranking.of(y, f), ties))
    return evaluate("ranking_loss", Y, scores, noise, _ranking_loss_form, plain)


def _ranking_loss_form(Y: Tensor, scores: Tensor, model: NoiseModel) -> Form:
    if not model.flips_independent:
        return Form(corrected.single_label_ranking_loss, "unbiased", complete_rows=True)
    reason = "the corrected number of relevant-irrelevant label pairs is not positive"
    return Form(corrected.quotient(corrected.pooled_ranking_sums), "consistent", reason)


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


def average_precision(Y: Labels, scores: Any, noise: Noise | None = None) -> float:
    r"""Compute the label ranking average precision; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|P_i|} \sum_{j \in P_i}
              \frac{|\{k \in P_i : f_{ik} \geq f_{ij}\}|}{|\{k : f_{ik} \geq f_{ij}\}|}

    Here :math:`P_i` are the true labels of row i; a row in which none or all are true counts 1. This is
    ``label_ranking_average_precision_score`` of scikit-learn [1]_.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, nested lists or, for Y, sparse matrix of shape (n, q)
        True labels 0 or 1, with ``noise`` noisy ones (NaN if not observed), and real-valued scores :math:`f`.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The estimate is unbiased if noise rates and q are small enough for n (see the user guide on
        metrics), otherwise approximate. Rows with NaN are excluded.

    Returns
    -------
    float or Estimate
        Average precision; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] G. Tsoumakas et al., "Mining Multi-Label Data", Data Mining and Knowledge Discovery Handbook, Springer, 2010.

    Examples
    --------
    >>> from ccmn.metrics import average_precision
    >>> average_precision([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]])
    0.8333333333333333
    """
    plain = partial(mean_of_row_blocks, lambda y, f: average_precision_from(Ranking.of(y, f)))
    form = partial(corrected.multilinear_form, corrected.average_precision, corrected.single_label_average_precision)
    return evaluate("average_precision", Y, scores, noise, form, plain)


def average_precision_from(ranking: Ranking) -> Tensor:
    """Return the average precision of each row of a ranking."""
    # Both operands are converted first: dividing tensors of different dtypes is ten times as slow.
    total = ((ranking.labels * ranking.hits).double() / ranking.rank.double()).sum(-1)
    return torch.where(ranking.positives > 0, total / ranking.positives, 1.0)


def coverage(Y: Labels, scores: Any, normalized: bool = False, noise: Noise | None = None) -> float:
    r"""Compute the number of top-ranked labels needed to include all true labels; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} c_i, \qquad
              c_i = \left|\{k : f_{ik} \geq \min_{j \in P_i} f_{ij}\}\right|

    Here :math:`P_i` are the true labels of row i. A row without true labels counts 0. This is ``coverage_error`` of
    scikit-learn [1]_.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, nested lists or, for Y, sparse matrix of shape (n, q)
        True labels 0 or 1, with ``noise`` noisy ones (NaN if not observed), and real-valued scores :math:`f`.
    normalized : bool, default=False
        Whether to average :math:`\max(c_i - 1, 0) / q` instead of :math:`c_i`, as in [2]_.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The estimate is unbiased if noise rates and q are small enough for n (see the user guide on
        metrics), otherwise approximate. Rows with NaN are excluded.

    Returns
    -------
    float or Estimate
        Coverage; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] G. Tsoumakas et al., "Mining Multi-Label Data", Data Mining and Knowledge Discovery Handbook, Springer, 2010.
    .. [2] M.-K. Xie and S.-J. Huang, "CCMN", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> from ccmn.metrics import coverage
    >>> coverage([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]])
    3.0
    >>> coverage([[1, 0, 1, 0]], [[0.9, 0.8, 0.3, 0.1]], normalized=True)
    0.5
    """
    plain = partial(mean_of_row_blocks, partial(coverage_rows, normalized=normalized))
    multilinear = partial(corrected.coverage, normalized=normalized)
    form = partial(
        corrected.multilinear_form, multilinear, partial(corrected.single_label_coverage, normalized=normalized)
    )
    return evaluate("coverage", Y, scores, noise, form, plain)


def coverage_rows(Y: Tensor, scores: Tensor, normalized: bool = False) -> Tensor:
    """Return the coverage of each row, without sorting: (..., q) and (..., q) -> (...), float64."""
    true = Y.bool()
    lowest = torch.where(true, scores, torch.inf).amin(-1, keepdim=True)
    # Without true labels the lowest score is infinity, and scores can be infinite: multiply the count by 0.
    count = (scores >= lowest).sum(-1, dtype=torch.float64) * true.any(-1)
    return (count - 1).clamp(min=0) / Y.shape[-1] if normalized else count


def one_error(Y: Labels, scores: Any, noise: Noise | None = None) -> float:
    r"""Compute the fraction of rows whose top-ranked label is not a true label; lower is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \Big( 1 - \frac{1}{|T_i|} \sum_{j \in T_i} y_{ij} \Big),
              \qquad T_i = \arg\max_j f_{ij}

    All labels that tie at the top are in :math:`T_i`, as in the mean over random tie-breaking. A row without true
    labels counts 1 [1]_.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, nested lists or, for Y, sparse matrix of shape (n, q)
        True labels :math:`y`, with ``noise`` noisy ones (NaN if not observed), and real-valued scores :math:`f`.
    noise : noise model, NoiseRates or None, default=None
        Noise of Y. The estimate is unbiased. Rows with NaN are excluded.

    Returns
    -------
    float or Estimate
        One-error; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] R. E. Schapire and Y. Singer, "BoosTexter", Machine Learning 39(2-3), 2000.

    Examples
    --------
    >>> from ccmn.metrics import one_error
    >>> one_error([[1, 0, 0], [1, 0, 0]], [[0.9, 0.2, 0.1], [0.5, 0.5, 0.1]])
    0.25
    """
    return evaluate(
        "one_error",
        Y,
        scores,
        noise,
        Form(corrected.quotient(corrected.one_error_sums), "unbiased", complete_rows=True),
    )


@dataclass(frozen=True)
class Ranking:
    """Ranks of the labels of each row, computed once and shared by several metrics.

    ``labels`` (..., q), 0/1 or debiased, are floating and in the order of the other fields, which need not be that of
    Y. ``rank`` (..., q) is the number of labels with this score or a higher one, ``hits`` (..., q) the number of true
    labels among them, and ``positives`` (...) the number of true labels of the row.

    ``Ranking.of`` needs one sort: O(q log q) time and O(q) memory per row. For at most ``MAX_PAIRWISE_LABELS`` labels
    on a GPU it compares all pairs instead, without synchronization.

    >>> ranking = Ranking.of(torch.tensor([1, 0, 0]), torch.tensor([0.5, 0.5, 0.2]))
    >>> ranking.rank.tolist(), ranking.hits.tolist()
    ([3, 2, 2], [1.0, 1.0, 1.0])
    """

    labels: Tensor
    positives: Tensor
    rank: Tensor
    hits: Tensor

    @classmethod
    def of(cls, Y: Tensor, scores: Tensor) -> Ranking:
        """Rank the labels Y (..., q) by scores (..., q); leading dimensions broadcast."""
        if scores.is_cuda and scores.shape[-1] <= MAX_PAIRWISE_LABELS:
            return cls._compare(Y, scores)
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


def _count_lower(ascending: Tensor) -> Tensor:
    """Return for each of the sorted scores the number of strictly lower scores."""
    differs = ascending[..., 1:] != ascending[..., :-1]
    positions = torch.arange(ascending.shape[-1], device=ascending.device).expand(ascending.shape)
    if ascending.device.type == "cpu" and bool(differs.all()):
        return positions  # No ties. On an accelerator, this check would need a synchronization.
    starts = torch.nn.functional.pad(differs, (1, 0), value=True)
    return torch.where(starts, positions, 0).cummax(-1).values
