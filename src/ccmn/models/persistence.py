"""Is this the description of a model? Every field, before anything is made of it.

Checksums tell that a file is as it was written, not that what was written makes sense.

Models on disk: weights in safetensors, the rest in JSON, a checksum for each; never a pickle.

A model is three files, in a folder or in one uncompressed zip archive: ``model.json``, ``weights.safetensors`` and
``checksums.json``. Anything else in their place, a missing or changed byte, or a newer version is refused with a
ValueError; nothing that is read is ever executed.

A fitted CCMNClassifier as a JSON-safe description; its weights are kept beside it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ccmn.models.predictor import LINKS
from ccmn.models.training_data import check_parameters
from ccmn.noise import ClassConditionalNoise, GroupedNoise, NoiseModel

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier


KINDS = ("multilabel", "binary", "multiclass")


def check_description(d: dict[str, Any], noise: NoiseModel) -> None:
    """Refuse what cannot be, naming the field; ``noise`` is what ``d["noise"]`` describes."""
    q = noise.n_labels
    _require(d["kind"] in KINDS, "kind", f"one of {', '.join(KINDS)}", d["kind"])
    _require(_is_count(d["n_features"]), "n_features", "a whole number of at least 1", d["n_features"])
    _check_classes(d["classes"], d["kind"], q)
    _check_names(d["label_names"], q, "label_names")
    _check_names(d["feature_names"], d["n_features"], "feature_names")
    _require(d["link"] in LINKS, "link", f"one of {', '.join(LINKS)}", d["link"])
    if d["link"] == "plugin" and not isinstance(noise, ClassConditionalNoise):
        raise ValueError(f"link 'plugin' needs noise with two rates per label; it is {noise.kind!r}")
    _require(_is_number(d["slope"]) and 0 < d["slope"] < math.inf, "slope", "a number above 0", d["slope"])
    for flag in ("has_dummy", "sparse"):
        _require(isinstance(d[flag], bool), flag, "true or false", d[flag])
    cuts = d["thresholds"]
    fine = isinstance(cuts, list) and len(cuts) == q and all(_is_number(t) and math.isfinite(t) for t in cuts)
    _require(fine, "thresholds", f"a list of {q} numbers", cuts)
    _require(_is_history(d["history"]), "history", "a list of rows of numbers", d["history"])
    _require(d["selected"] is None or isinstance(d["selected"], dict), "selected", "an object or null", d["selected"])
    _require(isinstance(d["extra"], dict), "extra", "an object", d["extra"])


def check_stored_parameters(clf: Any) -> None:
    """The parameters that a file names. Functions of the user's own were stored as null, and are not looked at."""
    model, surrogate = clf.model, clf.surrogate
    try:
        clf.model, clf.surrogate = model or "linear", surrogate or "sigmoid"
        check_parameters(clf)
    finally:
        clf.model, clf.surrogate = model, surrogate


def _check_classes(classes: Any, kind: str, q: int) -> None:
    """What the columns are, or the classes: one for each label, or two (or one alone) for a single label."""
    sizes = (1, 2) if kind == "binary" else (q,)
    plain = isinstance(classes, list) and all(isinstance(c, (str, int, float)) for c in classes)
    fine = plain and len(classes) in sizes and len(set(classes)) == len(classes) and (kind != "binary" or q == 1)
    _require(fine, "classes", f"a list of {' or '.join(map(str, sizes))} names or numbers that differ", classes)


def _check_names(names: Any, total: int, field: str) -> None:
    fine = isinstance(names, list) and len(names) == total and all(isinstance(name, str) for name in names)
    _require(names is None or fine, field, f"a list of {total} names, or null", names)


def _is_history(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) and all(map(_is_number, row.values())) for row in rows)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require(fine: bool, field: str, expected: str, given: Any) -> None:
    if not fine:
        shown = f"{len(given)} entries" if isinstance(given, list) else repr(given)[:60]
        raise ValueError(f"{field} must be {expected}; got {shown}")


FORMAT, VERSION = "ccmn-model", 1
_FILES = ("model.json", "weights.safetensors")
_CHECKSUMS = "checksums.json"


