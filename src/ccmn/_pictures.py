"""Pictures whose pixels are the features of a row: size, pixel values and PNG encoding.

The PNG encoder is written out here because 8-bit gray and color pictures without filters need about ten lines of zlib,
and no other part of the package needs an image library.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

IMAGE_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"))
"""Suffixes of picture files."""

_SIZE = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})(?:x([13]))?")
_GRAY, _COLOR = 0, 2


def parse_size(text: str) -> tuple[int, ...]:
    """Return the shape of a picture from its size: HEIGHTxWIDTH or HEIGHTxWIDTHx1 (gray), or HEIGHTxWIDTHx3 (color).

    >>> parse_size("16x24"), parse_size("16x24x1"), parse_size("32x32x3")
    ((16, 24), (16, 24), (32, 32, 3))
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"Expected a picture size HEIGHTxWIDTH or HEIGHTxWIDTHx3, such as 16x24; got {text!r}")
    height, width, channels = match.groups()
    size = (int(height), int(width))
    return (*size, 3) if channels == "3" else size


def to_pixels(values: Any, low: float, high: float) -> NDArray[np.uint8]:
    """Scale values from black (``low``) to white (``high``); if the two are equal, every pixel is black.

    >>> to_pixels([0.0, 0.5, 2.0], 0.0, 2.0)
    array([  0,  64, 255], dtype=uint8)
    """
    scaled = (np.asarray(values) - low) / (high - low or 1.0)
    return np.asarray(np.rint(255 * scaled).astype(np.uint8))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode gray pixels, (height, width) or (height, width, 1), or RGB pixels (height, width, 3), as a PNG file."""
    height, width = pixels.shape[:2]
    color_type = _COLOR if pixels.ndim == 3 and pixels.shape[2] == 3 else _GRAY
    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    # Each scan line starts with the number of its filter; 0 means "not filtered".
    lines = np.insert(pixels.reshape(height, -1), 0, 0, axis=1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )
