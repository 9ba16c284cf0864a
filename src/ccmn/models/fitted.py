"""A trained network of one run, as plain arrays: what predicts, and what is saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.training import Network, StackedLinear, StackedMLP, UserNetwork

_ROWS_AT_ONCE = 8192
_WEIGHTS_AT_ONCE = 1 << 24
"""Larger weights are taken to float64 a part at a time."""


@dataclass
class FittedNetwork:
    """Weights by name, and the module itself where the user brought one.

    Linear and MLP outputs are computed in float64 from the stored weights, so that they depend neither on how rows
    are batched nor on whether the model was saved in between.
    """

    kind: str
    """"linear", "mlp" or "user"."""
    arrays: dict[str, NDArray[Any]]
    module: torch.nn.Module | None = field(default=None, repr=False)

    def outputs(self, X: Any) -> NDArray[np.float64]:
        """(n, n_outputs); rows are taken in blocks, sparse ones stay sparse in products."""
        blocks = [self._block(X[start : start + _ROWS_AT_ONCE]) for start in range(0, X.shape[0], _ROWS_AT_ONCE)]
        return np.concatenate(blocks)

    def some_outputs(self, X: Any, columns: slice) -> NDArray[np.float64]:
        """Some of the outputs of a few rows. A user's own network can only work out all of them."""
        return _module_outputs(self.module, X)[:, columns] if self.kind == "user" else self._some(X, columns)

    @property
    def weights_per_output(self) -> int:
        """How many weights one output costs to look at; for a user's own network all outputs cost the same."""
        return 0 if self.kind == "user" else int(self._last[0].shape[0])

    @property
    def _last(self) -> tuple[NDArray[Any], NDArray[Any]]:
        names = ("weight", "bias") if self.kind == "linear" else ("second_weight", "second_bias")
        return self.arrays[names[0]], self.arrays[names[1]]

    def _block(self, X: Any) -> NDArray[np.float64]:
        if self.kind == "user":
            return _module_outputs(self.module, X)
        inputs, columns = self._last[0].shape
        size = max(1, _WEIGHTS_AT_ONCE // max(1, inputs))
        if columns <= size:
            return self._some(X, slice(None))
        outputs = np.empty((X.shape[0], columns))
        for start in range(0, columns, size):
            outputs[:, start : start + size] = self._some(X, slice(start, start + size))
        return outputs

    def _some(self, X: Any, columns: slice) -> NDArray[np.float64]:
        X = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
        if self.kind == "mlp":
            X = np.maximum(np.asarray(X @ self.arrays["weight"].astype(np.float64)) + self.arrays["bias"], 0)
        weight, bias = self._last
        return np.asarray(np.asarray(X @ weight[:, columns].astype(np.float64)) + bias[columns])


def _module_outputs(module: torch.nn.Module | None, X: Any) -> NDArray[np.float64]:
    if module is None:
        raise ValueError("this model has a network of the user's own: load it with load_model(path, model=...)")
    parameter = next(module.parameters())
    dense = X.toarray() if is_sparse(X) else np.asarray(X)
    with torch.no_grad():
        outputs = module(torch.as_tensor(dense).to(parameter.device, parameter.dtype))
    return np.asarray(outputs.double().cpu().numpy())


def run_of(network: Network, k: int) -> FittedNetwork:
    """Run k of the first group of a stack, taken out."""
    if isinstance(network, UserNetwork):
        state = {name: t.detach().cpu().numpy() for name, t in network.module.state_dict().items()}
        return FittedNetwork("user", state, network.module)
    first = network.parameters[0].values.detach()[0, :, k].cpu().numpy()
    arrays = {"weight": first[:-1].copy(), "bias": first[-1].copy()}
    if isinstance(network, StackedMLP):
        second, cut = (p.values.detach()[0, k].cpu().numpy() for p in network.parameters[1:])
        return FittedNetwork("mlp", {**arrays, "second_weight": second.copy(), "second_bias": cut[0].copy()})
    assert isinstance(network, StackedLinear)
    return FittedNetwork("linear", arrays)


MakeModule = Callable[[int, int], torch.nn.Module]


def rebuild_module(make: MakeModule, n_features: int, n_outputs: int, arrays: dict[str, NDArray[Any]]) -> FittedNetwork:
    """A user's network with saved weights in it."""
    module = make(n_features, n_outputs)
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"the network that model(...) makes does not fit the saved weights: {error}") from None
    return FittedNetwork("user", arrays, module.eval())
