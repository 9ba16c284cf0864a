"""Files of models: weights in safetensors, everything else in JSON, a checksum for each; never a pickle.

A model is an uncompressed zip archive of ``model.json``, ``weights.safetensors`` and ``checksums.json``. Parts that are
missing, changed, or written by another version are rejected with a ValueError. Nothing that is read is ever executed.
Prediction with a saved ``CorrectedClassifier()`` needs neither torch nor scikit-learn.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ccmn._files import atomic_write, check_file, checksum
from ccmn._validation import FloatArray
from ccmn.estimation.link import CorrectedCurve
from ccmn.training.default_model import NoisyLabelModel

FORMAT, VERSION = "ccmn-model", 1
_FILES = ("model.json", "weights.safetensors")
_CHECKSUMS = "checksums.json"
_ERRORS = ValueError, TypeError, AttributeError, LookupError, OverflowError, RuntimeError, OSError, EOFError


def write_model(path: str | os.PathLike[str], description: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a model atomically: a reader finds the old model or the new one."""
    target = Path(path)
    contents = {
        "model.json": json.dumps({"format": FORMAT, "version": VERSION, **description}, allow_nan=True).encode(),
        "weights.safetensors": save_tensors({name: np.ascontiguousarray(a) for name, a in arrays.items()}),
    }
    contents[_CHECKSUMS] = json.dumps({name: checksum(data) for name, data in contents.items()}, indent=1).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in contents.items():
            # With a fixed date, equal models are equal files.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


@contextmanager
def describe_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise every error that the content of a file can cause as a ValueError with its name."""
    try:
        yield
    except KeyError as missing:
        raise ValueError(f"{path} is not a valid ccmn model: field {missing} is missing") from None
    except (zipfile.BadZipFile, UnicodeDecodeError):
        raise ValueError(f"{path} is not a valid ccmn model: it is truncated, or ccmn has not written it") from None
    except (*_ERRORS, SafetensorError) as error:
        raise ValueError(f"{path} is not a valid ccmn model: {error}") from None


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return description and weights of a model; raise a ValueError for anything that is not a complete model."""
    if not Path(path).exists():
        raise FileNotFoundError(f"model {path} does not exist")
    with describe_errors(path):
        with zipfile.ZipFile(check_file(path)) as archive:
            entries = {info.filename: info for info in archive.infolist()}
            if sorted(entries) != sorted((*_FILES, _CHECKSUMS)):
                found = ", ".join(map(repr, sorted(entries)[:5])) or "nothing"
                raise ValueError(f"it contains {found}")
            # Parts are stored without compression, so that they are not larger than the file.
            if any(info.compress_type != zipfile.ZIP_STORED for info in entries.values()):
                raise ValueError("its parts are compressed")
            contents = {name: archive.read(info) for name, info in entries.items()}
        checksums = json.loads(contents[_CHECKSUMS])
        damaged = [n for n in _FILES if checksum(contents[n]) != checksums.get(n)]
        if damaged:
            raise ValueError(f"it is damaged, the checksum of {' and '.join(damaged)} is wrong")
        description, arrays = json.loads(contents["model.json"]), load_tensors(contents["weights.safetensors"])
        json.dumps(description, ensure_ascii=False).encode()  # names with single surrogates cannot be printed
        if description["format"] != FORMAT:
            raise ValueError("its format is unknown")
        version = description["version"]
        if type(version) is not int or version != VERSION:
            raise ValueError(
                f"it has model format {version!r}; this version of ccmn reads format {VERSION}. Use the version of "
                "ccmn that wrote the model, or fit it again."
            )
        return description, arrays


# -- Prediction with a saved default model


class DefaultPredictor:
    """Predictions of a saved default model, equal to those of the classifier."""

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
    if thresholds.shape != (q,) or not np.isfinite(thresholds).all():
        raise ValueError(f"thresholds must be a list of {q} finite numbers")
    knots, values = (np.asarray(arrays.pop(name), dtype=np.float64) for name in ("knots", "curve"))
    increasing = np.isfinite(values).all() and (np.diff(values) >= 0).all() and (np.diff(knots) > 0).all()
    if knots.ndim != 1 or not knots.size or values.shape != (q, knots.size) or not increasing:
        raise ValueError(f"curve must be {q} increasing functions of increasing knots; got shape {values.shape}")
    return NoisyLabelModel.from_arrays(arrays, n_features, q), CorrectedCurve(knots, values), thresholds
