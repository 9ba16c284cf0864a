"""Hamming loss: the part of the labels that is wrong, Eq. (1) of the paper."""

from __future__ import annotations

from typing import overload

import torch

from ccmn._containers import Labels
from ccmn.metrics.base import Value, in_blocks, read_labels, read_noisy_labels
from ccmn.metrics.corrected import corrected_hamming
from ccmn.metrics.estimate import Estimate, Noise, estimate


@overload
def hamming_loss(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def hamming_loss(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def hamming_loss(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""Part of the entries that differ, Eq. (1) of the paper over q; lower is better.

    .. math:: \frac{1}{n q} \sum_{i=1}^{n} \sum_{j=1}^{q} 1[h_{ij} \neq y_{ij}]

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Unbiased: the mean of
        :math:`p_j (1 - h_j) + (1 - p_j) h_j` over the entries observed, with debiased labels p.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> hamming_loss([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    0.25
    """
    if noise is not None:
        noisy, h = read_noisy_labels(Y, Y_pred, noise)
        return estimate(
            noisy, noise, lambda p, weights: corrected_hamming(p, h, weights), "unbiased", metric="hamming_loss"
        )
    true, predicted, answer = read_labels(Y, Y_pred)
    return answer(in_blocks(hamming_rows, true, predicted).mean())


def hamming_rows(Y: torch.Tensor, Y_pred: torch.Tensor) -> torch.Tensor:
    """The Hamming loss of each row: (..., q) and (..., q), broadcast, to (...) in float64."""
    return (Y_pred.bool() != Y.bool()).sum(-1).double() / Y.shape[-1]
