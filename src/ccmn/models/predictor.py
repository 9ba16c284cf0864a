"""Predictions of a fitted network: its outputs, the scores of the labels, and their probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn.models.calibration import (
    MAX_TAIL,
    linear_probability,
    linear_probability_tensor,
    logistic_probability,
)
from ccmn.models.training_data import Sample
from ccmn.training.batches import DatasetRows
from ccmn.training.networks import Network, StackedMLP, UserNetwork

MAX_BLOCK_ROWS = 8192
"""Rows whose outputs are computed at a time."""
MAX_DENSE_ENTRIES = 1 << 25
"""Entries of a block of rows that is made dense for a network of the user."""
MAX_FLOAT64_WEIGHTS = 1 << 24
"""Weights that are converted to float64 at a time."""
MAX_TILE_WEIGHTS = 1 << 21
"""Weights of a tile of labels: a few megabytes in float64."""

LINKS = {("hamming", "square"): "linear", ("hamming", "logistic"): "logistic"}
"""Relations of scores and probabilities by loss and surrogate; for all others, a slope is fitted."""
MAX_SLOPE_ENTRIES = 1 << 22
"""The slope of probabilities is fitted on at most this number of validation scores."""
MAX_LABEL_SLOPES = 1000
"""With more labels, all labels have the same slope: there are too few scores to fit a slope per label."""
MAX_LABEL_SLOPE_ENTRIES = 1 << 19
"""The slopes of labels are fitted on at most this number of validation scores, which takes about a second."""
_LOG_SLOPES = (-4.0, 4.0)
"""Smallest and largest logarithm of the slope for scores of unit root mean square."""
_LOG_RATIOS = np.linspace(-1.5, 1.5, 101)
"""Logarithms of the ratio of a label's slope to the common slope, over which its posterior is averaged."""


