"""Networks that hold the weights of many independent runs in one tensor per parameter.

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

HIDDEN_UNITS = 128
"""Units of the hidden layer of ``StackedMLP``, as in the paper."""
MAX_SQUARED_ELEMENTS = 1 << 22
"""Tensors up to this size are squared as a whole to compute norms; this is faster but needs a copy."""
_RANDOM_BLOCK = 1 << 20
"""Number of float64 random numbers that are drawn at a time."""


@dataclass
class Stacked:
    """Parameter of all runs: dimension 0 is the G groups, dimension ``run_dim`` is the K runs.

    If ``bias_row`` is set, this last row of dimension 1 multiplies the constant 1 and is not decayed.
    """

    values: Tensor
    run_dim: int
    bias_row: int | None = None

    def spread(self, per_run: Tensor, *, along_outputs: bool = False) -> Tensor:
        """Return a (G, K) tensor in a shape that broadcasts with the values.

        With ``along_outputs`` it is repeated along the last dimension: operations on contiguous runs of memory are
        several times faster than broadcasting over a few outputs.
        """
        shape = [1] * self.values.ndim
        shape[0], shape[self.run_dim] = per_run.shape
        spread = per_run.view(shape)
        if along_outputs and spread.ndim > self.run_dim + 1:
            spread = spread.expand(*shape[:-1], self.values.shape[-1]).contiguous()
        return spread

    def per_run_squares(self, values: Tensor) -> Tensor:
        """Return the sum of squares of every run, (G, K)."""
        dims = [dim for dim in range(1, values.ndim) if dim != self.run_dim]
        if values.numel() <= MAX_SQUARED_ELEMENTS:
            return values.square().sum(dims)
        norms: Tensor = torch.linalg.vector_norm(values, dim=dims)
        return norms.square()

    def decayed(self, values: Tensor) -> Tensor:
        """Return the part of a tensor in the shape of the values to which weight decay applies."""
        return values if self.bias_row is None else values[:, : self.bias_row]


class _Unstacked(Stacked):
    """Parameter of any shape that belongs to a single run."""

    def __init__(self, parameter: Tensor) -> None:
        super().__init__(parameter, run_dim=0)

    def spread(self, per_run: Tensor, *, along_outputs: bool = False) -> Tensor:
        return per_run.reshape(())

    def per_run_squares(self, values: Tensor) -> Tensor:
        return values.square().sum().reshape(1, 1)


class Network(ABC):
    """Network of G groups of K runs.

    Attributes
    ----------
    groups, runs : int
        Numbers of groups and of runs per group.
    parameters : list of Stacked
        Weights of all runs: leaves that require gradients.
    buffers : list of Tensors
        State that is not trained by gradients, such as running means.
    """

    groups: int
    runs: int
    parameters: list[Stacked]
    buffers: list[Tensor]

    @abstractmethod
    def outputs(self, X: Tensor) -> Tensor:
        """Return the outputs (G, K, B, n_outputs) of features (G, B, d), or sparse (B, d)."""

    def train_mode(self, training: bool) -> None:
        """Switch layers that behave differently in training and evaluation, such as dropout."""
        return


class StackedLinear(Network):
    """Linear model of every run, one matrix product (B, d) x (d, K n_outputs) per group.

    The bias is the last row of the weights.

    Parameters
    ----------
    n_features, n_outputs : int
        Numbers of inputs and outputs.
    seeds : sequence of G sequences of K ints
        Seeds of the initial weights. A run has the same initial weights as a single fit with its seed.
    dtype : torch.dtype, default=torch.float32
        Type of the weights.
    device : torch.device or str, default="cpu"
        Device of the weights.
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
        weights = _initial(seeds, 0, n_features + 1, n_outputs, n_features, dtype).permute(0, 2, 1, 3).contiguous()
        self.parameters = [Stacked(weights.to(device).requires_grad_(), run_dim=2, bias_row=n_features)]
        self.buffers = []

    def outputs(self, X: Tensor) -> Tensor:
        """Return the outputs (G, K, B, n_outputs) of features (G, B, d), or sparse (B, d)."""
        return _first_layer(X, self.parameters[0].values)


