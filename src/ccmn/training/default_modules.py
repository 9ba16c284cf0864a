"""Torch modules of the fitted default model, for export and compilation; all weights are buffers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ccmn.training.default_model import MAX_Z, NoisyLabelModel
from ccmn.training.default_settings import MIN_PROBABILITY
from ccmn.training.forest import Forest


class ForestModule(nn.Module):
    """Torch module of a forest, for export and compilation; all weights are buffers.

    ``forward`` takes features (n, n_features) and returns label probabilities (n, n_labels). All rows walk through all
    trees for a fixed number of comparisons; leaves refer to themselves. Temporary memory is n x n_trees x n_labels
    numbers: pass large inputs in batches.
    """

    feature: Tensor
    threshold: Tensor
    right: Tensor
    roots: Tensor
    leaf: Tensor
    values: Tensor

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        is_leaf = forest.feature < 0
        right, roots, self.depth = forest.structure
        buffers = {
            "feature": np.maximum(forest.feature, 0).astype(np.int64),
            # No number is <= NaN, so that a leaf always continues with its "right child": itself.
            "threshold": np.where(is_leaf, np.float32(np.nan), forest.threshold),
            "right": right,
            "roots": roots,
            "leaf": np.cumsum(is_leaf) - 1,
            "values": forest.values,
        }
        for name, array in buffers.items():
            self.register_buffer(name, torch.tensor(array))

    def forward(self, X: Tensor) -> Tensor:
        """Return label probabilities (n, n_labels) of features (n, n_features)."""
        n, n_features = X.shape
        n_trees = self.roots.shape[0]
        entries = X.to(torch.float32).reshape(-1)
        # index_select on flat tensors is two to three times as fast as gather and advanced indexing.
        offset = (torch.arange(n, device=X.device) * n_features).repeat(n_trees)
        node = self.roots.unsqueeze(1).expand(n_trees, n).reshape(-1)
        for _ in range(self.depth):
            x = entries.index_select(0, offset + self.feature.index_select(0, node))
            is_left = x <= self.threshold.index_select(0, node)
            node = torch.where(is_left, node + 1, self.right.index_select(0, node))
        leaves = self.values.index_select(0, self.leaf.index_select(0, node))
        # In float64, the sum does not depend on its order, which varies with the number of rows.
        return leaves.reshape(n_trees, n, -1).mean(0, dtype=torch.float64).to(self.values.dtype)


class NoisyLabelModule(torch.nn.Module):
    """Torch module of a fitted model: dense features (n, d) in, log-odds of the noisy labels (n, q) out."""

    coef: Tensor
    intercept: Tensor
    mean: Tensor
    scale: Tensor
    components: Tensor

    def __init__(self, model: NoisyLabelModel) -> None:
        super().__init__()
        for name, array in model.arrays().items():
            if name in ("coef", "intercept", "mean", "scale", "components"):
                self.register_buffer(name, torch.tensor(array))
        self.limit = MAX_Z if model.is_dense else torch.inf
        self.share = model.share_
        self.forest = ForestModule(model.forest_) if model.forest_ is not None and model.share_ < 1 else None

    def forward(self, X: Tensor) -> Tensor:
        """Return the log-odds of the noisy labels."""
        A = ((X.to(self.coef.dtype) - self.mean) / self.scale).clamp(-self.limit, self.limit)
        p = torch.sigmoid(A @ self.coef.T + self.intercept)
        if self.forest is not None:
            features = A @ self.components.T if hasattr(self, "components") else A
            p = self.share * p + (1 - self.share) * self.forest(features).to(p.dtype)
        return torch.logit(p, MIN_PROBABILITY)
