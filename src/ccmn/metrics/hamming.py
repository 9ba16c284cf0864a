"""Hamming loss: the part of the labels that is wrong, Eq. (1) of the paper."""

from __future__ import annotations

from typing import overload

import torch

from ccmn.data.containers import Labels
from ccmn.metrics.base import Value, in_blocks, read_labels
from ccmn.metrics.estimate import Estimate, debias_true, estimate_mean
from ccmn.noise import NoiseModel


@overload
def hamming_loss(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def hamming_loss(Y: Labels, Y_pred: Labels, noise: NoiseModel) -> Estimate: ...
def hamming_loss(Y: Labels, Y_pred: Labels, noise: NoiseModel | None = None) -> Value | Estimate:
    r"""Part of the entries that differ, Eq. (1) of the paper over q; lower is better.

    .. math:: \frac{1}{n q} \sum_{i=1}^{n} \sum_{j=1}^{q} 1[h_{ij} \neq y_{ij}]

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.
    noise : NoiseModel, optional
        Y is noisy, by this model: the value is estimated for the clean labels and comes as an ``Estimate``. Unbiased:
        the mean of :math:`p_j (1 - h_j) + (1 - p_j) h_j` with debiased labels p.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given.

    Examples
    --------
    >>> hamming_loss([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    0.25
    """
    true, predicted, answer = read_labels(Y, Y_pred)
    if noise is not None:
        p, h = debias_true(true, noise), predicted.double()
        return estimate_mean((p + (1 - 2 * p) * h).mean(-1))
    return answer(in_blocks(hamming_rows, true, predicted).mean())


def hamming_rows(Y: torch.Tensor, Y_pred: torch.Tensor) -> torch.Tensor:
    """The Hamming loss of each row: (..., q) and (..., q), broadcast, to (...) in float64."""
    return (Y_pred != Y).sum(-1, dtype=torch.float64) / Y.shape[-1]
