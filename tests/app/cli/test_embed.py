"""``ccmn embed``: encoders of several libraries, resumed runs, and files that other commands read."""

import sys
import types

import numpy as np
import pandas as pd
import pytest
import torch

from ccmn.data import read_file

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed: pip install pillow")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'ccmn[app]'")

OWN = """
import numpy as np

calls = []

def make(kind, device):
    def encode(items):
        calls.append(len(items))
        if kind == "text":
            return np.array([[len(text), text.count("a")] for text in items])
        return np.array([np.asarray(image).mean((0, 1)) for image in items])
    return encode
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Working directory with 40 images, a CSV file of them, texts and labels, and an encoder of the user."""
    rng = np.random.default_rng(0)
    colors = rng.integers(256, size=(40, 3))
    (tmp_path / "images").mkdir()
    for i, color in enumerate(colors):
        Image.fromarray(np.full((4, 5, 3), color, np.uint8)).save(tmp_path / "images" / f"{i}.png")
    table = pd.DataFrame(
        {
            "file": [f"images/{i}.png" for i in range(40)],
            "title": ["a" * (i % 3) + "b" * (1 + i % 4) for i in range(40)],
            "red": (colors[:, 0] > 127).astype(int),
            "green": (colors[:, 1] > 127).astype(int),
        }
    )
    table.to_csv(tmp_path / "photos.csv", index=False)
    table.to_parquet(tmp_path / "photos.parquet")
    (tmp_path / "own_encoder.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_encoder", raising=False)
    yield types.SimpleNamespace(path=tmp_path, colors=colors, table=table)
    sys.modules.pop("own_encoder", None)


@pytest.mark.parametrize("source", ["photos.csv", "photos.parquet"])
def test_images_by_an_encoder_of_the_user(folder, run, source):
    result = run("embed", source, "--image", "file", "--encoder", "own_encoder:make", "--out", "out.parquet")
    written = pd.read_parquet("out.parquet")
    assert written.columns.tolist() == ["file", "red", "green", "e0", "e1", "e2"]
    np.testing.assert_allclose(written[["e0", "e1", "e2"]], folder.colors)
    assert "40 rows, 3 dimensions" in result.stdout
    assert "left out: title" in result.stderr
    assert not list(folder.path.glob("out.parquet.*"))


def test_output_declares_its_columns(folder, run, printed):
    """Other commands know the columns of images, tags and identifiers without options."""
    table = folder.table.assign(number=range(100, 140), tags=["a", "a;b", "", "b"] * 10)
    table[["number", "file", "tags"]].to_csv("tagged.csv", index=False)
    columns = ("--image", "file", "--tags", "tags", "--id", "number")
    embedded = run("embed", "tagged.csv", *columns, "--encoder", "pixels:2x2", "--out", "out.parquet")
    assert "noise estimate out.parquet --out rates.json" in embedded.stderr
    fitted = printed("fit", "out.parquet", "--noise", "none", "--out", "model.ccmn")
    assert (fitted["d"], fitted["q"]) == (2 * 2 * 3, 2)
    run("data", "convert", "out.parquet", "--out", "out.npz")
    labels = read_file("out.npz")
    np.testing.assert_array_equal(labels.Y, [[1, 0], [1, 1], [0, 0], [0, 1]] * 10)  # an empty cell lists no tag
    rows = printed("predict", "model.ccmn", "out.parquet")["rows"]
    assert rows[3]["number"] == "103"


def test_folder_of_images(folder, run, rejected):
    """Sub-folders are tags; images outside of them have unknown tags."""
    for i, place in enumerate(["sea", "sky/blue", ".", "sea"]):
        target = folder.path / "sorted" / place / f"{i}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        (folder.path / "images" / f"{i}.png").rename(target)
    (folder.path / "sorted" / "notes.txt").write_text("no image")
    run("embed", "sorted", "--encoder", "own_encoder:make", "--out", "out.parquet")
    written = pd.read_parquet("out.parquet")
    assert written.file.tolist() == [
        "sorted/2.png",
        "sorted/sea/0.png",
        "sorted/sea/3.png",
        "sorted/sky/blue/1.png",
    ]
    assert [tag if isinstance(tag, str) else None for tag in written.tags] == [None, "sea", "sea", "sky"]
    np.testing.assert_allclose(written[["e0", "e1", "e2"]], folder.colors[[2, 0, 3, 1]])
    (folder.path / "empty").mkdir()
    arguments = ("--encoder", "pixels:2x2", "--out", "other.parquet")
    assert "contains no images" in rejected("embed", "empty", *arguments)
    assert "has no columns" in rejected("embed", "sorted", "--image", "file", *arguments, code=2)


