"""Models on disk: weights in safetensors, the rest in JSON, a checksum for each; never a pickle.

A model is three files, in a folder or in one uncompressed zip archive: ``model.json``, ``weights.safetensors`` and
``checksums.json``. Anything else in their place, a missing or changed byte, or a newer version is refused with a
ValueError; nothing that is read is ever executed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

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
