r"""Base class of the losses, weights from targets, and risk corrections.

An unbiased loss has negative weights, so a flexible model can decrease it without bound. Its parts, such as
:math:`R^+_j = \frac1n \sum_i p_{ij} \phi(f_{ij})`, estimate nonnegative numbers. A risk correction applies a function
g to each part, :math:`L = \sum_j g(R^+_j) + g(R^-_j)`. The value does not change while every part is
positive. A loss with a risk correction is consistent, but no longer unbiased.

A symmetric phi (the sigmoid) needs no risk correction: up to a constant that depends only on the labels, the loss
equals a loss with positive weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ccmn._registry import Registry
from ccmn._validation import check_choice, check_label_values, check_noise
from ccmn.losses import _fast
from ccmn.losses.surrogates import Surrogate, SurrogateLike, resolve_surrogate
from ccmn.noise import NoiseModel
from ccmn.noise.class_conditional import ClassConditionalDebiasing
from ccmn.noise.noise_model import Debiasing


class MultiLabelLoss(torch.nn.Module, ABC):
    """Base class of losses on outputs (..., n_outputs(q)) and noisy labels (..., q).

    A subclass implements its formula once, on real-valued targets, in ``risk``. The base class passes debiased labels,
    which makes the loss unbiased. The noise rates are buffers of the module. ``correction`` is the name of a function g
    that keeps the estimated risk from becoming negative [1]_; the other parameters are those of ``HammingLoss``.

    References
    ----------
    .. [1] N. Lu, T. Zhang, G. Niu and M. Sugiyama, "Mitigating Overfitting in Supervised Classification from Two
       Unlabeled Datasets: A Consistent Risk Correction Approach", AISTATS, 2020.
    """

    kernels: str | None = None
    """Name of the loss in ``_fast.fused_loss``, or None if it has no fused kernels."""
    extra_outputs = 0
    """Number of outputs before those of the labels: 1 with a dummy label."""

    def __init__(
        self,
        surrogate: SurrogateLike = "square",
        noise: NoiseModel | None = None,
        reduction: str = "mean",
        correction: str | None = None,
        *,
        label_reduction: str = "sum",
    ) -> None:
        super().__init__()
        self.surrogate = resolve_surrogate(surrogate)
        check_noise(noise, NoiseModel)
        self.noise = noise
        self.reduction = check_choice(reduction, "reduction", ("none", "mean", "sum"))
        self.label_reduction = check_choice(label_reduction, "label_reduction", ("sum", "mean"))
        self.correction = correction
        self.g: Any = None if correction is None else CORRECTIONS[correction]
        if correction is not None and reduction == "none":
            raise ValueError(
                f'correction={correction!r} requires reduction="mean" or "sum", because it applies to means over '
                'the batch; got reduction="none"'
            )
        self.debias: Debiasing | None = None if noise is None else noise.debiasing()

    def n_outputs(self, q: int) -> int:
        """Return the number of network outputs for q labels: one per label, and one for a dummy label.

        Parameters
        ----------
        q : int
            Number of labels.

        Returns
        -------
        int
            Number of outputs.
        """
        return q + self.extra_outputs

    def decision(self, outputs: Tensor) -> Tensor:
        """Return the scores of the labels: the outputs, minus that of the dummy label if the loss has one.

        Parameters
        ----------
        outputs : Tensor of shape (..., n_outputs(q))
            Outputs of the network.

        Returns
        -------
        Tensor of shape (..., q)
            Scores. Unless the loss ranks without a dummy label, a label is predicted when its score is at least 0.
        """
        return outputs[..., 1:] - outputs[..., :1] if self.extra_outputs else outputs

    @abstractmethod
    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return one value per row for real-valued targets: the formula of the loss."""

    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the corrected mean over rows: (..., n, n_outputs), (..., n, q) -> (...)."""
        return self.risk(outputs, targets).mean(-1)

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        outputs : Tensor of shape (..., n_outputs(q))
            Outputs of the network.
        labels : Tensor of shape (..., q)
            Noisy labels: 0, 1, or NaN for labels that were not observed.

        Returns
        -------
        Tensor
            Loss reduced over rows, or one value per row for ``reduction="none"``.
        """
        # The common case is recognized without a call; ``_check`` explains what is wrong, or accepts the rest.
        valid = isinstance(labels, Tensor) and labels.ndim > 0 and outputs.device == labels.device
        valid = valid and outputs.shape == (*labels.shape[:-1], labels.shape[-1] + self.extra_outputs)
        valid = valid and (self.noise is None or self.noise.n_labels == labels.shape[-1])
        if valid and labels.device.type == "cpu" and not torch.compiler.is_compiling():
            valid = torch.equal(labels, torch.gt(labels, 0, out=torch.empty_like(labels)))
        if not valid:
            self._check(outputs, labels)
        factor = 1.0 if self.label_reduction == "sum" else 1 / max(1, self.n_terms(labels.shape[-1]))
        if self.correction is None and outputs.is_cuda:
            fused = self._fused_risk(outputs, labels, self.debias, self.reduction, factor)
            if fused is not None:
                return fused
        p = labels.to(torch.promote_types(outputs.dtype, torch.float32))
        p = p if self.debias is None else self.debias(p)
        if self.correction is None:
            values = self.risk(outputs, p)
            if self.reduction != "none":
                values = values.mean() if self.reduction == "mean" else values.sum()
            return values if factor == 1 else values * factor
        rows = outputs.shape[:-1].numel()
        p = p.expand(*outputs.shape[:-1], -1).reshape(rows, p.shape[-1])
        mean = self.corrected_risk(outputs.reshape(rows, outputs.shape[-1]), p)
        return mean * (factor if self.reduction == "mean" else factor * rows)

    def row_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``risk``, from fused kernels if there are some for these tensors."""
        if outputs.is_cuda and targets.dtype != torch.float64:
            fused = self._fused_risk(outputs, targets, None, "none", 1.0)
            if fused is not None:
                return fused
        return self.risk(outputs, targets)

    def n_terms(self, q: int) -> int:
        """Return the number of terms of the loss of a row: one for each label."""
        return q

    def _check(self, outputs: Tensor, labels: Tensor) -> None:
        """Reject tensors with wrong types, shapes or labels. The labels may lack leading dimensions of the outputs."""
        for value, argument in ((outputs, "outputs"), (labels, "labels")):
            if not isinstance(value, Tensor):
                kind = type(value).__name__
                raise TypeError(f"{argument} must be a torch tensor; got {kind}: use torch.as_tensor(...)")
        if outputs.device != labels.device:
            raise ValueError(
                f"outputs and labels must be on the same device; got {outputs.device} and {labels.device}: "
                "use labels.to(outputs.device)"
            )
        *rows, q = labels.shape or (0,)
        rows = [1] * (outputs.ndim - labels.ndim) + rows  # the outputs of several models can share a batch of labels
        problem = ""
        if not labels.ndim or not outputs.ndim:
            problem = "outputs and labels must have the labels in the last dimension"
        elif self.noise is not None and q != self.noise.n_labels:
            problem = f"the noise model has {self.noise.n_labels} labels"
        elif outputs.shape[-1] != self.n_outputs(q):
            dummy = " (q + 1: column 0 is the dummy label; dummy=False removes it)" if self.extra_outputs else ""
            problem = f"for {q} labels this loss needs {self.n_outputs(q)} outputs{dummy}"
        elif len(rows) != outputs.ndim - 1 or any(n not in (1, m) for n, m in zip(rows, outputs.shape)):
            problem = "outputs and labels must have the same rows"
        if problem:
            given = f"outputs of shape {tuple(outputs.shape)} and labels of shape {tuple(labels.shape)}"
            raise ValueError(f"{problem}; got {given}")
        # Values on an accelerator are not checked: reading them would synchronize with the host.
        if labels.device.type == "cpu" and not torch.compiler.is_compiling():
            remedy = (
                " For debiased or soft labels use ccmn.losses.hamming_loss or ranking_loss; a loss with noise=... "
                "debiases its labels itself."
            )
            check_label_values(labels, "labels", remedy)

    def _fused_risk(
        self, outputs: Tensor, labels: Tensor, debias: Debiasing | None, reduction: str, factor: float
    ) -> Tensor | None:
        """Return the reduced loss from fused kernels, or None; ``debias=None`` means that labels are debiased."""
        if self.kernels is None or not (debias is None or isinstance(debias, ClassConditionalDebiasing)):
            return None

        def eager(f: Tensor, y: Tensor) -> Tensor:
            y = y.to(torch.promote_types(f.dtype, torch.float32))
            return self.risk(f, y if debias is None else debias(y))

        options = {"loss": self.kernels, "dummy": self.extra_outputs > 0, "reduction": reduction, "factor": factor}
        return _fast.fused_loss(outputs, labels, debias, self.surrogate, eager, **options)  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        """Return the parameters for ``repr``."""
        phi: Any = self.surrogate.name if isinstance(self.surrogate, Surrogate) else self.surrogate
        noise = type(self.noise).__name__ if self.noise else None
        text = f"surrogate={phi!r}, noise={noise}, reduction={self.reduction!r}, correction={self.correction!r}"
        return text if self.label_reduction == "sum" else f"{text}, label_reduction={self.label_reduction!r}"


def observed(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores f and the weights p and n = 1 - p of targets p, in float32 or higher; all are 0 where p is NaN.

    The score of a NaN target is replaced as well, so that its gradient is exactly 0 even if the score is infinite.
    """
    if scores.shape != targets.shape:
        shapes = tuple(scores.shape), tuple(targets.shape)
        if not all(shapes) or shapes[0][-1] != shapes[1][-1]:
            raise ValueError(
                "scores and targets must have the same number of labels in the last dimension; "
                f"got shapes {shapes[0]} and {shapes[1]}"
            )
    dtype = torch.promote_types(scores.dtype, torch.float32)
    f, p = scores.to(dtype), targets.to(dtype)
    # On a CPU, the check for NaN saves three passes; the sum is NaN if any target is, and faster than isnan. On an
    # accelerator the check would synchronize with the host.
    if f.device.type == "cpu" and not torch.compiler.is_compiling() and not math.isnan(p.sum().item()):
        return f, p, 1 - p
    missing = p != p  # faster than isnan if compiled
    return f.masked_fill(missing, 0), p.masked_fill(missing, 0), (1 - p).masked_fill(missing, 0)


CORRECTIONS: Registry[Callable[[Tensor], Tensor]] = Registry(
    "correction",
    {
        "abs": torch.abs,  # increases the risk again when it is negative
        "relu": torch.relu,  # has no gradient when the risk is negative
    },
)


def corrected_means(parts: Tensor, known: Tensor, g: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the sum over labels of g(mean of the observed rows), weighted by the share of observed rows.

    ``parts`` (..., n, q) has the loss of every label, 0 where it is not observed (``known``). Where g changes nothing,
    the result equals the mean over rows of the sum over labels.
    """
    count = known.sum(-2)
    means = parts.sum(-2) / count.clamp_min(1)
    return (g(means) * count).sum(-1) / parts.shape[-2]


def correction_slopes(parts: Tensor, known: Tensor, g: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Return ``corrected_means`` and g'(mean) of every label (..., 1, q), both without gradient."""
    with torch.enable_grad():
        leaf = parts.detach().requires_grad_()
        value = corrected_means(leaf, known, g)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    # The derivative of the value with respect to a part is g' / n in every row.
    return value.detach(), slope[..., :1, :] * parts.shape[-2]
