"""Prediction with a saved ``CorrectedClassifier()``, which needs neither torch nor scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray
from ccmn.estimation.link import CorrectedCurve
from ccmn.models.model_file import describe_errors, read_model
from ccmn.training.default_model import NoisyLabelModel


class DefaultPredictor:
    """Predictions of a saved default model, equal to those of the classifier.

    Parameters
    ----------
    description : mapping
        Description of the model.
    arrays : dict of str to array
        Weights of the model.
    """

    def __init__(self, description: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.classes_ = np.array(description["classes"])
        self.n_features_in_, self.n_labels = int(description["n_features"]), len(self.classes_)
        self.label_names_ = None if description["label_names"] is None else tuple(description["label_names"])
        self.extra_ = dict(description["extra"])
        if description["feature_names"] is not None:
            self.feature_names_in_ = np.array(description["feature_names"], dtype=object)
        parts = read_default(description, arrays, self.n_features_in_, self.n_labels)
        self._model, self._curve, self._thresholds = parts

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the labels of rows."""
        return (self._curve.scores(self._model.log_odds(X)) >= self._thresholds).astype(np.int64)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of the labels of rows."""
        return self._curve(self._model.log_odds(X))


def load_default(path: str | os.PathLike[str]) -> DefaultPredictor | None:
    """Return the predictor of a saved model; None if it is a model of another class."""
    description, arrays = read_model(path)
    if description.get("class") != "CorrectedClassifier":
        return None
    with describe_errors(path):
        return DefaultPredictor(description, arrays)


def read_default(
    d: Mapping[str, Any], arrays: dict[str, NDArray[Any]], n_features: int, q: int
) -> tuple[NoisyLabelModel, CorrectedCurve, FloatArray]:
    """Return the model, the curve and the thresholds of a description; raise an error if a field is invalid."""
    thresholds = np.array(d["thresholds"], dtype=np.float64)
    if thresholds.shape != (q,) or np.isnan(thresholds).any():
        raise ValueError(f"thresholds must be a list of {q} numbers")
    knots, values = (np.asarray(arrays.pop(name), dtype=np.float64) for name in ("knots", "curve"))
    increasing = np.isfinite(values).all() and (np.diff(values) >= 0).all() and (np.diff(knots) > 0).all()
    if knots.ndim != 1 or not knots.size or values.shape != (q, knots.size) or not increasing:
        raise ValueError(f"curve must be {q} increasing functions of increasing knots; got shape {values.shape}")
    return NoisyLabelModel.from_arrays(arrays, n_features, q), CorrectedCurve(knots, values), thresholds
