r"""Corrections that keep an unbiased risk from running away below zero.

An unbiased loss has negative weights, so a flexible model can send it towards minus infinity. Its parts, such as
:math:`R^+_j = \frac1n \sum_i p_{ij} \phi(f_{ij})`, estimate numbers that cannot be negative; a correction g is put
around each part, :math:`L = \sum_j g(R^+_j) + g(R^-_j)`. Nothing changes while every part is above zero (above the
level, for "flood"). The result is no longer unbiased, but consistent.

With a symmetric phi (the sigmoid) none is needed: there the loss equals, up to a constant that depends on the labels
alone, an ordinary loss with positive weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ccmn.catalogue import Catalogue

Correction = Callable[[Tensor, float], Tensor]

CORRECTIONS: Catalogue[Correction] = Catalogue(
    "correction",
    {
        "abs": lambda z, level: z.abs(),  # goes back up below zero (Lu et al. 2020)
        "relu": lambda z, level: z.clamp_min(0),  # stops learning on this batch (Lu et al. 2020)
        "flood": lambda z, level: (z - level).abs() + level,  # goes back up below the level (Ishida et al. 2020)
    },
)


def corrected_means(parts: Tensor, observed: Tensor, correction: Correction, level: float) -> Tensor:
    """Sum over labels of g(mean over the rows in which the label is observed), weighted by their share.

    Parameters
    ----------
    parts : tensor (..., n, q), 0 where a label is not observed
    observed : tensor (..., n, q) of bool

    Returns
    -------
    Tensor (...), equal to the mean over rows of the plain sum wherever g changes nothing.
    """
    count = observed.sum(-2)
    means = parts.sum(-2) / count.clamp_min(1)
    return (correction(means, level) * count).sum(-1) / parts.shape[-2]


def correction_slopes(parts: Tensor, observed: Tensor, correction: Correction, level: float) -> tuple[Tensor, Tensor]:
    """The value of ``corrected_means`` and g'(mean) of every label (..., 1, q), both without gradient."""
    with torch.enable_grad():
        leaf = parts.detach().requires_grad_()
        value = corrected_means(leaf, observed, correction, level)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    # d value / d part is g' / n in every row.
    return value.detach(), slope[..., :1, :] * parts.shape[-2]
