"""F1: the harmonic mean of precision and recall, pooled (micro) or label by label (macro)."""

from __future__ import annotations

import torch

from ccmn.data.containers import Labels
from ccmn.metrics.base import Value, read_labels


def micro_f1(Y: Labels, Y_pred: Labels) -> Value:
    r"""F1 of all entries taken together; higher is better.

    .. math:: F_1 = \frac{2 \sum_{ij} y_{ij} h_{ij}}{\sum_{ij} y_{ij} + \sum_{ij} h_{ij}}

    0 where no label is true and none predicted (scikit-learn's ``f1_score`` with ``zero_division=0``).

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given.

    Examples
    --------
    >>> micro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.8
    """
    true, predicted, answer = read_labels(Y, Y_pred)
    return answer(f1_over(true, predicted, dim=(-2, -1)))


def macro_f1(Y: Labels, Y_pred: Labels) -> Value:
    r"""F1 of each label, averaged over labels; higher is better.

    .. math:: \frac{1}{q} \sum_{j=1}^{q} \frac{2 \sum_i y_{ij} h_{ij}}{\sum_i y_{ij} + \sum_i h_{ij}}

    A label that is never true and never predicted counts 0 (scikit-learn's ``f1_score`` with ``zero_division=0``).

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given.

    Examples
    --------
    >>> macro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.5
    """
    true, predicted, answer = read_labels(Y, Y_pred)
    return answer(f1_over(true, predicted, dim=(-2,)).mean(-1))


def f1_over(Y: torch.Tensor, Y_pred: torch.Tensor, dim: tuple[int, ...]) -> torch.Tensor:
    """F1 of the entries along ``dim`` taken together, in float64; leading dimensions broadcast."""
    both = (Y * Y_pred).sum(dim, dtype=torch.float64)
    either = Y.sum(dim, dtype=torch.float64) + Y_pred.sum(dim, dtype=torch.float64)
    return 2 * both / either.clamp(min=1)
