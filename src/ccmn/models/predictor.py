"""Predictions of a fitted network: its outputs, the scores of the labels, and their probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn.models.calibration import MAX_TAIL, linear_probability, logistic_probability
from ccmn.models.training_data import Sample
from ccmn.training.batches import DatasetRows, label_source
from ccmn.training.networks import Network, StackedMLP, UserNetwork

MAX_BLOCK_ROWS = 8192
"""Rows whose outputs are computed at a time."""
MAX_DENSE_ENTRIES = 1 << 25
"""Entries of a block of rows that is made dense for a network of the user."""
MAX_TILE_WEIGHTS = 1 << 21
"""Weights of a tile of labels, which are converted to float64 at a time: 16 megabytes."""

LINKS = {("hamming", "square"): "linear", ("hamming", "logistic"): "logistic"}
"""Relations of scores and probabilities by loss and surrogate; for all others, a slope is fitted."""
MAX_SLOPE_ENTRIES = 1 << 22
"""The slope of probabilities is fitted on at most this number of validation scores."""
_LOG_SLOPES = (-4.0, 4.0)
"""Smallest and largest logarithm of the slope for scores of unit root mean square."""


@dataclass
class FittedNetwork:
    """Weights of a trained network with the interpretation of its outputs.

    The outputs of linear models and multilayer perceptrons are computed in float64 from the stored weights. They depend
    neither on how rows are batched nor on whether the model was saved and loaded.

    ``arrays`` are the weights by name. If ``has_dummy``, output 0 is the dummy label of Eq. (8) of the paper, from
    which scores are measured. ``link`` is the relation of scores and probabilities, with a ``slope`` for the link
    "slope". ``module`` is the module of the user for the kind "user".
    """

    kind: str
    arrays: dict[str, NDArray[Any]]
    n_labels: int
    has_dummy: bool
    link: str
    slope: float = 1.0
    module: torch.nn.Module | None = field(default=None, repr=False)

    @classmethod
    def of(cls, network: Network, run: int, n_labels: int, has_dummy: bool, link: str) -> FittedNetwork:
        """Return the weights of one run of the first group."""
        if isinstance(network, UserNetwork):
            state = {name: t.detach().cpu().numpy() for name, t in network.module.state_dict().items()}
            return cls("user", state, n_labels, has_dummy, link, module=network.module.eval())
        first = network.parameters[0].values.detach()[0, :, run].cpu().numpy()
        arrays = {"weight": first[:-1].copy(), "bias": first[-1].copy()}
        if not isinstance(network, StackedMLP):
            return cls("linear", arrays, n_labels, has_dummy, link)
        second, bias = (p.values.detach()[0, run].cpu().numpy() for p in network.parameters[1:])
        arrays |= {"second_weight": second.copy(), "second_bias": bias[0].copy()}
        return cls("mlp", arrays, n_labels, has_dummy, link)

    @property
    def last_layer(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights (n_inputs, n_outputs) and bias (n_outputs,) of the last layer."""
        names = ("weight", "bias") if self.kind == "linear" else ("second_weight", "second_bias")
        return self.arrays[names[0]], self.arrays[names[1]]

    def check_module(self) -> torch.nn.Module:
        """Return the module of the user; raise an error if it has not been passed to ``load_model``."""
        if self.module is None:
            raise ValueError("This model uses a custom network; load it with load_model(path, model=...)")
        return self.module

    def scores(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Return the scores (n, q), or only those of some labels; a label is predicted if its score is at least 0."""
        step = MAX_BLOCK_ROWS
        if self.kind == "user":
            step = max(1, min(step, MAX_DENSE_ENTRIES // X.shape[1]))
        return np.concatenate([self._scores(X[start : start + step], labels) for start in range(0, X.shape[0], step)])

    def _scores(self, rows: Any, labels: slice | None) -> NDArray[np.float64]:
        first = int(self.has_dummy)
        if self.kind == "user":
            module = self.check_module()
            parameter = next(module.parameters())
            dense = rows.read() if isinstance(rows, DatasetRows) else rows.toarray() if is_sparse(rows) else rows
            with torch.no_grad():
                tensor = module(torch.as_tensor(np.asarray(dense)).to(parameter.device, parameter.dtype))
            outputs = np.asarray(tensor.double().cpu().numpy())
            scores = outputs[:, 1:] - outputs[:, :1] if self.has_dummy else outputs
            return scores if labels is None else scores[:, labels]
        rows = rows if is_sparse(rows) else np.asarray(rows, dtype=np.float64)
        if self.kind == "mlp":
            hidden = np.asarray(rows @ self.arrays["weight"].astype(np.float64)) + self.arrays["bias"]
            rows = np.maximum(hidden, 0)
        dummy = self._outputs(rows, slice(0, 1)) if self.has_dummy else 0.0
        tiles = self.tiles() if labels is None else [labels]
        parts = [self._outputs(rows, slice(tile.start + first, tile.stop + first)) for tile in tiles]
        return (parts[0] if len(parts) == 1 else np.concatenate(parts, 1)) - dummy

    def _outputs(self, rows: Any, columns: slice) -> NDArray[np.float64]:
        weight, bias = self.last_layer
        return np.asarray(np.asarray(rows @ weight[:, columns].astype(np.float64)) + bias[columns])

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of every label, strictly inside (0, 1)."""
        return linear_probability(scores) if self.link == "linear" else logistic_probability(self.slope * scores)

    def tiles(self) -> list[slice]:
        """Return tiles of labels with few weights; all outputs of a custom network are computed together."""
        weights_per_label = 0 if self.kind == "user" else int(self.last_layer[0].shape[0])
        size = max(1, MAX_TILE_WEIGHTS // max(1, weights_per_label))
        return [slice(start, min(start + size, self.n_labels)) for start in range(0, self.n_labels, size)]

    def fit_slope(self, valid: Sample) -> None:
        """Fit the slope to validation rows if the link has one.

        The slope a > 0 minimizes the mean of softplus(a f) - p a f over debiased labels p (Platt scaling without
        offset). One slope for all labels changes neither the threshold at 0 nor any ranking. It is 1 if there are no
        scores that determine it.
        """
        if self.link != "slope":
            return
        n = valid.X.shape[0]
        count = min(n, max(1, MAX_SLOPE_ENTRIES // self.n_labels))
        part = valid.take(np.linspace(0, n - 1, count).astype(np.int64))
        scores, labels = self.scores(part.X), label_source(part.p, torch.device("cpu"), torch.float32)
        p = labels.targets(torch.arange(count).unsqueeze(0))[0, 0].numpy()
        observed = ~np.isnan(p)
        f, target = scores[observed], p[observed]
        weight = np.ones(f.size) if part.weights is None else np.broadcast_to(part.weights[:, None], p.shape)[observed]
        linear, total = float((weight * target * f).sum()), float(weight.sum())
        scale = float(np.sqrt((weight * f**2).sum() / total)) if total > 0 else 0.0
        if scale == 0 or not np.isfinite(scale):
            return
        f = f / scale

        def derivative(log_a: float) -> float:
            # The zero of the derivative is found to full precision; the minimum of the risk only to half of it.
            return float((weight * f * expit(np.exp(log_a) * f)).sum() - linear / scale) / total

        # The risk is convex in a. If the derivative has no zero in the interval, one of its ends is the minimum.
        low, high = _LOG_SLOPES
        log_a = low if derivative(low) >= 0 else high
        if derivative(low) < 0 < derivative(high):
            log_a = brentq(derivative, low, high, xtol=1e-14)
        self.slope = float(np.exp(log_a) / scale)


class NetworkModule(torch.nn.Module):
    """Torch module of a fitted classifier: features (n, d) or inputs (n, ...) in, ``predict_proba`` out.

    It contains the whole path from original features to probabilities, for ``torch.export``, ONNX and inference without
    ccmn. Built-in models compute in the type of their stored weights, float32 or float64.
    With ``normalize``, the probabilities of a row sum to 1, because there is one class per row.
    """

    def __init__(self, network: FittedNetwork, *, normalize: bool) -> None:
        super().__init__()
        self.normalize, self.has_dummy = normalize, network.has_dummy
        self.link, self.slope = network.link, network.slope
        if network.kind == "user":
            self.module = network.check_module()
            return
        layers = [_layer(network.arrays["weight"], network.arrays["bias"])]
        if network.kind == "mlp":
            layers += [torch.nn.ReLU(), _layer(*network.last_layer)]
        self.module = torch.nn.Sequential(*layers).to(next(layers[0].parameters()).dtype)

    def forward(self, X: Tensor) -> Tensor:
        """Return the probabilities (n, q) of the true labels, or (n, n_classes)."""
        # Inputs with more than two dimensions are flat rows inside, as in ``CCMNClassifier``.
        scores = self.module(X.flatten(1).to(next(self.module.parameters()).dtype))
        if self.has_dummy:
            scores = scores[:, 1:] - scores[:, :1]
        if self.link == "linear":
            p, tiny = (1 + scores) / 2, torch.finfo(scores.dtype).tiny
            low, high = (MAX_TAIL**2 / (2 * MAX_TAIL - part).clamp_min(tiny) for part in (p, 1 - p))
            p = torch.where(p < MAX_TAIL, low, torch.where(1 - p < MAX_TAIL, 1 - high, p))
        else:
            p = torch.sigmoid(self.slope * scores)
        return p / p.sum(1, keepdim=True) if self.normalize else p


def _layer(weight: NDArray[Any], bias: NDArray[Any]) -> torch.nn.Module:
    layer = torch.nn.Linear(weight.shape[0], weight.shape[1], dtype=torch.from_numpy(weight).dtype)
    layer.load_state_dict({"weight": torch.tensor(weight.T), "bias": torch.tensor(bias)})
    return layer.requires_grad_(False)