def test_paths_of_images_start_in_the_folder_of_the_output(folder, run):
    arguments = ("--image", "file", "--encoder", "pixels:2x2", "--out")
    (folder.path / "set").mkdir()
    (folder.path / "images").rename(folder.path / "set" / "images")
    (folder.path / "photos.csv").rename(folder.path / "set" / "photos.csv")
    run("embed", "set/photos.csv", *arguments, "out.parquet")
    assert pd.read_parquet("out.parquet").file[0] == "set/images/0.png"
    (folder.path / "elsewhere").mkdir()
    result = run("embed", "set/photos.csv", *arguments, "elsewhere/out.parquet")
    assert "--image-dir set" in result.stderr


def test_texts_with_kept_columns(folder, printed):
    arguments = "--text", "title", "--id", "file", "--encoder", "own_encoder:make", "--out", "out.parquet"
    assert printed("embed", "photos.csv", *arguments) == {"out": "out.parquet", "rows": 40, "dimensions": 2}
    written = pd.read_parquet("out.parquet")
    assert written.e0.tolist() == folder.table.title.str.len().tolist()
    assert written.file.tolist() == folder.table.file.tolist()


def test_interrupted_run_continues(folder, run, monkeypatch):
    arguments = "photos.csv", "--text", "title", "--encoder", "own_encoder:make", "--out", "out.parquet"
    arguments += ("--batch-size", 4)
    monkeypatch.setattr("ccmn.data.encoders.BATCHES_PER_PART", 2)
    calls = iter(range(100))

    def interrupted(*_, **__):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return np.zeros((4, 2), np.float32)

    with monkeypatch.context() as patch:
        patch.setattr("ccmn.data.encoders._encode_batch", interrupted)
        run("embed", *arguments, code=130)
    assert not (folder.path / "out.parquet").exists()
    sys.modules["own_encoder"].calls.clear()
    run("embed", *arguments)
    assert sum(sys.modules["own_encoder"].calls) == 40 - 16
    assert pd.read_parquet("out.parquet").e0.tolist()[16:] == folder.table.title.str.len().tolist()[16:]
    assert not list(folder.path.glob("out.parquet.*"))


def test_torchvision_encoder_has_no_last_layer(folder, run, rejected, monkeypatch):
    """Torchvision is replaced by the four names that are used."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(3, 1000)

        def forward(self, batch):
            return self.fc(batch.mean((2, 3)))

    def transforms():
        return lambda image: torch.tensor(np.asarray(image)).permute(2, 0, 1).float()

    models = types.SimpleNamespace(
        get_model_weights=lambda name: types.SimpleNamespace(DEFAULT=types.SimpleNamespace(transforms=transforms)),
        get_model=lambda name, weights: Network(),
    )
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=models))
    run("embed", "photos.csv", "--image", "file", "--encoder", "torchvision:small", "--out", "out.parquet")
    np.testing.assert_allclose(pd.read_parquet("out.parquet")[["e0", "e1", "e2"]], folder.colors)
    arguments = ("--text", "title", "--encoder", "torchvision:small", "--out", "other.parquet")
    assert "torchvision encodes images" in rejected("embed", "photos.csv", *arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "--image COLUMN or --text COLUMN"),
        (("--image", "picture"), 1, "no column 'picture'"),
        (("--text", "title", "--labels", "nope"), 1, "no label column 'nope'"),
        (("--text", "title", "--encoder", "resnet50"), 1, "LIBRARY:NAME"),
        (("--text", "title", "--encoder", "own_encoder:other"), 1, "no function 'other'"),
        (("--image", "title"), 1, "there is no file"),
        (("--text", "title", "--out", "photos.csv"), 1, "already exists"),
        (("--image", "file", "--encoder", "torchvision:resnet50"), 1, 'pip install "ccmn[encoders]"'),
    ],
)
def test_errors(folder, rejected, monkeypatch, arguments, code, message):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    settings = {"--encoder": "own_encoder:make", "--out": "out.parquet", **dict(zip(arguments[::2], arguments[1::2]))}
    assert message in rejected("embed", "photos.csv", *(word for pair in settings.items() for word in pair), code=code)


@pytest.mark.parametrize("content", [b"no image", "truncated", "too large"])
def test_damaged_image_is_named(folder, run, content, monkeypatch):
    path = folder.path / "images" / "7.png"
    if content == "too large":  # a picture of a few bytes can declare any number of pixels
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
        Image.new("RGB", (50, 50)).save(path)
    else:
        path.write_bytes(path.read_bytes()[:40] if content == "truncated" else content)
    result = run(
        "embed", "photos.csv", "--image", "file", "--encoder", "own_encoder:make", "--out", "o.parquet", code=1
    )
    assert "row 8" in result.stderr
    assert "7.png is not a readable image" in result.stderr
