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
        # Rows are independent: they are taken in the order in which they lie in memory, (G, B, K) after a linear
        # layer, so that no operation has to go through two orders at once.
        rows_first = loss.correction is None and not outputs.is_contiguous()
        runs_dim = 2 if rows_first else 1
        outputs = outputs.transpose(1, 2) if rows_first else outputs
        targets = self._targets(part, labels.unsqueeze(runs_dim), outputs.dtype, rows_first)
        if loss.correction is not None:
            return loss.corrected_risk(outputs, targets.expand(*outputs.shape[:-1], -1))
        rows = loss.risk(outputs, targets)
        if weights is not None:
            rows = rows * weights.unsqueeze(runs_dim).to(rows.dtype)
        return rows.mean(3 - runs_dim)

    def _targets(self, part: Part, labels: Tensor, dtype: torch.dtype, rows_first: bool) -> Tensor:
        """Labels (G, 1, B, q), or (G, B, 1, q) with rows first, debiased for every run."""
        labels = labels.to(torch.promote_types(dtype, torch.float32))
        if self._scale is None or self._offset is None:
            return part.loss.debias_tensor(labels)
        if self._scale.dtype != labels.dtype:
            self._scale, self._offset = self._scale.to(labels.dtype), self._offset.to(labels.dtype)
        offset, scale = self._offset[:, part.runs], self._scale[:, part.runs]
        if rows_first:
            offset, scale = offset.transpose(1, 2), scale.transpose(1, 2)
        return torch.addcmul(offset, labels, scale)
