"""Rows as pictures: features reshaped and written as PNG, or files named in a column."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn.data.multilabel import Matrix

TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
"""Files that are shown; formats that may hold scripts are not among them."""


class Shape(NamedTuple):
    """What features are reshaped to: height, width, and 1 (grey) or 3 (colours) values a pixel."""

    height: int
    width: int
    channels: int = 1

    @classmethod
    def read(cls, text: str) -> Shape:
        """What is typed after ``--picture``.

        >>> Shape.read("16x24")
        Shape(height=16, width=24, channels=1)
        """
        if not re.fullmatch(r"[1-9]\d{0,4}x[1-9]\d{0,4}(x[13])?", text):
            raise ValueError(f"a picture is HEIGHTxWIDTH or HEIGHTxWIDTHx3, such as 16x24; got {text!r}")
        return cls(*map(int, text.split("x")))

    @property
    def size(self) -> int:
        """How many features that takes."""
        return self.height * self.width * self.channels


class Picture(NamedTuple):
    """Bytes to send, and their type."""

    content: bytes
    media_type: str


class FeaturePictures:
    """Pictures whose pixels are the features of a row; the smallest value of all is black, the largest white."""

    def __init__(self, X: Matrix, shape: Shape) -> None:
        if shape.size != X.shape[1]:
            expected = "x".join(map(str, shape))
            raise ValueError(f"a picture of {expected} takes {shape.size} features; there are {X.shape[1]}")
        self._X, self._shape = X, shape
        self._low, self._high = float(X.min()), float(X.max())

    def __call__(self, row: int) -> Picture:
        values = self._X[[row]]
        pixels = np.asarray(values.toarray() if hasattr(values, "toarray") else values).reshape(self._shape)
        scaled = (pixels - self._low) / (self._high - self._low or 1.0)
        return Picture(to_png(np.rint(255 * scaled).astype(np.uint8)), "image/png")


class FilePictures:
    """Pictures in files of one folder, a name for every row; nothing outside the folder is ever read."""

    def __init__(self, names: list[str], folder: Path) -> None:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} with pictures")
        self._folder, self._names = folder.resolve(), names

    def __call__(self, row: int) -> Picture | None:
        path = (self._folder / self._names[row].strip()).resolve()
        kind = TYPES.get(path.suffix.lower())
        if kind is None or not path.is_relative_to(self._folder) or not path.is_file():
            return None
        return Picture(path.read_bytes(), kind)


def to_png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of (height, width, 1 or 3) values.

    >>> to_png(np.zeros((2, 3, 1), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    # Every line begins with the number of its filter: none.
    lines = np.insert(pixels.reshape(height, -1), 0, 0, axis=1)
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
