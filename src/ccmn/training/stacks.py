"""A parameter of all runs at once: which dimension holds the runs, and how a number per run meets it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Stacked:
    """A tensor whose first dimension is the G groups and whose dimension ``run_dim`` is the K runs."""

    values: Tensor
    run_dim: int
    bias_row: int | None = None
    """The row (dimension 1 of a tensor with runs at 2) that multiplies the constant 1 and is not decayed."""

    def spread(self, per_run: Tensor) -> Tensor:
        """A (G, K) tensor shaped to broadcast against the values."""
        shape = [1] * self.values.ndim
        shape[0], shape[self.run_dim] = per_run.shape
        return per_run.view(shape)

    def per_run_sum(self, values: Tensor) -> Tensor:
        """Sum over everything but groups and runs: (G, K)."""
        dims = [dim for dim in range(1, values.ndim) if dim != self.run_dim]
        return values.sum(dims)

    def decay(self, weight_decay: Tensor) -> Tensor:
        """The l2 weight of every entry, 0 for a bias."""
        spread = self.spread(weight_decay)
        if self.bias_row is None:
            return spread
        mask = torch.ones(self.values.shape[1], device=self.values.device, dtype=self.values.dtype)
        mask[self.bias_row] = 0
        return spread * mask.view(1, -1, *[1] * (self.values.ndim - 2))
