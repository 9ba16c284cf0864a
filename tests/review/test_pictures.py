from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.sparse

from ccmn.review.pictures import FeaturePictures, FilePictures, Shape, to_png


@pytest.mark.parametrize("channels", [1, 3])
def test_png_is_read_back_as_it_was(channels):
    image = pytest.importorskip("PIL.Image", reason="reading PNG back needs pillow")
    pixels = np.random.default_rng(0).integers(0, 256, size=(5, 7, channels), dtype=np.uint8)
    found = np.asarray(image.open(io.BytesIO(to_png(pixels))))
    np.testing.assert_array_equal(found.reshape(pixels.shape), pixels)


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array])
def test_features_become_grey_values(container):
    X = np.array([[0.0, 0.5, 1.0, 0.25], [0, 0, 0, 0]])
    content, kind = FeaturePictures(container(X), Shape.read("2x2"))(0)
    assert kind == "image/png"
    assert content == to_png(np.array([[[0], [128]], [[255], [64]]], dtype=np.uint8))


def test_a_constant_picture_is_black():
    assert FeaturePictures(np.ones((1, 3)), Shape(1, 1, 3))(0).content == to_png(np.zeros((1, 1, 3), np.uint8))


@pytest.mark.parametrize("text", ["16", "0x3", "16x", "16x24x2", "-1x4", "a", "1x1x1x1", "9999999x9", ""])
def test_shapes_that_are_none(text):
    with pytest.raises(ValueError, match="a picture is HEIGHTxWIDTH"):
        Shape.read(text)


def test_features_that_do_not_fit():
    with pytest.raises(ValueError, match="a picture of 16x24x1 takes 384 features; there are 5"):
        FeaturePictures(np.zeros((2, 5)), Shape.read("16x24"))


def test_files_of_the_folder_and_nothing_else(tmp_path):
    folder = tmp_path / "pictures"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a.PNG").write_bytes(b"picture")
    (folder / "page.svg").write_text("<svg onload='alert(1)'/>")
    (folder / "page.html").write_text("<p>")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    names = [
        "inner/a.PNG", " inner/../inner/a.PNG ", "../secret.png", str(tmp_path / "secret.png"), "link.png",
        "page.svg", "page.html", "gone.png", "", "inner",
    ]  # fmt: skip
    pictures = FilePictures(names, folder)
    assert [pictures(row) and pictures(row).content for row in range(len(names))] == [b"picture"] * 2 + [None] * 8
    assert pictures(0).media_type == "image/png"
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        FilePictures([], tmp_path / "nowhere")
