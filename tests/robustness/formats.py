"""Kinds of files that are modified: valid content, how it is read, and the parts of containers."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Format:
    """Kind of file: a valid one, how it is read, and what it contains."""

    name: str
    """File name."""
    valid: Callable[[], bytes]
    read: Callable[[Path], Any]
    """Return an object that ``expected`` can be compared with, or anything."""
    expected: Callable[[bytes], Any] | None = None
    """Strict reader: return what the bytes mean, or None if they are not valid."""
    inner: tuple[Callable[[bytes], dict[str, bytes]], Callable[[dict[str, bytes]], bytes]] | None = None
    """Unpack a container into its parts, and pack it again with correct checksums."""
    only_inner: bool = False
    """Whether the container belongs to the campaign, and only its parts are modified."""


@cache
def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(12, 4)), 3).astype(np.float32)
    return X, (X[:, :2] > 0).astype(np.uint8)


def write(folder: Any, name: str, content: bytes) -> Path:
    (Path(folder) / name).write_bytes(content)
    return Path(folder) / name


def _unpack_gzip(content: bytes) -> dict[str, bytes]:
    return {"text": gzip.decompress(content)}


def _pack_gzip(parts: dict[str, bytes]) -> bytes:
    return gzip.compress(parts["text"], 1)


def unpack_zip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack_zip(parts: dict[str, bytes]) -> bytes:
    from ccmn._files import checksum

    if "checksums.json" in parts:
        sums = {name: checksum(data) for name, data in parts.items() if name != "checksums.json"}
        parts = {**parts, "checksums.json": json.dumps(sums).encode()}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return stream.getvalue()


GZIP, ZIP = (_unpack_gzip, _pack_gzip), (unpack_zip, pack_zip)