@dataclass
class FittedNetwork:
    """Weights of a trained network by name.

    The outputs of linear models and multilayer perceptrons are computed in float64 from the stored weights. They depend
    neither on how rows are batched nor on whether the model was saved and loaded.
    """

    kind: str
    """"linear", "mlp" or "user"."""
    arrays: dict[str, NDArray[Any]]
    module: torch.nn.Module | None = field(default=None, repr=False)
    """Module of the user for the kind "user"."""

    def outputs(self, X: Any, columns: slice | None = None) -> NDArray[np.float64]:
        """Return the outputs (n, n_outputs), or some columns of them, computed in blocks."""
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

    def _module_outputs(self, X: Any) -> NDArray[np.float64]:
        """Return the outputs of the module of the user."""
        module = self.check_module()
        parameter = next(module.parameters())
        dense = X.read() if isinstance(X, DatasetRows) else X.toarray() if is_sparse(X) else np.asarray(X)
        with torch.no_grad():
            outputs = module(torch.as_tensor(dense).to(parameter.device, parameter.dtype))
        return np.asarray(outputs.double().cpu().numpy())


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
    has_dummy : bool
        Whether output 0 is the dummy label of Eq. (8) of the paper, from which scores are measured.
    link : {"linear", "logistic", "slope"}
        Relation of scores and probabilities.
    slope : float or array of shape (q,)
        Slope of the link "slope": of all labels, or of every label.
    q : int
        Number of labels.
    """

    network: FittedNetwork
    has_dummy: bool
    link: str
    slope: float | NDArray[np.float64]
    q: int

    def scores(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Return the scores (n, q), or only those of some labels; a label is predicted if its score is at least 0."""
        if not self.has_dummy:
            return self.network.outputs(X, labels)
        if labels is None:
            outputs = self.network.outputs(X)
            return outputs[:, 1:] - outputs[:, :1]
        dummy = self.network.outputs(X, slice(0, 1))
        return self.network.outputs(X, slice(labels.start + 1, labels.stop + 1)) - dummy

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of every label, strictly inside (0, 1)."""
        return linear_probability(scores) if self.link == "linear" else logistic_probability(self.slope * scores)

    def tiles(self) -> list[slice]:
        """Return tiles of labels with few weights; all outputs of a custom network are computed together."""
        weights_per_label = 0 if self.network.kind == "user" else int(self.network.last_layer[0].shape[0])
        size = max(1, MAX_TILE_WEIGHTS // max(1, weights_per_label))
        return [slice(start, min(start + size, self.q)) for start in range(0, self.q, size)]


# -- Probabilities


def fit_slope(scorer: Scorer, valid: Sample, *, per_label: bool) -> Scorer:
    """Return the scorer with the slopes of its probabilities, which are fitted to validation rows.

    With ``per_label``, each label has its own slope if there are at
    most ``MAX_LABEL_SLOPES`` labels.
    """
    if scorer.link != "slope":
        return scorer
    q = valid.p.shape[1]
    part = valid.at_most(max(1, MAX_SLOPE_ENTRIES // q))
    scores, p = scorer.scores(part.X), part.dense_labels()
    slope: float | NDArray[np.float64] = common_slope(scores, p, part.weights)
    if per_label and q <= MAX_LABEL_SLOPES:
        part = valid.at_most(MAX_LABEL_SLOPE_ENTRIES // q)
        slope = label_slopes(scorer.scores(part.X), part.dense_labels(), float(slope), part.weights)
    return replace(scorer, slope=slope)


def common_slope(scores: NDArray[Any], p: NDArray[Any], row_weights: NDArray[Any] | None = None) -> float:
    """Return the slope a > 0 that minimizes the mean of softplus(a f) - p a f over debiased labels p.

    One slope for all labels changes neither the threshold at 0 nor any ranking. It is 1 if there are no scores that
    determine it.
    """
    observed = ~np.isnan(p)
    f, target = scores[observed], p[observed]
    weight = np.ones(f.size) if row_weights is None else np.broadcast_to(row_weights[:, None], p.shape)[observed]
    linear, total = float((weight * target * f).sum()), float(weight.sum())
    scale = float(np.sqrt((weight * f**2).sum() / total)) if total > 0 else 0.0
    if scale == 0 or not np.isfinite(scale):
        return 1.0
    f = f / scale

    def derivative(log_a: float) -> float:
        # The zero of the derivative is found to full precision; the minimum of the risk only to half of it.
        return float((weight * f * expit(np.exp(log_a) * f)).sum() - linear / scale) / total

    # The risk is convex in a. If the derivative has no zero in the interval, one of its ends is the minimum.
    low, high = _LOG_SLOPES
    if derivative(low) >= 0 or derivative(high) <= 0:
        return float(np.exp(low if derivative(low) >= 0 else high) / scale)
    return float(np.exp(brentq(derivative, low, high, xtol=1e-14)) / scale)


def label_slopes(
    scores: NDArray[Any], p: NDArray[Any], slope: float, row_weights: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    r"""Return the slope of every label, shrunk towards the common slope.

    The slope :math:`a_j = a e^{b_j}` of label j solves :math:`g_j(b_j) = 0` on average, with

    .. math:: g_j(b) = \sum_i w_i\, a f_{ij} \left(\sigma(a e^b f_{ij}) - p_{ij}\right).

    Its variance :math:`v_j` is the sum of the squared terms at b = 0, which is large for strong noise. The prior is
    normal, with mean 0 and the variance :math:`\tau^2` of DerSimonian and Laird [2]_: of the linear approximation
    :math:`E[g_j(0)^2] = v_j + I_j^2 \tau^2`, where :math:`I_j = g_j'(0)`. The result is :math:`a e^b` for the posterior
    mean b, given :math:`g_j(b) \sim N(0, v_j)`. A label whose scores contain little information keeps the common slope,
    and so do all labels if their slopes differ no more than by chance. The squared moment is bounded, unlike the
    empirical risk, which decreases without limit in a if p exceeds 1.
    """
    observed = ~np.isnan(p)
    weight = observed * (np.ones(len(p)) if row_weights is None else row_weights)[:, None]
    x, target = slope * scores, np.where(observed, p, 0.0)
    at_common = expit(x)
    terms = weight * x * (at_common - target)
    moment, variance = terms.sum(0), (terms**2).sum(0)
    information = (weight * x**2 * at_common * (1 - at_common)).sum(0)
    known = (variance > 0) & (information > 0)
    excess = (moment[known] ** 2 / variance[known]).sum() - (known.sum() - 1)
    if known.sum() < 2 or not excess > 0:  # also if scores are not finite
        return np.full(p.shape[1], slope)
    prior_variance = excess / (information[known] ** 2 / variance[known]).sum()
    linear = (weight * x * target).sum(0)[known]
    x, weight = x[:, known], weight[:, known]
    moments = np.stack([(weight * x * expit(np.exp(b) * x)).sum(0) for b in _LOG_RATIOS]) - linear
    log_posterior = -(moments**2) / (2 * variance[known]) - _LOG_RATIOS[:, None] ** 2 / (2 * prior_variance)
    log_ratio = np.zeros(p.shape[1])
    log_ratio[known] = _LOG_RATIOS @ softmax(log_posterior, axis=0)
    return np.asarray(slope * np.exp(log_ratio))


# -- Torch module


class NetworkModule(torch.nn.Module):
    """Torch module of a fitted classifier: features (n, d) or inputs (n, ...) in, ``predict_proba`` out.

    It contains the whole path from original features to probabilities, for ``torch.export``, ONNX and inference without
    ccmn. Built-in models compute in the type of their stored weights, float32 or float64.

    Parameters
    ----------
    scorer : Scorer
        Fitted network with the interpretation of its outputs.
    normalize : bool
        Whether the probabilities of a row sum to 1, because there is one class per row.
    """

    weight: Tensor
    bias: Tensor
    second_weight: Tensor
    second_bias: Tensor
    slope: Tensor
    tails: Tensor

    def __init__(self, scorer: Scorer, *, normalize: bool) -> None:
        super().__init__()
        network = scorer.network
        self.normalize, self.network_kind, self.has_dummy = normalize, network.kind, scorer.has_dummy
        self.link, self.module = scorer.link, network.check_module() if network.kind == "user" else None
        for name, array in network.arrays.items() if network.kind != "user" else ():
            self.register_buffer(name, torch.tensor(array))
        self.register_buffer("slope", torch.tensor(scorer.slope, dtype=torch.float64))
        self.register_buffer("tails", torch.full((2, 1), MAX_TAIL, dtype=torch.float64))

    def forward(self, X: Tensor) -> Tensor:
        """Return the probabilities (n, q) of the true labels, or (n, n_classes)."""
        scores = self._outputs(X)
        if self.has_dummy:
            scores = scores[:, 1:] - scores[:, :1]
        if self.link == "linear":
            p = linear_probability_tensor(scores, self.tails.to(scores.dtype))
        else:
            p = torch.sigmoid(self.slope.to(scores.dtype) * scores)
        return p / p.sum(1, keepdim=True) if self.normalize else p

    def _outputs(self, X: Tensor) -> Tensor:
        """Return the outputs of the network."""
        if self.module is not None:
            # Inputs with more than two dimensions are flat rows inside, as in ``CCMNClassifier``.
            result: Tensor = self.module(X.flatten(1).to(next(self.module.parameters()).dtype))
            return result
        outputs = X.to(self.weight.dtype) @ self.weight + self.bias
        if self.network_kind == "linear":
            return outputs
        hidden = torch.relu(outputs).to(self.second_weight.dtype)  # only the first layer includes the scaling
        return hidden @ self.second_weight + self.second_bias