def write_model(path: str | os.PathLike[str], description: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a model, whole or not at all: to a temporary name beside the target, then renamed.

    A path with a suffix becomes one file, a path without (or an existing folder) becomes a folder.
    """
    target = Path(path)
    body = json.dumps({"format": FORMAT, "version": VERSION, **description}, allow_nan=True).encode()
    contents = {
        "model.json": body,
        "weights.safetensors": save_tensors({name: np.ascontiguousarray(a) for name, a in arrays.items()}),
    }
    checksums = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    contents[_CHECKSUMS] = json.dumps(checksums, indent=1).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() or not target.suffix:
        _write_folder(target, contents)
    else:
        _write_file(target, contents)


def _write_file(target: Path, contents: dict[str, bytes]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in contents.items():
            # A fixed date: the same model is the same file.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getvalue())
        os.chmod(part, 0o644)
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _write_folder(target: Path, contents: dict[str, bytes]) -> None:
    if target.exists() and any(child.name not in contents for child in target.iterdir()):
        raise ValueError(f"{target} is a folder that holds other things than a model; choose another name")
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=target.name, suffix=".part"))
    try:
        os.chmod(part, 0o755)
        for name, data in contents.items():
            (part / name).write_bytes(data)
        if target.exists():
            old = part.with_suffix(".old")
            target.rename(old)
            part.rename(target)
            shutil.rmtree(old)
        else:
            part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The description and the weights of a model; ValueError for anything that is not a whole one."""
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"there is no model at {source}")
    contents = _read_folder(source) if source.is_dir() else _read_file(source)
    try:
        checksums = json.loads(contents[_CHECKSUMS])
        damaged = [n for n in _FILES if hashlib.sha256(contents[n]).hexdigest() != checksums.get(n)]
        if damaged:
            raise ValueError(f"{source} is damaged: {' and '.join(damaged)} changed since the model was saved")
        description = json.loads(contents["model.json"])
        arrays = load_tensors(contents["weights.safetensors"])
    except (json.JSONDecodeError, UnicodeDecodeError, SafetensorError, AttributeError, RecursionError) as error:
        raise ValueError(f"{source} is not a whole ccmn model: {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{source} is not a ccmn model")
    if description.get("version") != VERSION:
        raise ValueError(
            f"{source} has model format {description.get('version')!r}; this ccmn reads format {VERSION}: "
            "save it again with this version, or use the version that wrote it"
        )
    return description, arrays


def _read_folder(source: Path) -> dict[str, bytes]:
    contents = {}
    for name in (*_FILES, _CHECKSUMS):
        file = source / name
        if not file.is_file():
            raise ValueError(f"{source} is not a whole ccmn model: {name} is missing")
        contents[name] = file.read_bytes()
    return contents


def _read_file(source: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(source) as archive:
            entries = {info.filename: info for info in archive.infolist()}
            if sorted(entries) != sorted((*_FILES, _CHECKSUMS)):
                raise ValueError(
                    f"{source} is not a ccmn model: it holds {', '.join(sorted(entries)[:5]) or 'nothing'}"
                )
            # Stored, never compressed: what is read is no larger than the file.
            if any(info.compress_type != zipfile.ZIP_STORED for info in entries.values()):
                raise ValueError(f"{source} is not a ccmn model: its parts are compressed")
            return {name: archive.read(info) for name, info in entries.items()}
    except zipfile.BadZipFile:
        raise ValueError(
            f"{source} is not a whole ccmn model: it is cut off, or no file of ccmn fit --out or CCMNClassifier.save"
        ) from None
    except (OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{source} is not a whole ccmn model: {error}") from None


def description_of(clf: CCMNClassifier) -> dict[str, Any]:
    """Everything but the weights; ``ccmn.models.loading`` makes a classifier of it again."""
    scorer = clf._scorer
    return {
        "parameters": {k: _json_safe(v) for k, v in clf.get_params(deep=False).items()},
        "kind": clf._kind,
        "network": scorer.network.kind,
        "classes": clf.classes_.tolist(),
        "label_names": clf.label_names_,
        "feature_names": [str(n) for n in getattr(clf, "feature_names_in_", [])] or None,
        "n_features": int(clf.n_features_in_),
        "noise": clf.noise_.to_dict(),
        "link": scorer.link,
        "has_dummy": scorer.has_dummy,
        "sparse": clf._sparse,
        "slope": scorer.slope,
        "thresholds": scorer.thresholds.tolist(),
        "history": clf._history,
        "selected": clf.selected_,
        "extra": clf.extra_,
    }


def _json_safe(value: Any) -> Any:
    """A parameter as JSON can hold it; a user's own function becomes null, since code is never stored."""
    if isinstance(value, (NoiseModel, GroupedNoise)):
        return value.to_dict()
    if isinstance(value, (np.ndarray, tuple)):
        return [_json_safe(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool, list)) else None
