"""Outputs and labels -> one loss per run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ccmn.losses import MultiLabelLoss


@dataclass(frozen=True)
class Part:
    """A slice of the runs of every group that share a loss."""

    runs: slice
    loss: MultiLabelLoss


class Objective:
    """The mean loss of a batch for every run, (G, K).

    Parameters
    ----------
    parts : sequence of Part
        Losses without a noise model of their own (``noise=None``) when ``rates`` are given.
    rates : tensors rho_pos, rho_neg of shape (G, K, q), optional
        Noise rates of every run; zero rates make a run "plain". Labels are debiased here, batch by batch.
    """

    def __init__(self, parts: Sequence[Part], rates: tuple[Tensor, Tensor] | None = None) -> None:
        self.parts = list(parts)
        self._scale = self._offset = None
        if rates is not None:
            rho_pos, rho_neg = (r.double() for r in rates)
            # Two constants per run and label, rounded once; dense targets exist for a batch at a time.
            scale = 1 / (1 - rho_pos - rho_neg)
            self._scale, self._offset = scale.unsqueeze(2), (-rho_neg * scale).unsqueeze(2)

    @classmethod
    def of(cls, loss: MultiLabelLoss) -> Objective:
        """One loss for all runs, with the noise it knows."""
        return cls([Part(slice(None), loss)])

    def __call__(self, outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """(G, K, B, o), (G, B, q), weights (G, B) or None -> (G, K). Weights have a mean of 1 over all rows."""
        values = [self._mean(part, outputs[:, part.runs], labels, weights) for part in self.parts]
        return values[0] if len(values) == 1 else torch.cat(values, 1)

    def _mean(self, part: Part, outputs: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        loss = part.loss
        targets = labels.unsqueeze(1).to(torch.promote_types(outputs.dtype, torch.float32))
        if self._scale is not None and self._offset is not None:
            if self._scale.dtype != targets.dtype:
                self._scale, self._offset = self._scale.to(targets.dtype), self._offset.to(targets.dtype)
            targets = torch.addcmul(self._offset[:, part.runs], targets, self._scale[:, part.runs])
        else:
            targets = loss.debias_tensor(targets)
        if loss.correction is not None:
            return loss.corrected_risk(outputs, targets.expand(*outputs.shape[:-1], -1))
        rows = loss.risk(outputs, targets)
        if weights is None:
            return rows.mean(-1)
        return (rows * weights.unsqueeze(1).to(rows.dtype)).mean(-1)
