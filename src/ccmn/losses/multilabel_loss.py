r"""Targets into weights: what a label contributes as a positive and as a negative.

Corrections that keep an unbiased risk from running away below zero.

An unbiased loss has negative weights, so a flexible model can send it towards minus infinity. Its parts, such as
:math:`R^+_j = \frac1n \sum_i p_{ij} \phi(f_{ij})`, estimate numbers that cannot be negative; a correction g is put
around each part, :math:`L = \sum_j g(R^+_j) + g(R^-_j)`. Nothing changes while every part is above zero (above the
level, for "flood"). The result is no longer unbiased, but consistent.

With a symmetric phi (the sigmoid) none is needed: there the loss equals, up to a constant that depends on the labels
alone, an ordinary loss with positive weights.

What every multi-label loss shares: labels are checked and debiased, rows are reduced.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ccmn._registry import Registry
from ccmn._validation import check_choice, check_noise, check_outputs_and_labels, check_soft_labels, check_tensors
from ccmn.losses.surrogates import Surrogate, SurrogateLike, resolve_surrogate
from ccmn.noise import Debiasing, NoiseModel


class Weighted(NamedTuple):
    """Scores with their positive and negative weights; all three 0 where the label is not observed."""

    scores: Tensor
    pos: Tensor
    neg: Tensor


def weigh(scores: Tensor, targets: Tensor) -> Weighted:
    """pos = p, neg = 1 - p; a NaN target takes its label out of the loss, whatever the score there.

    The score itself is replaced there as well, so that the gradient is exactly 0 even where it is infinite.
    """
    if targets.dtype != scores.dtype:
        targets = targets.to(scores.dtype)
    # Asking a device whether any label is missing would make the host wait; on a CPU it saves three passes (and the
    # sum, NaN if any target is, is quicker than a test of each).
    if scores.device.type == "cpu" and not torch.compiler.is_compiling() and not math.isnan(targets.sum()):
        return Weighted(scores, targets, 1 - targets)
    missing = targets.isnan()
    pos = targets.masked_fill(missing, 0)
    return Weighted(scores.masked_fill(missing, 0), pos, (1 - targets).masked_fill(missing, 0))


Correction = Callable[[Tensor, float], Tensor]

CORRECTIONS: Registry[Correction] = Registry(
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


class MultiLabelLoss(torch.nn.Module, ABC):
    """A loss on outputs (..., n_outputs(q)) and noisy labels (..., q).

    A member writes its formula once, on real-valued targets (``risk``); it becomes unbiased under a noise model by
    being given debiased labels. The rates are part of the module's state and move with it.
    """

    def __init__(
        self,
        surrogate: SurrogateLike,
        noise: NoiseModel | None,
        reduction: str,
        correction: str | None,
        *,
        flood_level: float,
    ) -> None:
        super().__init__()
        self.surrogate = resolve_surrogate(surrogate)
        check_noise(noise, NoiseModel)
        self.noise = noise
        self.reduction = check_choice(reduction, "reduction", ("none", "mean", "sum"))
        self.correction = correction
        self.flood_level = float(flood_level)
        if correction is not None:
            CORRECTIONS[correction]
            if reduction == "none":
                raise ValueError(
                    f"correction={correction!r} acts on means over the batch, so there is no value per row: "
                    'use reduction="mean" or "sum"'
                )
        if flood_level and correction != "flood":
            raise ValueError(f'flood_level={flood_level:g} does nothing without correction="flood"')
        if noise is not None:
            self.debias: Debiasing = noise.debiasing()

    @property
    def _g(self) -> Correction:
        """The correction of this loss (which must have one)."""
        assert self.correction is not None
        return CORRECTIONS[self.correction]

    @abstractmethod
    def n_outputs(self, q: int) -> int:
        """How many outputs a network needs for q labels."""

    @abstractmethod
    def decision(self, outputs: Tensor) -> Tensor:
        """Scores (..., q) from outputs; a label is predicted when its score is >= 0."""

    @abstractmethod
    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """One value per row, for real-valued targets."""

    @abstractmethod
    def corrected_risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(..., n, n_outputs), (..., n, q) -> (...): the mean over rows, its parts corrected."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        outputs : tensor (..., n_outputs(q))
        labels : tensor (..., q)
            0/1, soft labels in [0, 1], NaN where a label is not observed.
        """
        self._check(outputs, labels)
        if self.correction is not None:
            rows = outputs.shape[:-1].numel()
            targets = self._targets(outputs, labels).expand(*outputs.shape[:-1], -1)
            mean = self.corrected_risk(
                outputs.reshape(rows, outputs.shape[-1]), targets.reshape(rows, targets.shape[-1])
            )
            return mean if self.reduction == "mean" else mean * rows
        return self._reduced_risk(outputs, labels)

    def _reduced_risk(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The risk for labels as they were given, reduced over rows."""
        values = self.risk(outputs, self._targets(outputs, labels))
        if self.reduction == "none":
            return values
        return values.mean() if self.reduction == "mean" else values.sum()

    def _check(self, outputs: Tensor, labels: Tensor) -> None:
        check_tensors(outputs, labels)
        q = labels.shape[-1] if labels.ndim else 0
        n_labels = None if self.noise is None else self.noise.n_labels
        check_outputs_and_labels(outputs.shape, labels.shape, self.n_outputs(q), n_labels)
        # A look at values on a device would make the host wait for it: there they are taken on trust.
        if labels.device.type == "cpu" and not torch.compiler.is_compiling():
            check_soft_labels(labels)

    def _targets(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The labels debiased, in the floating type that the loss is computed in."""
        return self.debias_tensor(labels.to(torch.promote_types(outputs.dtype, torch.float32)))

    def debias_tensor(self, labels: Tensor) -> Tensor:
        """Floating-point labels debiased by the loss's own noise model, unchecked."""
        return labels if self.noise is None else self.debias(labels)

    def extra_repr(self) -> str:
        phi: Any = self.surrogate.name if isinstance(self.surrogate, Surrogate) else self.surrogate
        noise = type(self.noise).__name__ if self.noise else None
        return f"surrogate={phi!r}, noise={noise}, reduction={self.reduction!r}, correction={self.correction!r}"