class StackedMLP(Network):
    """Multilayer perceptron of every run with one hidden layer of 128 rectified linear units.

    Parameters
    ----------
    n_features, n_outputs : int
        Numbers of inputs and outputs.
    seeds : sequence of G sequences of K ints
        Seeds of the initial weights. A run has the same initial weights as a single fit with its seed.
    dtype : torch.dtype, default=torch.float32
        Type of the weights.
    device : torch.device or str, default="cpu"
        Device of the weights.
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
        first = _initial(seeds, 0, n_features + 1, HIDDEN_UNITS, n_features, dtype).permute(0, 2, 1, 3).contiguous()
        second = _initial(seeds, 1, HIDDEN_UNITS, n_outputs, HIDDEN_UNITS, dtype)
        bias = _initial(seeds, 2, 1, n_outputs, HIDDEN_UNITS, dtype)
        self.parameters = [
            Stacked(first.to(device).requires_grad_(), run_dim=2, bias_row=n_features),
            Stacked(second.to(device).requires_grad_(), run_dim=1),
            Stacked(bias.to(device).requires_grad_(), run_dim=1),
        ]
        self.buffers = []

    def outputs(self, X: Tensor) -> Tensor:
        """Return the outputs (G, K, B, n_outputs) of features (G, B, d), or sparse (B, d)."""
        first, second, bias = (parameter.values for parameter in self.parameters)
        return _first_layer(X, first).relu() @ second + bias


class UserNetwork(Network):
    """Module of a user as a network of one run.

    Parameters
    ----------
    module : torch.nn.Module
        Module with at least one trainable parameter.
    """

    groups = runs = 1

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.parameters = [_Unstacked(p) for p in module.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError("model(n_features, n_outputs) must return a module with trainable parameters; got none")

    @property
    def buffers(self) -> list[Tensor]:  # type: ignore[override]
        """Present buffers of the module, which may replace them in every step."""
        return list(self.module.buffers())

    def outputs(self, X: Tensor) -> Tensor:
        """Return the outputs (1, 1, B, n_outputs) of features (1, B, d), or sparse (B, d)."""
        batch = X.to_dense() if X.layout != torch.strided else X[0]
        result: Tensor = self.module(batch)
        return result[None, None]

    def train_mode(self, training: bool) -> None:
        """Switch the module to training or evaluation mode."""
        self.module.train(training)


def make_unflattened(
    model: Callable[..., torch.nn.Module], shape: Sequence[int], n_features: int, n_outputs: int
) -> torch.nn.Module:
    """Return ``model(shape, n_outputs)`` for rows (n, n_features) that are flattened inputs of a shape."""
    return torch.nn.Sequential(torch.nn.Unflatten(1, tuple(shape)), model(tuple(shape), n_outputs))


def _initial(
    seeds: Sequence[Sequence[int]], layer: int, rows: int, columns: int, fan_in: int, dtype: torch.dtype
) -> Tensor:
    """Return weights (G, K, rows, columns), uniform in +-1/sqrt(fan_in) as in ``torch.nn.Linear``."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    weights = torch.empty(len(seeds), len(seeds[0]), rows, columns, dtype=dtype)
    for group, stack in zip(seeds, weights):
        for seed, run in zip(group, stack):
            generator = torch.Generator().manual_seed((seed * 8 + layer) % 2**63)
            for part in run.split(max(1, _RANDOM_BLOCK // columns)):
                part.copy_(torch.empty(part.shape, dtype=torch.float64).uniform_(-bound, bound, generator=generator))
    return weights


def _first_layer(X: Tensor, W: Tensor) -> Tensor:
    """Return features (G, B, d) times weights (G, d + 1, K, o), whose last row is the bias: (G, K, B, o)."""
    G, _, K, o = W.shape
    flat = W.view(G, W.shape[1], K * o)
    product: Tensor
    if X.layout != torch.strided:
        product = (torch.sparse.mm(X, flat[0, :-1]) + flat[0, -1]).unsqueeze(0)
    else:
        product = _Affine.apply(X, flat)  # type: ignore[no-untyped-call]
    return product.view(G, -1, K, o).transpose(1, 2)


class _Affine(torch.autograd.Function):
    """Product x W + b with b in the last row of the weights, whose gradient is written in one piece.

    Through slices, autograd would fill two tensors with zeros and add them. For many labels, this takes more memory
    than everything else.
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


MakeNetwork = Callable[..., Network]

NETWORKS: Registry[MakeNetwork] = Registry("model", {"linear": StackedLinear, "mlp": StackedMLP})
"""Built-in networks by the value of the parameter ``model``."""
