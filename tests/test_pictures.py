"""Picture sizes, pixel values and PNG files."""

import struct
import zlib

import numpy as np
import pytest

from ccmn._pictures import encode_png, parse_size, to_pixels


def chunks(content):
    """Yield the name and content of every chunk; check its checksum."""
    place = 8
    while place < len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        name, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + size]
        assert struct.unpack(">I", content[place + 8 + size : place + 12 + size]) == (zlib.crc32(name + body),)
        yield name, body
        place += 12 + size


@pytest.mark.parametrize(("shape", "color_type"), [((16, 24), 0), ((4, 7, 1), 0), ((3, 5, 3), 2)])
def test_decoded_png_has_the_same_pixels(shape, color_type):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    content = encode_png(pixels)
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    (_, header), (_, body), (end, _) = chunks(content)
    assert struct.unpack(">IIBBBBB", header) == (shape[1], shape[0], 8, color_type, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(body), dtype=np.uint8).reshape(shape[0], -1)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:].reshape(shape) == pixels).all()
    assert end == b"IEND"


@pytest.mark.parametrize("text", ["", "16", "16x", "0x3", "16x24x2", "16 x 24", "-1x4", "16x24x3x1", "1234567x2"])
def test_invalid_sizes(text):
    with pytest.raises(ValueError, match="HEIGHTxWIDTH"):
        parse_size(text)


def test_pixels_span_black_to_white():
    values = np.array([[-1.0, 0.0], [0.5, 1.0]], dtype=np.float32)
    assert to_pixels(values, -1.0, 1.0).tolist() == [[0, 128], [191, 255]]
    assert to_pixels(values, -1.0, 1.0).dtype == np.uint8


def test_constant_pictures_are_black():
    assert (to_pixels(np.ones((2, 3)), 1.0, 1.0) == 0).all()
