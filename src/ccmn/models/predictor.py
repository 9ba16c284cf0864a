"""Predictions of a fitted model: outputs of the network, scores of the labels, and predictions for many labels.

Scores of many labels exist only for one tile of rows and labels at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ccmn._containers import is_dataframe, is_sparse
from ccmn._validation import check_choice
from ccmn.models.calibration import (
    MAX_TAIL,
    corrected_tails,
    linear_probability,
    linear_probability_tensor,
    logistic_probability,
)
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.noise.class_conditional import debias_labels
from ccmn.training import Network, StackedMLP, UserNetwork
from ccmn.training.batches import DatasetRows
from ccmn.training.forest import Forest

MAX_BLOCK_ROWS = 8192
"""Rows whose outputs are computed at a time."""
MAX_DENSE_ENTRIES = 1 << 25
"""Entries of a block of rows that is made dense for a network of the user."""
MAX_FLOAT64_WEIGHTS = 1 << 24
"""Weights that are converted to float64 at a time."""
MIN_PROBABILITY = 1e-6
"""Smallest probability whose log-odds are computed."""
MAX_TILE_SCORES = 1 << 20
"""Scores of a tile of rows and labels."""
MAX_TILE_WEIGHTS = 1 << 21
"""Weights of a tile of labels: a few megabytes in float64."""

MakeModule = Callable[[int, int], torch.nn.Module]
"""(n_features, n_outputs) -> module."""
Scores = Callable[[Any, slice], NDArray[np.float64]]
"""(features of some rows, some labels) -> their scores."""


@dataclass
class FittedNetwork:
    """Weights of a trained network by name.

    The outputs of linear models and multilayer perceptrons are computed in float64 from the stored weights. They depend
    neither on how rows are batched nor on whether the model was saved and loaded.
    """

    kind: str
    """"linear", "mlp", "average" or "user"."""
    arrays: dict[str, NDArray[Any]]
    module: torch.nn.Module | None = field(default=None, repr=False)
    """Module of the user for the kind "user"."""

    def outputs(self, X: Any, columns: slice | None = None) -> NDArray[np.float64]:
        """Return the outputs (n, n_outputs), or some columns of them, computed in blocks."""
        if self.kind == "average":
            return self._average_outputs(X)[:, columns or slice(None)]
        blocks = []
        block_rows = MAX_BLOCK_ROWS
        if self.kind == "user":
            block_rows = max(1, min(block_rows, MAX_DENSE_ENTRIES // X.shape[1]))
        for start in range(0, X.shape[0], block_rows):
            rows = X[start : start + block_rows]
            if self.kind == "user":
                blocks.append(self._module_outputs(rows)[:, columns or slice(None)])
                continue
            rows = rows if is_sparse(rows) else np.asarray(rows, dtype=np.float64)
            if self.kind == "mlp":
                hidden = np.asarray(rows @ self.arrays["weight"].astype(np.float64)) + self.arrays["bias"]
                rows = np.maximum(hidden, 0)
            weight, bias = self.last_layer
            if columns is not None:
                weight, bias = weight[:, columns], bias[columns]
            size = max(1, MAX_FLOAT64_WEIGHTS // max(1, weight.shape[0]))
            parts = [
                np.asarray(rows @ weight[:, first : first + size].astype(np.float64)) + bias[first : first + size]
                for first in range(0, weight.shape[1], size)
            ]
            blocks.append(parts[0] if len(parts) == 1 else np.concatenate(parts, 1))
        return np.concatenate(blocks)

    @cached_property
    def forest(self) -> Forest:
        """Forest of an average."""
        n_features, n_labels = self.arrays.get("projection", self.arrays["weight"].T).shape[1], self.arrays["bias"].size
        return Forest.from_arrays(self.arrays, n_features, n_labels)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the cached forest, which follows from the arrays, for pickle and skops."""
        return {name: value for name, value in self.__dict__.items() if name != "forest"}

    def _average_outputs(self, X: Any) -> NDArray[np.float64]:
        """Return the log-odds of the average probability of a linear model and a forest, after Platt scaling."""
        linear = FittedNetwork("linear", {name: self.arrays[name] for name in ("weight", "bias")})
        share = float(self.arrays["linear_share"][0])
        of_forest = self.forest.predict(forest_features(X, self.arrays.get("projection")))
        slope, offset = self.arrays["platt"]
        return np.asarray(slope * log_odds(share * expit(linear.outputs(X)) + (1 - share) * of_forest) + offset)

    @property
    def last_layer(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights (n_inputs, n_outputs) and bias (n_outputs,) of the last layer."""
        names = ("weight", "bias") if self.kind in ("linear", "average") else ("second_weight", "second_bias")
        return self.arrays[names[0]], self.arrays[names[1]]

    def check_module(self) -> torch.nn.Module:
        """Return the module of the user; raise an error if it has not been passed to ``load_model``."""
        if self.module is None:
            raise ValueError("This model uses a custom network; load it with load_model(path, model=...)")
        return self.module

    def _module_outputs(self, X: Any) -> NDArray[np.float64]:
        """Return the outputs of the module of the user."""
        module = self.check_module()
        parameter = next(module.parameters())
        dense = X.read() if isinstance(X, DatasetRows) else X.toarray() if is_sparse(X) else np.asarray(X)
        with torch.no_grad():
            outputs = module(torch.as_tensor(dense).to(parameter.device, parameter.dtype))
        return np.asarray(outputs.double().cpu().numpy())


def forest_features(X: Any, projection: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Return the features that a forest takes, in the range of float32: dense ones, or projected sparse ones."""
    limit = float(np.finfo(np.float32).max)
    features = np.asarray(X if projection is None else X @ projection)
    return np.asarray(np.clip(features, -limit, limit), dtype=np.float32)


def log_odds(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-odds of probabilities, which are clipped to ``MIN_PROBABILITY``."""
    p = np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.asarray(np.log(p / (1 - p)))


def extract_run(network: Network, k: int) -> FittedNetwork:
    """Return the weights of run k of the first group."""
    if isinstance(network, UserNetwork):
        state = {name: t.detach().cpu().numpy() for name, t in network.module.state_dict().items()}
        return FittedNetwork("user", state, network.module)
    first = network.parameters[0].values.detach()[0, :, k].cpu().numpy()
    arrays = {"weight": first[:-1].copy(), "bias": first[-1].copy()}
    if not isinstance(network, StackedMLP):
        return FittedNetwork("linear", arrays)
    second, bias = (p.values.detach()[0, k].cpu().numpy() for p in network.parameters[1:])
    return FittedNetwork("mlp", {**arrays, "second_weight": second.copy(), "second_bias": bias[0].copy()})


@dataclass(frozen=True)
class Scorer:
    """Fitted network with the interpretation of its outputs.

    Parameters
    ----------
    network : FittedNetwork
        Trained weights.
    noise : NoiseModel
        Noise model, which is inverted for the link "plugin".
    has_dummy : bool
        Whether output 0 is the dummy label of Eq. (8) of the paper, from which scores are measured.
    link : {"linear", "logistic", "plugin", "slope"}
        Relation of scores and probabilities, see :mod:`ccmn.models.calibration`.
    slope : float or array of shape (q,)
        Slope of the link "slope": of all labels, or of every label.
    thresholds : array of shape (q,)
        Threshold of every label.
    """

    network: FittedNetwork
    noise: NoiseModel
    has_dummy: bool
    link: str
    slope: float | NDArray[np.float64]
    thresholds: NDArray[np.float64]

    def scores(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Return the scores (n, q) before thresholds, or only the scores of some labels."""
        if not self.has_dummy:
            outputs = self.network.outputs(X, labels)
        elif labels is None:
            outputs = self.network.outputs(X)
            outputs = outputs[:, 1:] - outputs[:, :1]
        else:
            dummy = self.network.outputs(X, slice(0, 1))
            outputs = self.network.outputs(X, slice(labels.start + 1, labels.stop + 1)) - dummy
        return self.scores_of(outputs, labels)

    def scores_of(self, outputs: NDArray[np.float64], labels: slice | None = None) -> NDArray[np.float64]:
        """Return the scores of outputs, from which the dummy label has been subtracted."""
        if self.link != "plugin":
            return outputs
        assert isinstance(self.noise, ClassConditionalNoise)
        rho_pos, rho_neg = (rates[labels or slice(None)] for rates in (self.noise.rho_pos, self.noise.rho_neg))
        # Increasing in the log-odds of the noisy label; 0 if the probability of the true label is 1/2.
        return np.asarray(2 * debias_labels(expit(outputs), rho_pos, rho_neg) - 1)

    def decisions(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Return the scores minus the thresholds; a label is predicted if its decision is at least 0."""
        return self.scores(X, labels) - self.thresholds[labels or slice(None)]

    def probabilities(self, decisions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of every label, strictly inside (0, 1)."""
        if self.link in ("linear", "plugin"):
            return linear_probability(decisions, self.tails)
        return logistic_probability(self.slope * decisions)

    @property
    def tails(self) -> NDArray[np.float64]:
        """Tails (2, q) of the links "linear" and "plugin", see :func:`linear_probability`."""
        if self.link == "plugin":
            assert isinstance(self.noise, ClassConditionalNoise)
            return corrected_tails(self.noise.rho_pos, self.noise.rho_neg, self.thresholds)
        return np.full((2, len(self.thresholds)), MAX_TAIL)

    def tiles(self, per_label: int = 1) -> list[slice]:
        """Return tiles of labels with few weights, and with few values if each label needs ``per_label`` of them."""
        q = self.thresholds.size
        # All outputs of a custom network or a forest are computed together.
        if self.network.kind == "average":
            return [slice(0, q)]
        weights_per_label = 0 if self.network.kind == "user" else int(self.network.last_layer[0].shape[0])
        size = max(1, MAX_TILE_WEIGHTS // max(1, weights_per_label, per_label))
        return [slice(start, min(start + size, q)) for start in range(0, q, size)]


# -- Torch modules


class ProbabilityModule(torch.nn.Module):
    """Torch module of a fitted classifier: features (n, d) or inputs (n, ...) in, ``predict_proba`` out.

    It contains the whole path from original features to calibrated probabilities, for ``torch.export``, ONNX and
    inference without ccmn. Built-in models compute in the type of their stored weights, float32 or float64.

    Parameters
    ----------
    scorer : Scorer
        Fitted network with the interpretation of its outputs.
    kind : {"multilabel", "binary", "multiclass"}
        What the probabilities are about; two classes have two columns.
    """

    weight: Tensor
    bias: Tensor
    second_weight: Tensor
    second_bias: Tensor
    projection: Tensor
    linear_share: Tensor
    platt: Tensor
    rates: Tensor
    slope: Tensor
    thresholds: Tensor
    tails: Tensor

    def __init__(self, scorer: Scorer, kind: str) -> None:
        super().__init__()
        network = scorer.network
        self.kind, self.network_kind = kind, network.kind
        self.has_dummy, self.link = scorer.has_dummy, scorer.link
        self.module: torch.nn.Module | None = None
        self.forest = network.forest.module if network.kind == "average" else None
        if network.kind == "user":
            network.check_module()
            self.module = network.module
        else:
            for name in ("weight", "bias", "second_weight", "second_bias", "projection", "linear_share", "platt"):
                if name in network.arrays:
                    self.register_buffer(name, torch.tensor(network.arrays[name]))
        noise = scorer.noise
        rates = np.zeros((2, len(scorer.thresholds)))
        if isinstance(noise, ClassConditionalNoise):
            rates = np.stack((noise.rho_pos, noise.rho_neg))
        self.register_buffer("rates", torch.tensor(rates))
        self.register_buffer("slope", torch.tensor(scorer.slope, dtype=torch.float64))
        self.register_buffer("thresholds", torch.tensor(scorer.thresholds))
        self.register_buffer("tails", torch.tensor(scorer.tails))

    def forward(self, X: Tensor) -> Tensor:
        """Return the probabilities (n, q) of the true labels, or (n, n_classes)."""
        outputs = self._outputs(X)
        if self.has_dummy:
            outputs = outputs[:, 1:] - outputs[:, :1]
        if self.link == "plugin":
            rho_pos, rho_neg = self.rates.to(outputs.dtype)
            outputs = 2 * debias_labels(torch.sigmoid(outputs), rho_pos, rho_neg) - 1
        decisions = outputs - self.thresholds.to(outputs.dtype)
        if self.link in ("linear", "plugin"):
            p = linear_probability_tensor(decisions, self.tails.to(outputs.dtype))
        else:
            p = torch.sigmoid(self.slope.to(outputs.dtype) * decisions)
        if self.kind == "multiclass":
            return p / p.sum(1, keepdim=True)
        return torch.cat((1 - p, p), 1) if self.kind == "binary" else p

    def _outputs(self, X: Tensor) -> Tensor:
        """Return the outputs of the network."""
        if self.module is not None:
            # Inputs with more than two dimensions are flat rows inside, as in ``CCMNClassifier``.
            outputs: Tensor = self.module(X.flatten(1).to(next(self.module.parameters()).dtype))
            return outputs
        outputs = X.to(self.weight.dtype) @ self.weight + self.bias
        if self.network_kind == "mlp":
            hidden = torch.relu(outputs).to(self.second_weight.dtype)  # only the first layer includes the scaling
            return hidden @ self.second_weight + self.second_bias
        if self.forest is None:
            return outputs
        features = X if not hasattr(self, "projection") else X.to(self.projection.dtype) @ self.projection
        share = self.linear_share.to(outputs.dtype)
        mean = share * torch.sigmoid(outputs) + (1 - share) * self.forest(features).to(outputs.dtype)
        outputs = torch.logit(mean, MIN_PROBABILITY)
        slope, offset = self.platt.to(outputs.dtype)
        scaled: Tensor = slope * outputs + offset
        return scaled


# -- Predictions for many labels


def predicted_labels(scores: Scores, X: Any, tiles: list[slice]) -> Any:
    """Return the labels with a score of at least 0 as a CSR matrix (n, q) of int64."""
    rows, columns = [], []
    for labels, part, f in _tile_scores(scores, X, tiles):
        row, column = np.nonzero(f >= 0)
        rows.append(row + part.start)
        columns.append(column + labels.start)
    at = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(at[0].size, dtype=np.int64)
    return scipy.sparse.coo_matrix((ones, at), shape=(X.shape[0], tiles[-1].stop)).tocsr()


def top_labels(scores: Scores, X: Any, tiles: list[slice], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k labels with the highest scores of every row, highest first, and these scores: (n, k) each.

    The best k labels so far are merged with one tile at a time by partial sorting, in O(n q) time. Of equal scores, the
    first label comes first among those that are kept.
    """
    n = X.shape[0]
    best, best_labels = np.full((n, 0), -np.inf), np.zeros((n, 0), dtype=np.int64)
    for tile in tiles:
        merged = []
        for _, part, f in _tile_scores(scores, X, [tile]):
            values = np.concatenate((best[part], f), 1)
            new = np.broadcast_to(np.arange(tile.start, tile.start + f.shape[1]), f.shape)
            labels = np.concatenate((best_labels[part], new), 1)
            if values.shape[1] > k:
                kept = np.argpartition(-values, k - 1, axis=1)[:, :k]
                values, labels = np.take_along_axis(values, kept, 1), np.take_along_axis(labels, kept, 1)
            merged.append((values, labels))
        best, best_labels = (np.concatenate(side) for side in zip(*merged))
    order = np.lexsort((best_labels, -best))
    return np.take_along_axis(best_labels, order, 1), np.take_along_axis(best, order, 1)


def _tile_scores(scores: Scores, X: Any, tiles: list[slice]) -> Iterator[tuple[slice, slice, NDArray[np.float64]]]:
    """Yield (labels, rows, their scores) tile by tile."""
    for labels in tiles:
        size = max(1, MAX_TILE_SCORES // (labels.stop - labels.start))
        for start in range(0, X.shape[0], size):
            part = slice(start, min(start + size, X.shape[0]))
            yield labels, part, scores(X[part], labels)


def with_names(values: Any, columns: Any, X: object, output: str) -> Any:
    """Return predictions unchanged, or as a DataFrame or Series with the names of the labels and the index of X."""
    check_choice(output, "output", ("array", "frame"))
    if output == "array":
        return values
    from pandas import DataFrame, Series

    index = X.index if is_dataframe(X) else None  # type: ignore[attr-defined]
    if is_sparse(values):
        return DataFrame.sparse.from_spmatrix(values, index=index, columns=columns)  # type: ignore[attr-defined]
    if values.ndim == 1:
        return Series(values, index=index)
    return DataFrame(values, index=index, columns=columns)
