"""What every multi-label loss shares: labels are checked and debiased, rows are reduced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from ccmn.losses.corrections import CORRECTIONS, Correction
from ccmn.losses.surrogates import Surrogate, SurrogateLike, resolve_surrogate
from ccmn.noise import Debiasing, NoiseModel
from ccmn.validation import check_choice, check_noise, check_outputs_and_labels, check_soft_labels, check_tensors


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
