"""A parameter of all runs at once: which dimension holds the runs, and how a number per run meets it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_SQUARES = 1 << 22


@dataclass
class Stacked:
    """A tensor whose first dimension is the G groups and whose dimension ``run_dim`` is the K runs."""

    values: Tensor
    run_dim: int
    bias_row: int | None = None
    """The last row (of dimension 1, in a tensor with runs at 2), which multiplies the constant 1 and is not decayed."""

    def spread(self, per_run: Tensor) -> Tensor:
        """A (G, K) tensor shaped to broadcast against the values."""
        shape = [1] * self.values.ndim
        shape[0], shape[self.run_dim] = per_run.shape
        return per_run.view(shape)

    def per_run_squares(self, values: Tensor) -> Tensor:
        """Sum of squares over everything but groups and runs, (G, K); of very many they are never all in memory."""
        dims = [dim for dim in range(1, values.ndim) if dim != self.run_dim]
        if values.numel() <= MOST_SQUARES:  # twice as fast
            return values.square().sum(dims)
        norms: Tensor = torch.linalg.vector_norm(values, dim=dims)
        return norms.square()

    def along_outputs(self, per_run: Tensor) -> Tensor:
        """``spread``, repeated along the last dimension: arithmetic along whole runs of memory is several times faster
        than along a few outputs that share a number."""
        spread = self.spread(per_run)
        if spread.ndim <= self.run_dim + 1:
            return spread
        return spread.expand(*spread.shape[:-1], self.values.shape[-1]).contiguous()

    def decayed(self, values: Tensor) -> Tensor:
        """The part of a tensor like the values that l2 applies to: all but a bias."""
        return values if self.bias_row is None else values[:, : self.bias_row]
