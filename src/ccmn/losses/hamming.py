"""Hamming surrogate loss of the CCMN paper: Eq. (3), the unbiased Eq. (4), and Eq. (9) for candidate sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ccmn._validation import check_scores_and_targets
from ccmn.losses._fast.cuda import can_fuse, fused_loss
from ccmn.losses.multilabel_loss import MultiLabelLoss, corrected_means, with_weights
from ccmn.losses.surrogates import Surrogate, SurrogateLike, phi_of, resolve_surrogate
from ccmn.noise import NoiseModel


def hamming_loss(scores: Tensor, targets: Tensor, surrogate: SurrogateLike = "square") -> Tensor:
    r"""Return the Hamming surrogate loss of every row: the sum over labels of a margin loss.

    .. math:: \sum_{j=1}^{q} p_j\, \phi(f_j) + (1 - p_j)\, \phi(-f_j)

    With 0/1 targets :math:`p` this is Eq. (3) of the paper [1]_. With debiased labels, ``noise.debias(Y_noisy)``, it
    is the unbiased loss of Eq. (4), and Eq. (9) for ``PartialNoise``.

    Parameters
    ----------
    scores : Tensor of shape (..., q)
        Scores f of the labels.
    targets : Tensor of shape (..., q)
        Targets p, any real numbers. A NaN target does not contribute.
    surrogate : {"square", "hinge", "sigmoid", "logistic"} or callable, default="square"
        Margin loss phi. A callable maps a tensor t to phi(t).

    Returns
    -------
    Tensor of shape (...)
        Loss of every row, in float32 or higher precision.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.

    Examples
    --------
    >>> hamming_loss(torch.tensor([0.5, -1.0]), torch.tensor([1.0, 0.0]), "square")
    tensor(0.2500)
    """
    check_scores_and_targets(scores.shape, targets.shape)
    phi = resolve_surrogate(surrogate)
    if isinstance(phi, Surrogate) and targets.shape == scores.shape and _can_fuse(scores, targets, phi):
        return fused_loss(scores, targets, None, phi, partial(_eager_loss, phi=phi), loss="hamming")
    return _eager_loss(scores, targets, phi)


def _can_fuse(scores: Tensor, targets: Tensor, phi: Surrogate | Callable[[Tensor], Tensor]) -> bool:
    """Return whether the fused kernels are faster; torch.compile fuses the operations of the eager loss itself."""
    return not torch.compiler.is_compiling() and can_fuse(scores, targets, phi)


def _eager_loss(scores: Tensor, targets: Tensor, phi: Surrogate | Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``hamming_loss`` without fused kernels."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    result: Tensor
    same = isinstance(phi, Surrogate) and scores.shape == targets.shape and not targets.requires_grad
    if same and torch.compiler.is_compiling():
        result = _CompiledRows.apply(scores, targets, phi)  # type: ignore[no-untyped-call]
        return result
    f, pos, neg = with_weights(scores, targets)
    if not isinstance(phi, Surrogate):
        return (pos * phi(f) + neg * phi(-f)).sum(-1)
    if same and phi.name == "logistic" and f is scores:  # no NaN: the operator of PyTorch accepts all real targets
        return binary_cross_entropy_with_logits(f, pos, reduction="none").sum(-1)
    if torch.compiler.is_compiling() or pos.requires_grad:
        return phi.two_sided(f, pos, neg).sum(-1)
    result = _HammingRows.apply(f, pos, neg, phi)  # type: ignore[no-untyped-call]
    return result


class _HammingRows(torch.autograd.Function):
    """Hamming loss of rows; ``forward`` also computes the derivative, which shares terms with the value."""

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
        # Scores may have been broadcast to the shape of the targets.
        by_scores = by_scores if by_scores.shape == scores.shape else by_scores.sum_to_size(scores.shape)
        return by_scores, None, None, None


class _CompiledRows(torch.autograd.Function):
    """The same for torch.compile: one pass computes value and derivative; the compiler would save masks instead."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, surrogate: Surrogate) -> Tensor:
        value, slope = surrogate.two_sided_slope(*with_weights(scores, targets))
        ctx.save_for_backward(slope)
        return value.sum(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None


class HammingLoss(MultiLabelLoss):
    r"""Hamming surrogate loss, unbiased under label noise [1]_.

    .. math:: \frac1n \sum_i \sum_j p_{ij}\, \phi(f_{ij}) + (1 - p_{ij})\, \phi(-f_{ij}),
              \qquad p = \mathrm{debias}(\tilde y)

    Parameters
    ----------
    surrogate : {"square", "hinge", "sigmoid", "logistic"} or callable, default="square"
        Margin loss phi. Every convex phi with phi'(0) < 0 is consistent for the Hamming loss (Theorem 3 of [1]_).
    noise : NoiseModel or None, default=None
        Noise model of the labels passed to ``forward``. ``None`` means labels without noise.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over rows.
    correction : {"abs", "relu"} or None, default=None
        Risk correction: function g that keeps the estimated risk from becoming negative. It is applied to the parts
        :math:`R^+_j = \frac1n\sum_i p_{ij}\phi(f_{ij})` and :math:`R^-_j = \frac1n\sum_i (1-p_{ij})\phi(-f_{ij})` of
        every label, which estimate nonnegative numbers; :class:`MultiLabelLoss` lists the functions.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels. The formulas use the sum. The mean divides it by q, so that a learning rate selected for
        ``torch.nn.BCEWithLogitsLoss`` can be used.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.

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
        label_reduction: str = "sum",
    ) -> None:
        super().__init__(surrogate, noise, reduction, correction, label_reduction=label_reduction)

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``hamming_loss`` of outputs (..., q) and real-valued targets (..., q)."""
        return hamming_loss(outputs, targets, self.surrogate)

    def _reduced_risk(self, outputs: Tensor, labels: Tensor, factor: float) -> Tensor:
        logistic = isinstance(self.surrogate, Surrogate) and self.surrogate.name == "logistic"
        eager = outputs.device.type == "cpu" and not torch.compiler.is_compiling()
        eager = eager and not self._can_fuse(outputs, labels)
        if logistic and eager and self.reduction != "none" and outputs.shape == labels.shape and outputs.numel():
            targets = self._targets(outputs, labels)
            if not math.isnan(targets.sum()):
                # One operator of PyTorch, which accepts all real targets, instead of two sums.
                scores, scale = outputs.to(targets.dtype), factor
                if self.reduction == "mean":
                    scale *= outputs.shape[-1]
                value = binary_cross_entropy_with_logits(scores, targets, reduction=self.reduction)
                return value if scale == 1 else value * scale
        return super()._reduced_risk(outputs, labels, factor)

    _fused_name: ClassVar[str] = "hamming"

    def _can_fuse(self, outputs: Tensor, labels: Tensor) -> bool:
        return _can_fuse(outputs, labels, self.surrogate)

    def _eager_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _eager_loss(outputs, targets, self.surrogate)

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum over labels of g(R+_j) + g(R-_j) for outputs (..., n, q) and targets (..., n, q)."""
        f, pos, neg = with_weights(outputs.to(targets.dtype), targets)
        phi, observed = phi_of(self.surrogate), ~targets.isnan()
        positive, negative = (corrected_means(part, observed, self._correct) for part in (pos * phi(f), neg * phi(-f)))
        return positive + negative
