"""The fused step of a single run equals torch.optim.Adam for any memory layout."""

from __future__ import annotations

import pytest
import torch

from ccmn.training.networks import UserNetwork
from ccmn.training.optimizer import StackedAdam


class _Hidden(torch.nn.Module):
    """Network with six features and three outputs whose first weight has an unusual memory layout."""

    def __init__(self, weight, first_layer):
        super().__init__()
        self.first, self.first_layer = torch.nn.Parameter(weight.clone()), first_layer
        self.first.data = weight  # a clone would have a different memory layout
        self.second = torch.nn.Parameter(torch.linspace(-1, 1, 15).reshape(5, 3))

    def forward(self, X):
        return torch.tanh(self.first_layer(X, self.first)) @ self.second


_LAYERS = {
    "plain": lambda X, W: X @ W,
    "einsum": lambda X, W: torch.einsum("nd,dh->hn", X, W).t(),
    "by products": lambda X, W: (W.t()[None] * X[:, None]).sum(-1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", _LAYERS)
@pytest.mark.parametrize("stored", ["in rows", "in columns", "with gaps"])
def test_single_run_equals_torch_adam_for_any_strides(stored, layer, dtype):
    generator = torch.Generator().manual_seed(0)
    X, y = (torch.randn(30, size, generator=generator).to(dtype) for size in (6, 3))
    numbers = torch.randn(6, 5, generator=generator).to(dtype)

    def make():
        weight = {"in rows": numbers.clone(), "in columns": numbers.t().contiguous().t()}.get(stored)
        if weight is None:
            weight = torch.zeros(6, 10, dtype=dtype)[:, ::2].copy_(numbers)
        return _Hidden(weight, _LAYERS[layer]).to(dtype)

    ours, theirs = make(), make()
    network = UserNetwork(ours)
    optimizer = StackedAdam(network.parameters, torch.full((1, 1), 0.05), torch.full((1, 1), 0.01), clip=None)
    adam = torch.optim.Adam(theirs.parameters(), lr=0.05, weight_decay=0.01)
    for _ in range(10):
        losses = (network.outputs(X[None]) - y).square().mean()
        optimizer.step([g.clone() for g in torch.autograd.grad(losses, list(ours.parameters()))])
        adam.zero_grad()
        (theirs(X) - y).square().mean().backward()
        adam.step()
    for own, expected in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)
