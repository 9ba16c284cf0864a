"""Files of models: weights in safetensors, everything else in JSON, a checksum for each; never a pickle.

A model is an uncompressed zip archive of ``model.json``, ``weights.safetensors`` and ``checksums.json``. Parts that are
missing, changed, or written by another version are rejected with a ValueError. Nothing that is read is ever executed.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ccmn._files import atomic_write, check_file, checksum

FORMAT, VERSION = "ccmn-model", 1
_FILES = ("model.json", "weights.safetensors")
_CHECKSUMS = "checksums.json"


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


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return description and weights of a model; raise a ValueError for anything that is not a complete model."""
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"model {source} does not exist")
    try:
        with zipfile.ZipFile(check_file(source)) as archive:
            entries = {info.filename: info for info in archive.infolist()}
            if sorted(entries) != sorted((*_FILES, _CHECKSUMS)):
                found = ", ".join(map(repr, sorted(entries)[:5])) or "nothing"
                raise ValueError(f"{source} is not a ccmn model: it contains {found}")
            # Parts are stored without compression, so that they are not larger than the file.
            if any(info.compress_type != zipfile.ZIP_STORED for info in entries.values()):
                raise ValueError(f"{source} is not a ccmn model: its parts are compressed")
            contents = {name: archive.read(info) for name, info in entries.items()}
    except (zipfile.BadZipFile, UnicodeDecodeError):
        raise ValueError(
            f"{source} is not a valid ccmn model: it is truncated, or was not written by CCMNClassifier.save"
        ) from None
    except (OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{source} is not a valid ccmn model: {error}") from None
    try:
        checksums = json.loads(contents[_CHECKSUMS])
        damaged = [n for n in _FILES if checksum(contents[n]) != checksums.get(n)]
        description = None if damaged else json.loads(contents["model.json"])
        arrays = {} if damaged else load_tensors(contents["weights.safetensors"])
        json.dumps(description, ensure_ascii=False).encode()  # names with single surrogates cannot be printed
    except (ValueError, SafetensorError, AttributeError, RecursionError) as error:
        raise ValueError(f"{source} is not a valid ccmn model: {error}") from None
    if damaged:
        raise ValueError(f"{source} is damaged: the checksum of {' and '.join(damaged)} is wrong")
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{source} is not a ccmn model")
    version = description.get("version")
    if type(version) is not int or version != VERSION:
        raise ValueError(
            f"{source} has model format {version!r}; this version of ccmn reads format {VERSION}. Use the version of "
            "ccmn that wrote the model, or fit it again."
        )
    return description, arrays
