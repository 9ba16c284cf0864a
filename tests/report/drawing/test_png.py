from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from ccmn.report.drawing.png import png


def chunks(content):
    """Name and content of every chunk, its checksum held against it."""
    place = 8
    while place < len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        name, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + size]
        assert struct.unpack(">I", content[place + 8 + size : place + 12 + size]) == (zlib.crc32(name + body),)
        yield name, body
        place += 12 + size


@pytest.mark.parametrize(("shape", "kind"), [((16, 24), 0), ((3, 5, 3), 2)])
def test_the_pixels_come_back(shape, kind):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    content = png(pixels)
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    (_, header), (_, body), (end, _) = chunks(content)
    assert struct.unpack(">IIBBBBB", header) == (shape[1], shape[0], 8, kind, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(body), dtype=np.uint8).reshape(shape[0], -1)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:].reshape(shape) == pixels).all()
    assert end == b"IEND"
