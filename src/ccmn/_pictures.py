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
    """Return the shape of a picture that is written as HEIGHTxWIDTH or HEIGHTxWIDTHx3.

    Parameters
    ----------
    text : str
        Size of the picture; "x3" marks a color picture, "x1" a gray one.

    Returns
    -------
    tuple of int
        ``(height, width)`` of a gray picture, or ``(height, width, 3)`` of a color picture.

    Raises
    ------
    ValueError
        If the text does not have this form.

    Examples
    --------
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
    """Scale values linearly to 0, ..., 255.

    Parameters
    ----------
    values : array-like
        Values between ``low`` and ``high``.
    low, high : float
        Values that are shown as black and as white, usually the minimum and the maximum over all pictures. If they are
        equal, every pixel is black.

    Returns
    -------
    ndarray of uint8
        Pixels in the shape of ``values``.

    Examples
    --------
    >>> to_pixels([0.0, 0.5, 2.0], 0.0, 2.0)
    array([  0,  64, 255], dtype=uint8)
    """
    scaled = (np.asarray(values) - low) / (high - low or 1.0)
    return np.asarray(np.rint(255 * scaled).astype(np.uint8))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    r"""Encode pixels as a PNG file.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (height, width), (height, width, 1) or (height, width, 3)
        Gray or RGB values.

    Returns
    -------
    bytes
        Content of the PNG file.

    Examples
    --------
    >>> encode_png(np.zeros((2, 3), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    height, width = pixels.shape[:2]
    color_type = _COLOR if pixels.ndim == 3 and pixels.shape[2] == 3 else _GRAY
    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    # Each scan line starts with the number of its filter; 0 means "not filtered".
    lines = np.insert(pixels.reshape(height, -1), 0, 0, axis=1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    """Return a PNG chunk: length, name, content and checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
