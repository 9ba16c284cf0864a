"""A model on disk back into an estimator that predicts, bit for bit, what it did."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.models.classifier import CCMNClassifier
from ccmn.models.persistence import check_description, check_stored_parameters, read_model
from ccmn.models.predictor import FittedNetwork, Scorer, rebuild_module
from ccmn.models.row_sketch import TRAINING_ROWS, RowSketch
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
        clf = _rebuild(description, arrays)
    except KeyError as missing:
        raise ValueError(f"{path} is not a whole ccmn model: there is no {missing}") from None
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"{path} is not a whole ccmn model: {error}") from None
    if model is not None and clf._scorer.network.kind == "user":
        n_outputs = clf.thresholds_.size + clf._scorer.has_dummy
        network = rebuild_module(model, clf.n_features_in_, n_outputs, arrays)
        clf.model, clf._scorer = model, replace(clf._scorer, network=network)
    return clf


def _rebuild(d: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> CCMNClassifier:
    d = {"sparse": False, "selected": None, **d}  # Older models do not store these fields.
    clf = CCMNClassifier(**_parameters(d["parameters"]))
    check_stored_parameters(clf)
    clf.noise_ = NoiseModel.from_dict(d["noise"])
    check_description(d, clf.noise_)
    clf.rates_ = clf.group_noise_ = clf.risk_parts_ = None
    clf.classes_, clf._kind = np.array(d["classes"]), d["kind"]
    clf.label_names_ = tuple(d["label_names"]) if d["label_names"] else None
    clf.n_features_in_ = d["n_features"]
    if d["feature_names"]:
        clf.feature_names_in_ = np.array(d["feature_names"], dtype=object)
    clf._history, clf.extra_, clf._sparse = d["history"], d["extra"], d["sparse"]
    clf.selected_ = d["selected"]
    stored = arrays.pop(TRAINING_ROWS, None)  # older models have none
    clf.training_rows_ = None if stored is None else RowSketch.from_stored(stored)
    network = FittedNetwork(d["network"], arrays)
    _check_weights(network, clf.n_features_in_, clf.noise_.n_labels + d["has_dummy"])
    clf.thresholds_ = np.array(d["thresholds"], dtype=np.float64)
    clf._scorer = Scorer(network, clf.noise_, d["has_dummy"], d["link"], float(d["slope"]), clf.thresholds_)
    return clf


def _parameters(stored: Any) -> dict[str, Any]:
    """The parameters of the estimator, its noise model made of its description."""
    parameters = dict(stored)
    if isinstance(parameters["noise"], dict):
        grouped = parameters["noise"].get("kind") == "grouped"
        parameters["noise"] = (GroupedNoise if grouped else NoiseModel).from_dict(parameters["noise"])
    return parameters


def _check_weights(network: FittedNetwork, n_features: int, n_outputs: int) -> None:
    """Every array that predicting needs is there, holds numbers, and fits the others."""
    if network.kind == "user":
        return  # it alone can tell what it needs
    if network.kind not in ("linear", "mlp"):
        raise ValueError(f"network must be linear, mlp or user; got {network.kind!r}")
    shapes = {name: array.shape for name, array in network.arrays.items()}
    hidden = shapes["bias"][0] if network.kind == "mlp" else n_outputs
    expected = {"weight": (n_features, hidden), "bias": (hidden,)}
    if network.kind == "mlp":
        expected |= {"second_weight": (hidden, n_outputs), "second_bias": (n_outputs,)}
    if shapes != expected:
        raise ValueError(f"the weights do not fit the description: {shapes} in place of {expected}")
    if any(array.dtype.kind != "f" for array in network.arrays.values()):
        raise ValueError("the weights must be floating-point numbers")
