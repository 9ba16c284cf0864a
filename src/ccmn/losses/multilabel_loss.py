r"""Base class of the losses, weights from targets, and risk corrections.

An unbiased loss has negative weights, so a flexible model can decrease it without bound. Its parts, such as
:math:`R^+_j = \frac1n \sum_i p_{ij} \phi(f_{ij})`, estimate nonnegative numbers. A risk correction applies a function
g to each part, :math:`L = \sum_j g(R^+_j) + g(R^-_j)`. The value does not change while every part is positive
(above the level for "flood"). A loss with a risk correction is consistent, but no longer unbiased.

A symmetric phi (the sigmoid) needs no risk correction: up to a constant that depends only on the labels, the loss
equals a loss with positive weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ccmn._registry import Registry
from ccmn._validation import check_choice, check_noise, check_outputs_and_labels, check_soft_labels, check_tensors
from ccmn.losses.surrogates import Surrogate, SurrogateLike, resolve_surrogate
from ccmn.losses.triton import fused_loss
from ccmn.noise import NoiseModel
from ccmn.noise.class_conditional import ClassConditionalDebiasing
from ccmn.noise.noise_model import Debiasing

LABEL_REDUCTIONS = ("sum", "mean")
"""Reductions over labels, or over pairs of labels."""


class MultiLabelLoss(torch.nn.Module, ABC):
    """Base class of losses on outputs (..., n_outputs(q)) and noisy labels (..., q).

    A subclass implements its formula once, on real-valued targets, in ``risk``. The base class passes debiased
    labels, which makes the loss unbiased. The noise rates are buffers of the module.

    Parameters
    ----------
    surrogate : {"square", "hinge", "sigmoid", "logistic"} or callable
        Margin loss phi.
    noise : NoiseModel or None
        Noise model of the labels passed to ``forward``.
    reduction : {"mean", "sum", "none"}
        Reduction over rows.
    correction : {"abs", "relu", "flood"} or None
        Risk correction: function g that keeps the estimated risk from becoming negative. "abs" and "relu" are defined
        in [1]_, "flood" in [2]_.
    flood_level : float
        Level b of ``correction="flood"``, g(z) = abs(z - b) + b.
    label_reduction : {"sum", "mean"}, default="sum"
        Reduction over labels, or over pairs of labels.

    References
    ----------
    .. [1] N. Lu, T. Zhang, G. Niu and M. Sugiyama, "Mitigating Overfitting in Supervised Classification from Two
       Unlabeled Datasets: A Consistent Risk Correction Approach", AISTATS, 2020.
    .. [2] T. Ishida, I. Yamane, T. Sakai, G. Niu and M. Sugiyama, "Do We Need Zero Training Loss After Achieving Zero
       Training Error?", ICML, 2020.
    """

    def __init__(
        self,
        surrogate: SurrogateLike,
        noise: NoiseModel | None,
        reduction: str,
        correction: str | None,
        *,
        flood_level: float,
        label_reduction: str = "sum",
    ) -> None:
        super().__init__()
        self.surrogate = resolve_surrogate(surrogate)
        check_noise(noise, NoiseModel)
        self.noise = noise
        self.reduction = check_choice(reduction, "reduction", ("none", "mean", "sum"))
        self.label_reduction = check_choice(label_reduction, "label_reduction", LABEL_REDUCTIONS)
        self.correction = correction
        self.flood_level = float(flood_level)
        if correction is not None:
            CORRECTIONS[correction]
            if reduction == "none":
                raise ValueError(
                    f'correction={correction!r} requires reduction="mean" or "sum", because it applies to means over '
                    'the batch; got reduction="none"'
                )
        if flood_level and correction != "flood":
            raise ValueError(f'flood_level={flood_level:g} requires correction="flood"; got correction={correction!r}')
        if noise is not None:
            self.debias: Debiasing = noise.debiasing()

    def n_outputs(self, q: int) -> int:
        """Return the number of network outputs for q labels: one per label, unless the loss needs more.

        Parameters
        ----------
        q : int
            Number of labels.

        Returns
        -------
        int
            Number of outputs.
        """
        return q

    def decision(self, outputs: Tensor) -> Tensor:
        """Return the scores of the labels: the outputs themselves, unless the loss needs more outputs.

        Parameters
        ----------
        outputs : Tensor of shape (..., n_outputs(q))
            Outputs of the network.

        Returns
        -------
        Tensor of shape (..., q)
            Scores. A label is predicted when its score is at least 0.
        """
        return outputs

    @abstractmethod
    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return one value per row for real-valued targets."""

    @abstractmethod
    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the corrected mean over rows: (..., n, n_outputs), (..., n, q) -> (...)."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        outputs : Tensor of shape (..., n_outputs(q))
            Outputs of the network.
        labels : Tensor of shape (..., q)
            Noisy labels: 0 or 1, soft labels in [0, 1], or NaN for labels that were not observed.

        Returns
        -------
        Tensor
            Loss reduced over rows, or one value per row for ``reduction="none"``.
        """
        check_tensors(outputs, labels)
        q = labels.shape[-1] if labels.ndim else 0
        n_labels = None if self.noise is None else self.noise.n_labels
        check_outputs_and_labels(outputs.shape, labels.shape, self.n_outputs(q), n_labels)
        # Values on an accelerator are not checked: reading them would synchronize with the host.
        if labels.device.type == "cpu" and not torch.compiler.is_compiling():
            check_soft_labels(labels)
        factor = 1.0 if self.label_reduction == "sum" else 1 / max(1, self._n_terms(q))
        if self.correction is None:
            return self._reduced_risk(outputs, labels, factor)
        rows = outputs.shape[:-1].numel()
        targets = self._targets(outputs, labels).expand(*outputs.shape[:-1], -1)
        mean = self.corrected_risk(outputs.reshape(rows, outputs.shape[-1]), targets.reshape(rows, targets.shape[-1]))
        return mean * (factor if self.reduction == "mean" else factor * rows)

    def _n_terms(self, q: int) -> int:
        """Return the number of terms of the loss of a row: one for each label."""
        return q

    def _reduced_risk(self, outputs: Tensor, labels: Tensor, factor: float) -> Tensor:
        """Return the risk of noisy labels, reduced over rows; fused kernels, if available, include the debiasing."""
        debias = None if self.noise is None else self.debias
        if (debias is None or isinstance(debias, ClassConditionalDebiasing)) and self._can_fuse(outputs, labels):
            return self._fused_risk(outputs, labels, debias, self.reduction, factor)
        values = self.risk(outputs, self._targets(outputs, labels))
        if self.reduction != "none":
            values = values.mean() if self.reduction == "mean" else values.sum()
        return values if factor == 1 else values * factor

    def _can_fuse(self, outputs: Tensor, labels: Tensor) -> bool:
        """Return whether fused kernels compute the loss of these tensors."""
        return False

    def _fused_risk(
        self,
        outputs: Tensor,
        labels: Tensor,
        debias: ClassConditionalDebiasing | None,
        reduction: str = "none",
        factor: float = 1.0,
    ) -> Tensor:
        """Return the loss from fused kernels; ``debias=None`` means that ``labels`` are already debiased."""
        assert isinstance(self.surrogate, Surrogate)

        def eager(f: Tensor, y: Tensor) -> Tensor:
            y = y.to(torch.promote_types(f.dtype, torch.float32))
            return self._eager_risk(f, y if debias is None else debias(y))

        return fused_loss(
            *(outputs, labels, debias, self.surrogate, eager),
            loss=self._fused_name,
            dummy=outputs.shape[-1] > labels.shape[-1],
            reduction=reduction,
            factor=factor,
        )

    _fused_name: ClassVar[str]
    """Name of the loss in ``fused_loss``, for losses with fused kernels."""

    def _eager_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``risk`` by operations that have second derivatives."""
        raise NotImplementedError

    def _targets(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the debiased labels in the dtype in which the loss is computed."""
        return self.debias_tensor(labels.to(torch.promote_types(outputs.dtype, torch.float32)))

    def debias_tensor(self, labels: Tensor) -> Tensor:
        """Return floating-point labels debiased by the noise model of the loss, without checks."""
        return labels if self.noise is None else self.debias(labels)

    @property
    def _correct(self) -> Correction:
        """Risk correction g of this loss; only for losses with a risk correction."""
        assert self.correction is not None
        return CORRECTIONS[self.correction]

    def extra_repr(self) -> str:
        """Return the parameters for ``repr``."""
        phi: Any = self.surrogate.name if isinstance(self.surrogate, Surrogate) else self.surrogate
        noise = type(self.noise).__name__ if self.noise else None
        text = f"surrogate={phi!r}, noise={noise}, reduction={self.reduction!r}, correction={self.correction!r}"
        return text if self.label_reduction == "sum" else f"{text}, label_reduction={self.label_reduction!r}"


class Weighted(NamedTuple):
    """Scores with their positive and negative weights; all three are 0 where a label is not observed."""

    scores: Tensor
    pos: Tensor
    neg: Tensor


def with_weights(scores: Tensor, targets: Tensor) -> Weighted:
    """Return scores with the weights pos = p and neg = 1 - p of targets p, and zeros where a target is NaN.

    The score of a NaN target is replaced as well, so that its gradient is exactly 0 even if the score is infinite.
    """
    if targets.dtype != scores.dtype:
        targets = targets.to(scores.dtype)
    # On a CPU, the check for NaN saves three passes; the sum is NaN if any target is, and faster than isnan. On an
    # accelerator the check would synchronize with the host.
    if scores.device.type == "cpu" and not torch.compiler.is_compiling() and not math.isnan(targets.sum()):
        return Weighted(scores, targets, 1 - targets)
    missing = targets != targets  # faster than isnan if compiled
    pos = targets.masked_fill(missing, 0)
    return Weighted(scores.masked_fill(missing, 0), pos, (1 - targets).masked_fill(missing, 0))


Correction = Callable[[Tensor, float], Tensor]
"""Function g(z, level) that is applied to the parts of the risk."""

CORRECTIONS: Registry[Correction] = Registry(
    "correction",
    {
        "abs": lambda z, level: z.abs(),  # increases the risk again when it is negative (Lu et al. 2020)
        "relu": lambda z, level: z.clamp_min(0),  # has no gradient when the risk is negative (Lu et al. 2020)
        "flood": lambda z, level: (z - level).abs() + level,  # increases the risk below a level (Ishida et al. 2020)
    },
)


def corrected_means(parts: Tensor, observed: Tensor, correction: Correction, level: float) -> Tensor:
    """Return the sum over labels of g(mean of the observed rows), weighted by the share of observed rows.

    Parameters
    ----------
    parts : Tensor of shape (..., n, q)
        Loss of every label, 0 where it is not observed.
    observed : Tensor of bool of shape (..., n, q)
        Whether a label is observed.
    correction : callable
        Risk correction g.
    level : float
        Second argument of g.

    Returns
    -------
    Tensor of shape (...)
        Loss with risk correction. It equals the mean over rows of the sum over labels where g changes nothing.
    """
    count = observed.sum(-2)
    means = parts.sum(-2) / count.clamp_min(1)
    return (correction(means, level) * count).sum(-1) / parts.shape[-2]


def correction_slopes(parts: Tensor, observed: Tensor, correction: Correction, level: float) -> tuple[Tensor, Tensor]:
    """Return ``corrected_means`` and g'(mean) of every label (..., 1, q), both without gradient."""
    with torch.enable_grad():
        leaf = parts.detach().requires_grad_()
        value = corrected_means(leaf, observed, correction, level)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    # The derivative of the value with respect to a part is g' / n in every row.
    return value.detach(), slope[..., :1, :] * parts.shape[-2]
