"""Descriptions of models in files (:mod:`ccmn.models.model_file`), and the checks of what was read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ccmn.estimation import NoiseRates
from ccmn.models.model_file import describe_errors, read_model
from ccmn.models.predictor import LINKS, FittedNetwork
from ccmn.noise import GroupedNoise, NoiseModel

if TYPE_CHECKING:
    from ccmn.models.ccmn_classifier import CCMNClassifier
    from ccmn.models.corrected_classifier import CorrectedClassifier

KINDS = ("multilabel", "one_hot", "multiclass")


def load_model(
    path: str | os.PathLike[str], model: Callable[..., Any] | None = None
) -> CCMNClassifier | CorrectedClassifier:
    """Load a model that :meth:`CorrectedClassifier.save` or :meth:`CCMNClassifier.save` wrote.

    The loaded model predicts exactly what the saved one predicted.

    Parameters
    ----------
    path : path-like
        File of the model.
    model : callable (n_features, n_outputs) -> torch.nn.Module, optional
        Function that creates the network. Required for predictions of a model that was fitted with such a function,
        because code is never stored.

    Returns
    -------
    CorrectedClassifier or CCMNClassifier
        Fitted classifier.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If it is not a model, is damaged, has non-finite weights, or was written by another version.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from ccmn import CorrectedClassifier, load_model
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> clf = CorrectedClassifier(noise=None).fit(X, X > 0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(f"{folder}/model.ccmn")
    ...     loaded = load_model(f"{folder}/model.ccmn")
    >>> bool((loaded.predict(X) == clf.predict(X)).all())
    True
    """
    from ccmn.models.ccmn_classifier import CCMNClassifier
    from ccmn.models.corrected_classifier import CorrectedClassifier

    classes: dict[str, Any] = {c.__name__: c for c in (CCMNClassifier, CorrectedClassifier)}
    description, arrays = read_model(path)
    clf: CCMNClassifier | CorrectedClassifier
    with describe_errors(path):
        if description["class"] not in classes:
            raise ValueError(f"class must be {' or '.join(classes)}; got {description['class']!r:.60}")
        clf = classes[description["class"]]._from_description(description, arrays)
    if model is not None:
        if not isinstance(clf, CCMNClassifier):
            raise ValueError(f"model= creates the network of a CCMNClassifier; {path} is a {type(clf).__name__}")
        clf._set_module(model)
    return clf


def describe(clf: CCMNClassifier | CorrectedClassifier) -> dict[str, Any]:
    """Return the part of the description that both estimators share."""
    return {
        "class": type(clf).__name__,
        "parameters": {k: json_safe(v) for k, v in clf.get_params(deep=False).items()},
        "classes": clf.classes_.tolist(),
        "label_names": clf.label_names_,
        "feature_names": [str(n) for n in getattr(clf, "feature_names_in_", [])] or None,
        "n_features": int(clf.n_features_in_),
        "noise": clf.noise_.to_dict(),
        "sparse": clf._sparse,
        "extra": clf.extra_,
    }


def json_safe(value: Any) -> Any:
    """Return a parameter in a form that JSON can hold; a function becomes None, because code is never stored."""
    if isinstance(value, NoiseRates):
        value = value.noise
    if isinstance(value, (NoiseModel, GroupedNoise)):
        return value.to_dict()
    if isinstance(value, (np.ndarray, tuple, list)):
        return [json_safe(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool)) else None


# -- Validation of what was read. Checksums show that a file is unchanged, not that its content makes sense.


Estimator = TypeVar("Estimator", "CCMNClassifier", "CorrectedClassifier")


def read_description(cls: type[Estimator], d: dict[str, Any]) -> Estimator:
    """Return an estimator with the attributes that :func:`describe` has described; its parameters are not checked.

    Raise a ValueError that names the field if one is invalid.
    """
    params = dict(d["parameters"])
    if isinstance(params["noise"], dict):
        grouped = params["noise"].get("kind") == "grouped"
        params["noise"] = (GroupedNoise if grouped else NoiseModel).from_dict(params["noise"])
    clf = cls(**params)
    noise: Any = NoiseModel.from_dict(d["noise"])
    clf.noise_ = noise
    q, count, classes = noise.n_labels, d["n_features"], d["classes"]
    distinct = isinstance(classes, list) and all(isinstance(c, (str, int, float)) for c in classes)
    distinct = distinct and len(classes) == q == len(set(classes))
    checks = {
        "n_features": (type(count) is int and count >= 1, "an integer of at least 1"),
        "classes": (distinct, f"a list of {q} distinct names or numbers"),
        "sparse": (isinstance(d["sparse"], bool), "true or false"),
        "extra": (isinstance(d["extra"], dict), "an object"),
    }
    for field, total in (("label_names", q), ("feature_names", count)):
        names = d[field]
        valid = isinstance(names, list) and len(names) == total and all(isinstance(name, str) for name in names)
        checks[field] = names is None or valid, f"a list of {total} names, or null"
    require(d, checks)
    clf.rates_ = clf.inferred_ = None
    clf.classes_, clf.extra_, clf._sparse, clf.n_features_in_ = np.array(classes), d["extra"], d["sparse"], count
    clf.label_names_ = tuple(d["label_names"]) if d["label_names"] else None
    if d["feature_names"]:
        clf.feature_names_in_ = np.array(d["feature_names"], dtype=object)
    return clf


def require(d: dict[str, Any], checks: dict[str, tuple[bool, str]]) -> None:
    """Raise a ValueError that names the first field of a description that is not valid, and what is expected."""
    for field, (valid, expected) in checks.items():
        if not valid:
            shown = f"{len(d[field])} entries" if isinstance(d[field], list) else repr(d[field])[:60]
            raise ValueError(f"{field} must be {expected}; got {shown}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def describe_network(clf: CCMNClassifier) -> dict[str, Any]:
    """Return the part of the description that only networks have."""
    network = clf._network
    check_network(network, clf.n_features_in_)
    return {
        "kind": clf._kind,
        "network": network.kind,
        "input_shape": [int(size) for size in getattr(clf, "input_shape_", ())] or None,
        "link": network.link,
        "has_dummy": network.has_dummy,
        "slope": network.slope,
        "history": clf._history,
        "selected": clf.selected_,
    }


def read_network(clf: CCMNClassifier, d: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Set the attributes that :func:`describe_network` has described; raise an error if a field is invalid."""
    links, history, slope = (*LINKS.values(), "slope"), d["history"], d["slope"]
    rows = isinstance(history, list) and all(isinstance(row, dict) for row in history)
    rows = rows and all(_is_number(value) for row in history for value in row.values())
    checks = {
        "kind": (d["kind"] in KINDS, f"one of {', '.join(KINDS)}"),
        "link": (d["link"] in links, f"one of {', '.join(links)}"),
        "slope": (_is_number(slope) and 0 < slope < math.inf, "a positive number"),
        "has_dummy": (isinstance(d["has_dummy"], bool), "true or false"),
        "history": (rows, "a list of rows of numbers"),
        "selected": (isinstance(d["selected"], dict), "an object"),
    }
    require(d, checks)
    clf._kind, clf._history, clf.selected_, clf.group_noise_ = d["kind"], history, d["selected"], None
    if (shape := d["input_shape"]) is not None:
        sizes = shape if isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape) else []
        if d["network"] != "user" or math.prod(sizes) != clf.n_features_in_:
            raise ValueError(f"input_shape must be the shape of {clf.n_features_in_} features; got {shape!r:.60}")
        clf.input_shape_ = tuple(sizes)
    slope = float(d["slope"])
    clf._network = FittedNetwork(d["network"], arrays, clf.noise_.n_labels, d["has_dummy"], d["link"], slope)
    check_network(clf._network, clf.n_features_in_)


def check_network(network: FittedNetwork, n_features: int) -> None:
    """Raise a ValueError if weights are missing, have the wrong shape or type, or can give infinite scores."""
    n_outputs = network.n_labels + network.has_dummy
    if network.kind == "user":
        return  # only the function that creates the module knows its weights
    if network.kind not in ("linear", "mlp"):
        raise ValueError(f"network must be linear, mlp or user; got {network.kind!r}")
    shapes = {name: array.shape for name, array in network.arrays.items()}
    hidden = shapes["bias"][0] if network.kind == "mlp" else n_outputs
    expected = {"weight": (n_features, hidden), "bias": (hidden,)}
    if network.kind == "mlp":
        expected |= {"second_weight": (hidden, n_outputs), "second_bias": (n_outputs,)}
    if shapes != expected:
        raise ValueError(f"weights must have the shapes {expected}; got {shapes}")
    for name, array in network.arrays.items():
        if array.dtype.kind != "f":
            raise ValueError(f"{name} must be floating-point numbers; got {array.dtype}")
        limit = np.cbrt(np.finfo(array.dtype).max)  # two weights times a feature stay finite
        if not (np.abs(array) <= limit).all():
            raise ValueError(f"{name} must be finite and at most {limit:.0e}; got NaN or larger values")
