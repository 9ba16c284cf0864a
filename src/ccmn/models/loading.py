"""A model on disk back into an estimator that predicts, bit for bit, what it did."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.models.classifier import CCMNClassifier
from ccmn.models.fitted import FittedNetwork, rebuild_module
from ccmn.models.persistence import read_model
from ccmn.models.scoring import Scorer
from ccmn.noise import GroupedNoise, NoiseModel


def load_model(path: str | os.PathLike[str], model: Callable[..., Any] | None = None) -> CCMNClassifier:
    """Read a model that ``CCMNClassifier.save`` wrote. ValueError for anything that is not a whole one.

    Parameters
    ----------
    path : the file or folder
    model : callable (n_features, n_outputs) -> torch.nn.Module, optional
        Needed when the model was fitted with a network of the user's own: code is never stored.
    """
    description, arrays = read_model(path)
    try:
        return _rebuild(description, arrays, model)
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"{path} is not a whole ccmn model: {type(error).__name__}: {error}") from None


def _rebuild(d: dict[str, Any], arrays: dict[str, NDArray[Any]], model: Callable[..., Any] | None) -> CCMNClassifier:
    parameters = dict(d["parameters"])
    if isinstance(parameters["noise"], dict):
        grouped = parameters["noise"].get("kind") == "grouped"
        parameters["noise"] = (GroupedNoise if grouped else NoiseModel).from_dict(parameters["noise"])
    clf = CCMNClassifier(**parameters)
    clf.noise_ = NoiseModel.from_dict(d["noise"])
    clf.rates_ = clf.group_noise_ = clf.risk_parts_ = None
    clf.classes_, clf._kind = np.array(d["classes"]), d["kind"]
    clf.label_names_ = tuple(d["label_names"]) if d["label_names"] else None
    clf.n_features_in_ = int(d["n_features"])
    if d["feature_names"]:
        clf.feature_names_in_ = np.array(d["feature_names"], dtype=object)
    clf._history, clf.extra_ = d["history"], d["extra"]
    clf._sparse = bool(d.get("sparse", False))  # models of 0.1 say nothing of it
    q, has_dummy, slope = clf.noise_.n_labels, bool(d["has_dummy"]), float(d["slope"])
    thresholds = np.array(d["thresholds"], dtype=np.float64)
    if d["kind"] not in ("multilabel", "binary", "multiclass") or thresholds.shape != (q,) or not slope > 0:
        raise ValueError("the description is not that of a model: kind, thresholds or slope cannot be")
    network = _network(d["network"], arrays, clf.n_features_in_, q + 1 if has_dummy else q, model)
    if d["network"] == "user" and model is not None:
        clf.model = model
    clf._scorer = Scorer(network, clf.noise_, has_dummy, d["link"], slope, thresholds)
    clf.thresholds_ = thresholds
    return clf


def _network(
    kind: str, arrays: dict[str, NDArray[Any]], n_features: int, n_outputs: int, model: Callable[..., Any] | None
) -> FittedNetwork:
    if kind == "user":
        own = FittedNetwork("user", arrays)
        return own if model is None else rebuild_module(model, n_features, n_outputs, arrays)
    network = FittedNetwork(kind, arrays)
    _check_shapes(network, n_features, n_outputs)
    return network


def _check_shapes(network: FittedNetwork, n_features: int, n_outputs: int) -> None:
    """Every array that predicting needs is there and fits the others."""
    shapes = {name: array.shape for name, array in network.arrays.items()}
    hidden = shapes["bias"][0]
    expected = {"weight": (n_features, hidden), "bias": (hidden,)}
    if network.kind == "mlp":
        expected |= {"second_weight": (hidden, n_outputs), "second_bias": (n_outputs,)}
    elif network.kind != "linear" or hidden != n_outputs:
        raise ValueError(f"the weights do not fit the description: {network.kind} network with {hidden} outputs")
    if shapes != expected:
        raise ValueError(f"the weights do not fit the description: {shapes} in place of {expected}")
