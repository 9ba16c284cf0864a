"""A parameter of all runs at once: which dimension holds the runs, and how a number per run meets it.

Networks that hold many independent copies in one stack of weights.

``outputs`` maps a batch of features to (G, K, B, n_outputs). Features are (G, B, d) dense, or one sparse CSR tensor
(B, d) for G = 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ccmn._registry import Registry

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


_DRAWN_AT_ONCE = 1 << 20


class Network(ABC):
    """What the loop needs of a network."""

    groups: int
    runs: int

    @property
    @abstractmethod
    def parameters(self) -> list[Stacked]:
        """The weights of all runs, leaves that require gradients."""

    @abstractmethod
    def outputs(self, X: Tensor) -> Tensor:
        """(G, B, d) or sparse (B, d) -> (G, K, B, n_outputs)."""

    @property
    def buffers(self) -> list[Tensor]:
        """What belongs to the weights without being trained by gradients (running means)."""
        return []

    def train_mode(self, training: bool) -> None:
        """Switch layers that behave differently in training (dropout, batch norm)."""
        return


class StackedLinear(Network):
    """f = x W + b for every run: one matrix product (B, d) x (d, K n_outputs) a group.

    The bias is the last row of the weights; ``seeds`` (G x K) make every copy the one a single fit with its seed has.
    """

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        seeds: Sequence[Sequence[int]],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.groups, self.runs, self.n_outputs = len(seeds), len(seeds[0]), n_outputs
        weights = _initial(seeds, 0, n_features + 1, n_outputs, n_features, dtype)
        self._W = Stacked(
            weights.permute(0, 2, 1, 3).contiguous().to(device).requires_grad_(), run_dim=2, bias_row=n_features
        )

    @property
    def parameters(self) -> list[Stacked]:
        return [self._W]

    def outputs(self, X: Tensor) -> Tensor:
        return _first_layer(X, self._W.values)


class StackedMLP(Network):
    """One hidden layer with ReLU (128 units, as in the paper) for every run."""

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        seeds: Sequence[Sequence[int]],
        *,
        hidden: int = 128,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.groups, self.runs, self.n_outputs = len(seeds), len(seeds[0]), n_outputs
        first = _initial(seeds, 0, n_features + 1, hidden, n_features, dtype).permute(0, 2, 1, 3).contiguous()
        second = _initial(seeds, 1, hidden, n_outputs, hidden, dtype)
        cut = _initial(seeds, 2, 1, n_outputs, hidden, dtype)
        self._first = Stacked(first.to(device).requires_grad_(), run_dim=2, bias_row=n_features)
        self._second = Stacked(second.to(device).requires_grad_(), run_dim=1)
        self._cut = Stacked(cut.to(device).requires_grad_(), run_dim=1, bias_row=None)

    @property
    def parameters(self) -> list[Stacked]:
        return [self._first, self._second, self._cut]

    def outputs(self, X: Tensor) -> Tensor:
        hidden = _first_layer(X, self._first.values).relu()
        return hidden @ self._second.values + self._cut.values


class UserNetwork(Network):
    """A user's module as a fleet of one."""

    groups = runs = 1

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        if not self._parameters:
            raise ValueError("the network made by model(...) has no parameters to train")

    @property
    def parameters(self) -> list[Stacked]:
        # A view with the two fleet dimensions in front; gradients reach the module's own parameter.
        return [_Unstacked(p) for p in self._parameters]

    @property
    def buffers(self) -> list[Tensor]:
        return list(self.module.buffers())

    def outputs(self, X: Tensor) -> Tensor:
        batch = X.to_dense() if X.layout != torch.strided else X[0]
        result: Tensor = self.module(batch)
        return result[None, None]

    def train_mode(self, training: bool) -> None:
        self.module.train(training)


class _Unstacked(Stacked):
    """A parameter of any shape that belongs to the only run."""

    def __init__(self, parameter: Tensor) -> None:
        super().__init__(parameter, run_dim=0)

    def spread(self, per_run: Tensor) -> Tensor:
        return per_run.reshape(())

    def per_run_squares(self, values: Tensor) -> Tensor:
        return values.square().sum().reshape(1, 1)


def _initial(
    seeds: Sequence[Sequence[int]], layer: int, rows: int, columns: int, fan_in: int, dtype: torch.dtype
) -> Tensor:
    """(G, K, rows, columns), uniform in +-1/sqrt(fan_in) as in torch.nn.Linear, drawn from each run's own seed."""
    bound = 1 / math.sqrt(max(fan_in, 1))

    weights = torch.empty(len(seeds), len(seeds[0]), rows, columns, dtype=dtype)
    for group, stack in zip(seeds, weights):
        for seed, run in zip(group, stack):
            generator = torch.Generator().manual_seed((seed * 8 + layer) % 2**63)
            for part in run.split(max(1, _DRAWN_AT_ONCE // columns)):  # float64 numbers, of which few lie in memory
                part.copy_(torch.empty(part.shape, dtype=torch.float64).uniform_(-bound, bound, generator=generator))
    return weights


def _first_layer(X: Tensor, W: Tensor) -> Tensor:
    """(G, B, d) times (G, d + 1, K, o) with the bias in the last row -> (G, K, B, o)."""
    G, _, K, o = W.shape
    flat = W.view(G, W.shape[1], K * o)
    if X.layout != torch.strided:
        product: Tensor = (torch.sparse.mm(X, flat[0, :-1]) + flat[0, -1]).unsqueeze(0)
    elif torch.is_autocast_enabled(X.device.type):
        product = torch.baddbmm(flat[:, -1:], X, flat[:, :-1])
    else:
        product = _affine(X, flat)
    return product.view(G, -1, K, o).transpose(1, 2)


class _Affine(torch.autograd.Function):
    """x W + b with b the last row of the weights, whose gradient is written where it belongs, in one piece.

    (Through slices autograd would fill two tensors of zeros and add them: time, and where labels are many more memory
    than anything else takes.)
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(X, weights)
        return torch.baddbmm(weights[:, -1:], X, weights[:, :-1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        X, weights = ctx.saved_tensors
        by_weights = torch.empty_like(weights)
        torch.bmm(X.mT, grad, out=by_weights[:, :-1])
        torch.sum(grad, 1, keepdim=True, out=by_weights[:, -1:])
        return None, by_weights


def _affine(X: Tensor, weights: Tensor) -> Tensor:
    """(G, B, d) and (G, d + 1, o) -> (G, B, o)."""
    result: Tensor = _Affine.apply(X, weights)  # type: ignore[no-untyped-call]
    return result


MakeNetwork = Callable[..., Network]

NETWORKS: Registry[MakeNetwork] = Registry("model", {"linear": StackedLinear, "mlp": StackedMLP})
