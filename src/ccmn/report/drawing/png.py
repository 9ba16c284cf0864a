"""Pixels as a PNG inside the page: a data URI."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_GREY, _COLOURS = 0, 2


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """(height, width) grey or (height, width, 3) colours, as ``data:image/png;base64,...``.

    >>> data_uri(np.zeros((1, 2), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The file: a header, the rows (each led by 0, "not filtered") compressed, and an end."""
    height, width = pixels.shape[:2]
    kind = _GREY if pixels.ndim == 2 else _COLOURS
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    rows = pixels.reshape(height, -1)
    led = np.concatenate([np.zeros((height, 1), dtype=np.uint8), rows], axis=1)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(led.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
