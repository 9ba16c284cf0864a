from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from ccmn.app.report.instances import (
    MAX_CHARACTERS,
    MAX_FEATURES,
    image_files,
    informative_features,
    pictures,
    snippets,
)


def test_pictures_are_scaled_over_all_rows():
    X = np.array([[0.0, 1, 2, 3, 4, 5], [10, 10, 10, 10, 10, 10]])
    assert pictures(X, (2, 3))(0, 0).pixels.tolist() == [[0, 26, 51], [76, 102, 128]]
    assert (pictures(scipy.sparse.csr_array(X), (2, 3))(1, 0).pixels == 255).all()
    assert pictures(X, (1, 2, 3))(0, 0).pixels.shape == (1, 2, 3)
    assert (pictures(np.ones((2, 6)), (2, 3))(0, 0).pixels == 0).all()


@pytest.mark.parametrize("shape", [(2, 4), (6,), (1, 3, 2)])
def test_shape_must_match_the_features(shape):
    with pytest.raises(ValueError, match="6 features"):
        pictures(np.ones((2, 6)), shape)


def test_only_pictures_inside_the_folder_are_shown(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed: pip install pillow")
    folder = tmp_path / "pictures"
    folder.mkdir()
    image.new("RGB", (4, 3)).save(folder / "good.png")
    image.new("RGB", (4, 3)).save(tmp_path / "outside.png")
    image.new("RGB", (50, 50)).save(folder / "huge.png")
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "cut.png").write_bytes((folder / "good.png").read_bytes()[:40])
    os.mkfifo(folder / "pipe.png")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 100)  # a picture of a few bytes can declare any number of pixels
    wrong = ["../outside.png", str(tmp_path / "outside.png"), "link.png", "loop.png", "cut.png", "pipe.png", "huge.png"]
    names = ["good.png", *wrong, "nul\0.png", "x" * 5000, "", "absent.png"]
    show = image_files(names, folder)
    assert show(0, 0).pixels.shape == (3, 4, 3)
    assert [show(row, 0).text for row in range(1, len(names))] == names[1:]


def test_long_texts_are_cut():
    show = snippets(["  two \n words ", "x" * 1000])
    assert show(0, 0).text == "two words"
    assert show(1, 0).text == "x" * (MAX_CHARACTERS - 1) + "…"


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array])
def test_informative_features_match_correlations(container):
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, size=(60, 8)).astype(np.float64)
    X[:, 7] = 3.0  # constant, no evidence
    Y = (X[:, :2] + rng.normal(size=(60, 2)) > 1).astype(np.float64)
    shown = informative_features(container(X), Y, [f"x{j}" for j in range(8)])(5, 1).features
    z = [(X[5, j] - X[:, j].mean()) / X[:, j].std() for j in range(7)]
    expected = {f"x{j}": z[j] * np.corrcoef(X[:, j], Y[:, 1])[0, 1] for j in range(7)}
    most = sorted(expected, key=lambda name: -abs(expected[name]))[:MAX_FEATURES]
    assert [name for name, _, _ in shown] == most
    assert [evidence for *_, evidence in shown] == pytest.approx([expected[name] for name in most])
    assert [float(value) for _, value, _ in shown] == [X[5, int(name[1:])] for name in most]


def test_cells_are_shown_with_the_evidence_of_their_features():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), rng.integers(2, size=(40, 1)).astype(float)
    cells = pd.DataFrame({"city": ["Rome", "Oslo"] * 20, "age": [31.0, np.nan] * 20})
    shown = informative_features(X, Y, ["age", "city", "city"], cells)(3, 0).features
    single = {name: evidence for name, _, evidence in informative_features(X, Y, ["a", "b", "c"])(3, 0).features}
    found = {name: (value, evidence) for name, value, evidence in shown}
    assert found["age"] == ("–", pytest.approx(single["a"]))
    assert found["city"] == ("Oslo", pytest.approx(single["b"] + single["c"]))
