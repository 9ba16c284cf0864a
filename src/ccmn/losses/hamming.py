"""Hamming surrogate loss: Eq. (3), unbiased Eq. (4), and Eq. (9) for candidate sets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ccmn._validation import check_scores_and_targets
from ccmn.losses.multilabel_loss import MultiLabelLoss, corrected_means, weigh
from ccmn.losses.surrogates import Surrogate, SurrogateLike, phi_of, resolve_surrogate
from ccmn.noise import NoiseModel


def hamming_loss(scores: Tensor, targets: Tensor, surrogate: SurrogateLike = "square") -> Tensor:
    r"""Sum over labels of a margin loss, one value per row.

    .. math:: \sum_{j=1}^{q} p_j\, \phi(f_j) + (1 - p_j)\, \phi(-f_j)

    Eq. (3) of the paper for 0/1 targets :math:`p`; Eq. (4) when they come from ``noise.debias`` (any real number),
    and Eq. (9) when that noise is partial.

    Parameters
    ----------
    scores, targets : tensors of shape (..., q)
        NaN targets contribute nothing.
    surrogate : str or callable
        "square", "hinge", "sigmoid", "logistic", or phi(t) on tensors.

    Examples
    --------
    >>> hamming_loss(torch.tensor([0.5, -1.0]), torch.tensor([1.0, 0.0]), "square")
    tensor(0.2500)
    """
    check_scores_and_targets(scores.shape, targets.shape)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    f, pos, neg = weigh(scores, targets)
    phi = resolve_surrogate(surrogate)
    if not isinstance(phi, Surrogate):
        return (pos * phi(f) + neg * phi(-f)).sum(-1)
    if torch.compiler.is_compiling() or pos.requires_grad:
        return phi.two_sided(f, pos, neg).sum(-1)
    result: Tensor = _HammingRows.apply(f, pos, neg, phi)  # type: ignore[no-untyped-call]
    return result


class _HammingRows(torch.autograd.Function):
    """The derivative is computed with the value, while what it needs is at hand; backward only scales it."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, pos: Tensor, neg: Tensor, surrogate: Surrogate) -> Tensor:
        if not ctx.needs_input_grad[0]:
            return surrogate.two_sided(scores, pos, neg).sum(-1)
        value, slope = surrogate.two_sided_slope(scores, pos, neg)
        ctx.surrogate = surrogate
        ctx.save_for_backward(scores, pos, neg, slope)
        return value.sum(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, pos, neg, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            value = ctx.surrogate.two_sided(scores, pos, neg).sum(-1)
            return *torch.autograd.grad(value, scores, grad, create_graph=True), None, None, None
        by_scores = grad.unsqueeze(-1) * slope
        # Scores may have been broadcast against the targets.
        by_scores = by_scores if by_scores.shape == scores.shape else by_scores.sum_to_size(scores.shape)
        return by_scores, None, None, None


class HammingLoss(MultiLabelLoss):
    r"""The Hamming surrogate loss, unbiased under label noise.

    .. math:: \frac1n \sum_i \sum_j p_{ij}\, \phi(f_{ij}) + (1 - p_{ij})\, \phi(-f_{ij}),
              \qquad p = \mathrm{debias}(\tilde y)

    Parameters
    ----------
    surrogate : str or callable, default "square"
        phi; every convex phi with phi'(0) < 0 is consistent for the Hamming loss (Theorem 3).
    noise : NoiseModel or None
        How the labels given to ``forward`` went wrong; None: they are right.
    reduction : "mean", "sum" or "none"
        Over rows; labels are always summed.
    correction : None, "abs", "relu" or "flood"
        Applied to the parts :math:`R^+_j = \frac1n\sum_i p_{ij}\phi(f_{ij})` and
        :math:`R^-_j = \frac1n\sum_i (1-p_{ij})\phi(-f_{ij})` of every label, which estimate numbers that cannot be
        negative: see :mod:`ccmn.losses.multilabel_loss`.
    flood_level : float
        b of "flood".

    Examples
    --------
    >>> from ccmn import ClassConditionalNoise
    >>> loss = HammingLoss("logistic", noise=ClassConditionalNoise(0.2, 0.1, n_labels=3))
    >>> loss(torch.zeros(2, 3), torch.tensor([[1, 0, 1], [0, 0, 1]]))
    tensor(2.0794)
    """

    def __init__(
        self,
        surrogate: SurrogateLike = "square",
        noise: NoiseModel | None = None,
        reduction: str = "mean",
        correction: str | None = None,
        *,
        flood_level: float = 0.0,
    ) -> None:
        super().__init__(surrogate, noise, reduction, correction, flood_level=flood_level)

    def n_outputs(self, q: int) -> int:
        """q: one output per label."""
        return q

    def decision(self, outputs: Tensor) -> Tensor:
        """The outputs themselves; a label is predicted when its score is >= 0."""
        return outputs

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return hamming_loss(outputs, targets, self.surrogate)

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        f, pos, neg = weigh(outputs.to(targets.dtype), targets)
        phi, observed = phi_of(self.surrogate), ~targets.isnan()
        positive, negative = (
            corrected_means(part, observed, self._g, self.flood_level) for part in (pos * phi(f), neg * phi(-f))
        )
        return positive + negative
