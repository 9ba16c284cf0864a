"""F1: the harmonic mean of precision and recall, pooled (micro) or label by label (macro)."""

from __future__ import annotations

from typing import overload

import torch

from ccmn._containers import Labels
from ccmn.metrics.base import Value, read_labels, read_noisy_labels
from ccmn.metrics.corrected import corrected_macro_f1, corrected_micro_f1
from ccmn.metrics.estimate import Estimate, Noise, estimate, model_of


@overload
def micro_f1(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def micro_f1(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def micro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""F1 of all entries taken together; higher is better.

    .. math:: F_1 = \frac{2 \sum_{ij} y_{ij} h_{ij}}{\sum_{ij} y_{ij} + \sum_{ij} h_{ij}}

    0 where no label is true and none predicted (scikit-learn's ``f1_score`` with ``zero_division=0``).

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Consistent: debiased labels
        stand for y in the sums. NaN where there are fewer positives than none on balance.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> micro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.8
    """
    if noise is not None:
        noisy, h = read_noisy_labels(Y, Y_pred, noise)
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_micro_f1(p, h, weights),
            "consistent",
            metric="micro_f1",
            undefined="the corrected number of positive labels is negative",
        )
    true, predicted, answer = read_labels(Y, Y_pred)
    return answer(f1_over(true, predicted, dim=(-2, -1)))


@overload
def macro_f1(Y: Labels, Y_pred: Labels, noise: None = None) -> Value: ...
@overload
def macro_f1(Y: Labels, Y_pred: Labels, noise: Noise) -> Estimate: ...
def macro_f1(Y: Labels, Y_pred: Labels, noise: Noise | None = None) -> Value | Estimate:
    r"""F1 of each label, averaged over labels; higher is better.

    .. math:: \frac{1}{q} \sum_{j=1}^{q} \frac{2 \sum_i y_{ij} h_{ij}}{\sum_i y_{ij} + \sum_i h_{ij}}

    A label that is never true and never predicted counts 0 (scikit-learn's ``f1_score`` with ``zero_division=0``).

    Parameters
    ----------
    Y, Y_pred : arrays, tensors, DataFrames or nested lists of shape (n, q), values 0 and 1
        True labels :math:`y` and predicted labels :math:`h`.
    noise : noise model or estimated rates, optional
        Y is noisy (NaN: not observed), by this model or at these rates: the value is estimated for the clean labels
        and comes as an ``Estimate``. Consistent: debiased labels
        stand for y in the sums. A label with no positives on balance counts 0, like one that has none; where that
        number is negative, the estimate is called approximate.

    Returns
    -------
    float, or a 0-dim tensor on the same device where a tensor was given; with ``noise`` an ``Estimate``.

    Examples
    --------
    >>> macro_f1([[1, 0], [1, 0]], [[1, 0], [1, 1]])
    0.5
    """
    if noise is not None:
        noisy, h = read_noisy_labels(Y, Y_pred, noise)
        # A label whose corrected number of positives is negative counts 0 without evidence for that value.
        negative = (model_of(noise, noisy).debias(noisy).nansum(0) < 0).any()
        return estimate(
            noisy,
            noise,
            lambda p, weights: corrected_macro_f1(p, h, weights),
            "approximate" if bool(negative) else "consistent",
            metric="macro_f1",
        )
    true, predicted, answer = read_labels(Y, Y_pred)
    return answer(f1_over(true, predicted, dim=(-2,)).mean(-1))


def f1_over(Y: torch.Tensor, Y_pred: torch.Tensor, dim: tuple[int, ...]) -> torch.Tensor:
    """F1 of the entries along ``dim`` taken together, in float64; leading dimensions broadcast."""
    both = (Y * Y_pred).sum(dim, dtype=torch.float64)
    either = Y.sum(dim, dtype=torch.float64) + Y_pred.sum(dim, dtype=torch.float64)
    return 2 * both / either.clamp(min=1)
