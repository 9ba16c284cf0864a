"""Files of models: weights in safetensors, everything else in JSON, a checksum for each; never a pickle.

A model is an uncompressed zip archive of ``model.json``, ``weights.safetensors`` and ``checksums.json``. Parts that are
missing, changed, or written by another version are rejected with a ValueError. Nothing that is read is ever executed.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
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
