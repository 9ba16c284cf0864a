r"""Metrics of the k highest-ranked labels: precision, recall, nDCG and propensity-scored precision.

:math:`T_i` are the labels of row i with the k highest scores. Of labels with equal scores, the one with the lower index
comes first. In a sparse score matrix only stored entries are scores; a row with fewer than k of them has fewer labels
in :math:`T_i`, and the empty positions count as misses. Rows without true labels count 0, as in pyxclib.

Blocks of rows are reduced to their top k labels and their positive labels, so that memory does not grow with n q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ccmn._containers import Labels, is_sparse, label_names_of, to_dense_array
from ccmn._messages import warn
from ccmn._validation import (
    check_count,
    check_matrix_pair,
    check_no_nan,
    check_numeric,
    check_rates_known,
    check_same_labels,
    check_zero_one,
)
from ccmn.metrics.metric import (
    MAX_BLOCK_ENTRIES,
    Noise,
    differentiate,
    resolve_noise_model,
    to_tensor,
)
from ccmn.noise import ClassConditionalNoise
from ccmn.noise.class_conditional import debias_labels


def precision_at_k(Y: Labels, scores: Any, k: int, noise: Noise | None = None) -> float:
    r"""Compute the fraction of true labels among the k highest-ranked labels; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{k} \sum_{j \in T_i} y_{ij}

    Here :math:`T_i` are the k labels with the highest scores; ties are broken by the label index.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Labels :math:`y`, with ``noise`` noisy ones (NaN if not observed), and scores, as in :func:`recall_at_k`.
    k : int
        Number of labels that are selected in each row.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y. The estimate is unbiased. Rows with NaN are excluded.

    Returns
    -------
    float or Estimate
        Precision; an :class:`Estimate` if ``noise`` is given.

    See Also
    --------
    psp_at_k : The same, divided by the best value that a ranking of the observed labels can reach.

    Examples
    --------
    >>> from ccmn import MissingNoise
    >>> from ccmn.metrics import precision_at_k
    >>> Y, scores = [[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]]
    >>> precision_at_k(Y, scores, k=2)
    0.5
    >>> precision_at_k(Y, scores, k=2, noise=MissingNoise([0.0, 0.5, 0.0, 0.0]))
    Estimate(value=0.75, se=0.25, status='unbiased')
    """
    return _ratio(Y, scores, k, noise, "precision_at_k")


def recall_at_k(Y: Labels, scores: Any, k: int) -> float:
    r"""Compute the fraction of the true labels that are among the k highest-ranked labels; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{\max(1, |Y_i|)} \sum_{j \in T_i} y_{ij}

    Here :math:`T_i` are the k labels with the highest scores and :math:`Y_i` the true labels. Rows without any count 0.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y`, 0 or 1, and scores; only stored entries of a sparse matrix are scores.
    k : int
        Number of labels that are selected in each row.

    Returns
    -------
    float
        Recall.

    Examples
    --------
    >>> from ccmn.metrics import recall_at_k
    >>> recall_at_k([[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]], k=2)
    0.75
    """
    top = _read_top_labels(Y, scores, k)
    return float((top.hits.sum(1) / top.counts().clamp_min(1)).mean())


def ndcg_at_k(Y: Labels, scores: Any, k: int) -> float:
    r"""Compute the normalized discounted cumulative gain of the k highest-ranked labels; higher is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \Big( \sum_{r=1}^{\min(k, |Y_i|)} \frac{1}{\log_2(r + 1)} \Big)^{-1}
              \sum_{r=1}^{k} \frac{y_{i, t_{ir}}}{\log_2(r + 1)}

    Here :math:`t_{ir}` is the label at rank r of row i and :math:`Y_i` are the true labels; a row without any counts 0
    [1]_.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        True labels :math:`y`, 0 or 1, and scores; only stored entries of a sparse matrix are scores.
    k : int
        Number of labels that are selected in each row.

    Returns
    -------
    float
        nDCG.

    References
    ----------
    .. [1] K. Järvelin and J. Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", ACM TOIS 20(4), 2002.

    Examples
    --------
    >>> from ccmn.metrics import ndcg_at_k
    >>> ndcg_at_k([[1, 0, 0, 0], [0, 1, 0, 1]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]], k=2)
    1.0
    """
    top = _read_top_labels(Y, scores, k)
    discounts = 1 / torch.arange(2, k + 2, dtype=torch.float64).log2()
    ideal = pad(discounts.cumsum(0), (1, 0))[top.counts().clamp_max(k).long()]
    return float((top.hits @ discounts / ideal.clamp_min(1)).mean())


def psp_at_k(Y: Labels, scores: Any, k: int, noise: Noise | None = None) -> float:
    r"""Compute the propensity-scored precision of the k highest-ranked labels; higher is better.

    .. math:: PSP = \frac{\sum_i \sum_{j \in T_i} \tilde y_{ij} / \pi_j}
              {\sum_i \max_{|S| \le k} \sum_{j \in S} \tilde y_{ij} / \pi_j}

    Here :math:`T_i` are the k labels with the highest scores, and the propensity :math:`\pi_j = 1 - \rho_{pos,j}` is
    the probability that a true label j is observed [1]_. The denominator is the best value that a ranking can reach on
    the observed labels. Rows without labels add 0 to both sums.

    Parameters
    ----------
    Y, scores : array, tensor, DataFrame, sparse matrix or nested lists of shape (n, q)
        Labels :math:`y`, with ``noise`` noisy ones (NaN if not observed), and scores, as in :func:`recall_at_k`.
    k : int
        Number of labels that are selected in each row.
    noise : class-conditional noise model, NoiseRates or None, default=None
        Noise of Y, usually a ``MissingNoise`` as from :func:`ccmn.noise.propensity_noise`; without it all propensities
        are 1. Debiased labels replace :math:`\tilde y_{ij} / \pi_j`; both are equal if no labels are added. Rows with
        NaN are excluded. The result compares models; its status is "approximate", because it does not estimate its
        value on the true labels if rows have more than k of them.

    Returns
    -------
    float or Estimate
        Propensity-scored precision; an :class:`Estimate` if ``noise`` is given.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu and M. Varma, "Extreme Multi-label Loss Functions", KDD, 2016.

    Examples
    --------
    >>> from ccmn import MissingNoise
    >>> from ccmn.metrics import psp_at_k
    >>> Y, scores = [[1, 0, 1, 0], [0, 1, 0, 0]], [[0.9, 0.8, 0.3, 0.1], [0.1, 0.9, 0.2, 0.3]]
    >>> round(psp_at_k(Y, scores, k=2), 3)
    0.667
    >>> round(psp_at_k(Y, scores, k=2, noise=MissingNoise([0.0, 0.5, 0.0, 0.0])).value, 3)
    0.75
    """
    if noise is not None and getattr(getattr(noise, "noise", noise), "rho_neg", np.zeros(1)).any():
        warn(
            "psp_at_k is divided by the best ranking of the observed labels, some of which were added (rho_neg > 0): "
            "use precision_at_k for an unbiased estimate"
        )
    return _ratio(Y, scores, k, noise, "psp_at_k")


@dataclass(frozen=True)
class TopLabels:
    """Top k labels and positive labels of each row.

    ``index`` (n, k) are the labels in the order of their ranks, or ``n_labels`` where a row has fewer than k scores;
    ``hits`` are the labels 0 or 1 at these positions, in float64. ``row``, ascending, and ``label`` are the positions
    of all labels that are 1.
    """

    index: Tensor
    hits: Tensor
    row: Tensor
    label: Tensor
    n_labels: int

    def counts(self) -> Tensor:
        """Return the number of positive labels of each row, in float64."""
        return torch.bincount(self.row, minlength=len(self.index)).double()


def _ratio(Y: Labels, scores: Any, k: int, noise: Noise | None, metric: str) -> float:
    """Return precision or PSP of true labels or, with noise, its estimate from debiased labels."""
    propensity = metric == "psp_at_k"

    def value(weights: Tensor, rates: Sequence[Tensor]) -> Tensor:
        # Debiased values of the labels 0 and 1, with a last entry for the empty positions of ``index``.
        zero, one = (pad(debias_labels(y(rates[0]), *rates), (0, 1)) for y in (torch.zeros_like, torch.ones_like))
        gain = (zero[top.index] + top.hits * (one - zero)[top.index]).sum(1)
        total = (weights * (_best_gain(top, one[top.label]) if propensity else k)).sum()
        return torch.where(total > 0, (weights * gain).sum() / total, torch.nan)

    with torch.inference_mode(False):  # tensors of inference mode cannot be differentiated
        top = _read_top_labels(Y, scores, k, noise)
        weights = torch.ones(len(top.index), dtype=torch.float64)
        if noise is None:
            return float(value(weights, torch.zeros(2, top.n_labels, dtype=torch.float64).unbind()).nan_to_num(0.0))
        found = differentiate(value, noise, weights, "approximate" if propensity else "unbiased")
    if math.isnan(found):
        reason = "no label is 1" if len(top.index) else "no row has all labels observed"
        warn(f"{metric} cannot be estimated and is NaN (n_samples={len(top.index)}): {reason}")
    return found


def _best_gain(top: TopLabels, value: Tensor) -> Tensor:
    """Return for each row the largest sum of the values of at most k of its positive labels."""
    order = torch.from_numpy(np.lexsort((-value.detach().numpy(), top.row.numpy())))
    rank = torch.arange(len(order)) - torch.searchsorted(top.row, top.row)
    # Rows are ascending, so the sorted values belong to the same rows as before.
    return value.new_zeros(len(top.index)).index_add(0, top.row, value[order] * (rank < top.index.shape[1]))


def _read_top_labels(Y: Labels, scores: Any, k: int, noise: Noise | None = None) -> TopLabels:
    """Check the arguments and return the top k labels and the positive labels of all rows."""
    k = check_count(k, "k")
    check_same_labels(("Y", label_names_of(Y)), ("scores", label_names_of(scores)))
    labels, real = _as_matrix(Y, "Y"), _as_matrix(scores, "scores")
    check_matrix_pair(labels, real, ("Y", "scores"))
    n, q = labels.shape
    if k > q:
        raise ValueError(f"k must be at most the number of labels ({q}); got {k}")
    if noise is not None:
        model = resolve_noise_model(noise, labels)
        check_rates_known(model, ClassConditionalNoise)
        check_same_labels(("Y", label_names_of(Y)), ("noise", model.label_names))
    widest = max(k, int(np.diff(real.indptr).max())) if is_sparse(labels) and is_sparse(real) else q
    size = max(1, MAX_BLOCK_ENTRIES // widest)
    parts = [
        _read_block(labels[start : start + size], real[start : start + size], start, k, noise is not None)
        for start in range(0, n, size)
    ]
    first = np.cumsum([0, *(len(part.index) for part in parts)]).tolist()
    rows = torch.cat([part.row + start for part, start in zip(parts, first)])
    index, hits, label = (torch.cat([getattr(part, name) for part in parts]) for name in ("index", "hits", "label"))
    return TopLabels(index, hits, rows, label, q)


def _as_matrix(values: Any, argument: str) -> Any:
    """Return a CSR matrix, a tensor or a numpy array; large arrays are not copied."""
    if is_sparse(values):
        check_numeric(values.data, argument)
        return values.tocsr()
    try:
        return values.detach() if isinstance(values, Tensor) else to_dense_array(values)
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must be a matrix of numbers, with rows of equal length") from None


def _read_block(Y: Any, scores: Any, start: int, k: int, noisy: bool) -> TopLabels:
    """Return the top k labels and the positive labels of a block of rows, without rows that contain NaN."""
    n, q = Y.shape
    labels = _canonical_csr(Y if is_sparse(Y) else to_tensor(Y, "Y").double().cpu().numpy())
    row, unknown = np.repeat(np.arange(n), np.diff(labels.indptr)), np.isnan(labels.data)
    if unknown.any() and not noisy:
        first = int(row[unknown][0])
        check_no_nan(labels[[first]].toarray(), "Y", start + first)
    check_zero_one(labels.data[~unknown], "Y")
    positive, complete = labels.data == 1, np.bincount(row[unknown], minlength=n) == 0
    row, label = row[positive], labels.indices[positive]
    if is_sparse(scores):
        index = _select_stored(_canonical_csr(scores), k, start)
    else:
        real = to_tensor(scores, "scores").cpu()
        check_no_nan(real, "scores", start)
        index = _select((real if real.dtype in (torch.float32, torch.float64) else real.double()).numpy(), k)
    # Positions as single numbers, ascending; the label q of empty positions is never found.
    keys, wanted = row * (q + 1) + label, np.arange(n)[:, None] * (q + 1) + index
    hits = np.append(keys, -1)[np.searchsorted(keys, wanted)] == wanted
    kept = complete[row]
    row, label = (np.cumsum(complete) - 1)[row[kept]], label[kept]
    top, rows, columns = (torch.from_numpy(part.astype(np.int64)) for part in (index[complete], row, label))
    return TopLabels(top, torch.from_numpy(hits[complete]).double(), rows, columns, q)


def _canonical_csr(matrix: Any) -> scipy.sparse.csr_array:
    """Return a copy in float64 or float32 with sorted labels and without duplicates."""
    csr = scipy.sparse.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    return csr if csr.dtype == np.float32 else csr.astype(np.float64)


def _select_stored(scores: scipy.sparse.csr_array, k: int, first_row: int) -> NDArray[np.int64]:
    """Return the top k stored labels of each row (n, k); the number of labels where fewer are stored."""
    counts = np.diff(scores.indptr)
    stored = np.arange(max(k, int(counts.max(initial=0)))) < counts[:, None]
    padded, labels = np.full(stored.shape, -np.inf, dtype=scores.dtype), np.full(stored.shape, scores.shape[1])
    padded[stored], labels[stored] = scores.data, scores.indices
    check_no_nan(padded, "scores", first_row)
    # Padding has the lowest score and the last positions, so that it comes after stored scores of -inf.
    return np.take_along_axis(labels, _select(padded, k), 1)


def _select(scores: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return the positions of the k highest scores of each row, by descending score and ascending position."""
    width = scores.shape[1]
    kth = np.partition(scores, width - k, axis=1)[:, width - k, None]
    above, tied = scores > kth, scores == kth
    room = k - above.sum(1, keepdims=True)
    selected = above | (tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= room))
    position = np.nonzero(selected)[1].reshape(-1, k)
    order = np.argsort(-np.take_along_axis(scores, position, 1), axis=1, kind="stable")
    return np.take_along_axis(position, order, 1)
