"""A trained network of one run, as plain arrays: what predicts, and what is saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ccmn.data.containers import is_sparse
from ccmn.training import Network, StackedLinear, StackedMLP, UserNetwork

_ROWS_AT_ONCE = 8192


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

    def _block(self, X: Any) -> NDArray[np.float64]:
        if self.kind == "user":
            return _module_outputs(self.module, X)
        a = self.arrays
        X = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
        hidden: NDArray[np.float64] = np.asarray(X @ a["weight"].astype(np.float64)) + a["bias"]
        if self.kind == "linear":
            return hidden
        return np.asarray(np.maximum(hidden, 0) @ a["second_weight"].astype(np.float64) + a["second_bias"])


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
