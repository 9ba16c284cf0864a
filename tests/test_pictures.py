"""Picture sizes, pixel values and PNG files."""

import io

import numpy as np
import pytest

from ccmn._pictures import encode_png, parse_size, to_pixels


@pytest.mark.parametrize(("shape", "mode"), [((16, 24), "L"), ((4, 7, 1), "L"), ((3, 5, 3), "RGB")])
def test_decoded_png_has_the_same_pixels(shape, mode):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed: pip install pillow")
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    decoded = image.open(io.BytesIO(encode_png(pixels)))
    assert (decoded.format, decoded.mode) == ("PNG", mode)
    assert (np.asarray(decoded).reshape(shape) == pixels).all()


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
