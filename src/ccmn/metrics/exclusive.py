"""Metrics of rows with exactly one true label, which noise turns into another one (a transition matrix).

Labels of a row do not flip independently there, so no product of debiased labels is unbiased. None is needed: a product
of two different labels is 0 when exactly one is true, and what is left is linear in the labels, hence unbiased.

Labels p are (n, q), scores (..., n, q), row weights (n,); (...) in float64 comes back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccmn.metrics.corrected import mean_of_rows


def exclusive_ranking_loss(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""The part of the other labels above the true one, ties 1/2: the mean of :math:`\sum_j p_j a_j / (q - 1)`."""
    not_below, above = _ranks(scores)
    wrong = (not_below - 1 + above) / 2 / max(1, scores.shape[-1] - 1)
    return mean_of_rows(_of_the_true_one(p, wrong), p, weights)


def exclusive_average_precision(p: Tensor, scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""The mean of :math:`\sum_j p_j / r_j`, with :math:`r_j` the number of labels not below j."""
    return mean_of_rows(_of_the_true_one(p, 1 / _ranks(scores)[0]), p, weights)


def exclusive_coverage(p: Tensor, scores: Tensor, weights: Tensor | None = None, *, normalised: bool = False) -> Tensor:
    r"""The mean of :math:`\sum_j p_j r_j`; normalised, of :math:`\sum_j p_j (r_j - 1) / q`."""
    depth = _ranks(scores)[0]
    depth = (depth - 1) / scores.shape[-1] if normalised else depth
    return mean_of_rows(_of_the_true_one(p, depth), p, weights)


def _ranks(scores: Tensor) -> tuple[Tensor, Tensor]:
    """For each label the number of labels not below it, itself included, and that of labels strictly above it."""
    ordered = scores.sort(dim=-1).values.contiguous()
    scores, q = scores.contiguous(), scores.shape[-1]
    lower, up_to = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    return (q - lower).double(), (q - up_to).double()


def _of_the_true_one(p: Tensor, values: Tensor) -> Tensor:
    return (p.double().nan_to_num(0.0) * values).sum(-1)
