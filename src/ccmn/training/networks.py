"""Networks that hold the weights of many independent runs in one tensor per parameter, and Adam for all of them.

``outputs`` maps a batch of features to (G, K, B, n_outputs). Features are (G, B, d) dense, or one sparse CSR tensor
(B, d) for G = 1.
"""

from __future__ import annotations

import math
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
BETAS = (0.9, 0.999)
"""Decay rates of the moments, the defaults of ``torch.optim.Adam``."""
EPS = 1e-8
"""Constant in the denominator, the default of ``torch.optim.Adam``."""


@dataclass
class Stacked:
    """Parameter of all runs: dimension 0 is the G groups, ``run_dim`` the K runs; a ``bias_row`` is not decayed."""

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
        return torch.as_tensor(torch.linalg.vector_norm(values, dim=dims)).square()

    def decayed(self, values: Tensor) -> Tensor:
        """Return the part of a tensor in the shape of the values to which weight decay applies."""
        return values if self.bias_row is None else values[:, : self.bias_row]


class _Unstacked(Stacked):
    """Parameter of any shape that belongs to a single run."""

    def spread(self, per_run: Tensor, *, along_outputs: bool = False) -> Tensor:
        return per_run.reshape(())

    def per_run_squares(self, values: Tensor) -> Tensor:
        return values.square().sum().reshape(1, 1)


class StackedLinear:
    """Linear model of G groups of K runs, one matrix product (B, d) x (d, K n_outputs) per group.

    The bias is the last row of the weights. A run has the same initial weights as a single fit with its seed; ``seeds``
    are G sequences of K seeds. ``buffers`` is the state that is not trained by gradients, of which there is none.
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
        self.groups, self.runs, self.buffers = len(seeds), len(seeds[0]), list[Tensor]()
        weights = _initial(seeds, 0, n_features + 1, n_outputs, n_features, dtype).permute(0, 2, 1, 3).contiguous()
        self.parameters = [Stacked(weights.to(device).requires_grad_(), run_dim=2, bias_row=n_features)]

    def outputs(self, X: Tensor) -> Tensor:
        """Return the outputs (G, K, B, n_outputs) of features (G, B, d), or sparse (B, d)."""
        W = self.parameters[0].values
        flat = W.view(W.shape[0], W.shape[1], -1)
        product: Tensor
        if X.layout != torch.strided:
            product = (torch.sparse.mm(X, flat[0, :-1]) + flat[0, -1]).unsqueeze(0)
        else:
            product = _Affine.apply(X, flat)  # type: ignore[no-untyped-call]
        return product.view(W.shape[0], -1, *W.shape[2:]).transpose(1, 2)


class StackedMLP(StackedLinear):
    """Multilayer perceptron of every run with one hidden layer of 128 rectified linear units."""

    def __init__(self, n_features: int, n_outputs: int, seeds: Sequence[Sequence[int]], **options: Any) -> None:
        super().__init__(n_features, HIDDEN_UNITS, seeds, **options)
        first = self.parameters[0].values
        for layer, rows in ((1, HIDDEN_UNITS), (2, 1)):  # weights and bias of the second layer
            weights = _initial(seeds, layer, rows, n_outputs, HIDDEN_UNITS, first.dtype)
            self.parameters.append(Stacked(weights.to(first.device).requires_grad_(), run_dim=1))

    def outputs(self, X: Tensor) -> Tensor:
        """Return the outputs (G, K, B, n_outputs) of features (G, B, d), or sparse (B, d)."""
        _, second, bias = self.parameters
        return super().outputs(X).relu() @ second.values + bias.values


class UserNetwork:
    """Module of a user as a network of one run. It is in training mode while gradients are recorded."""

    groups = runs = 1

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.parameters: list[Stacked] = [_Unstacked(p, 0) for p in module.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError("model(n_features, n_outputs) must return a module with trainable parameters; got none")

    @property
    def buffers(self) -> list[Tensor]:
        """Present buffers of the module, which may replace them in every step."""
        return list(self.module.buffers())

    def outputs(self, X: Tensor) -> Tensor:
        """Return the outputs (1, 1, B, n_outputs) of features (1, B, d), or sparse (B, d)."""
        if self.module.training != torch.is_grad_enabled():
            self.module.train(torch.is_grad_enabled())
        result: Tensor = self.module(X.to_dense() if X.layout != torch.strided else X[0])
        return result[None, None]


Network = StackedLinear | UserNetwork


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


NETWORKS: Registry[type[StackedLinear]] = Registry("model", {"linear": StackedLinear, "mlp": StackedMLP})
"""Built-in networks by the value of the parameter ``model``."""


# -- Optimizer


class StackedAdam:
    """Adam for all runs at the same time: ``torch.optim.Adam`` with a learning rate per run.

    ``lr`` and ``weight_decay`` have the shape (G, K). The weight decay is added to the gradient, except for the bias of
    the first layer. Gradients of a run with a norm above ``clip`` are scaled to it.
    """

    def __init__(
        self, parameters: list[Stacked], lr: Tensor, weight_decay: Tensor, *, clip: float | None = 10.0
    ) -> None:
        self.parameters, self.clip = parameters, clip
        self.first, self.second, self._workspace = (
            [torch.zeros_like(p.values, requires_grad=False) for p in parameters] for _ in range(3)
        )
        # A tensor, because the steps of a CUDA graph are counted on the device.
        self.steps = torch.zeros((), dtype=torch.float64, device=parameters[0].values.device)
        self._lr, self._decay = (
            [p.spread(value.to(p.values), along_outputs=True) for p in parameters] for value in (lr, weight_decay)
        )
        self._has_decay = bool((weight_decay != 0).any())

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        """Update the parameters; the gradients of the summed losses are modified in place."""
        if self.clip is not None:
            squares = [p.per_run_squares(g) for p, g in zip(self.parameters, gradients)]
            norm = torch.stack(squares).sum(0).sqrt()
            factor = (self.clip / norm.clamp_min(self.clip)).nan_to_num(0.0)
            for parameter, gradient in zip(self.parameters, gradients):
                gradient.mul_(parameter.spread(factor))
        self.steps += 1
        (b1, b2), t = BETAS, self.steps if self.steps.is_cuda else float(self.steps)
        root = (1 - b2**t) ** 0.5
        rescale = root / (1 - b1**t)
        for i, (parameter, gradient) in enumerate(zip(self.parameters, gradients)):
            values, update = parameter.values, self._workspace[i]
            if self._has_decay:
                parameter.decayed(gradient).addcmul_(parameter.decayed(values), self._decay[i])
            self.first[i].lerp_(gradient, 1 - b1)
            self.second[i].mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
            # lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps); eps is scaled so that the value is that of torch.
            torch.sqrt(self.second[i], out=update).add_(EPS * root)
            torch.div(self.first[i], update, out=update)
            values.addcmul_(update, (self._lr[i] * rescale).to(values.dtype), value=-1)
