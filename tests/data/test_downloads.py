import hashlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ccmn.data import catalog

pytest.importorskip("pooch")

CONTENT = b"@relation x\n" * 1000
SOURCE = catalog.Source("owner/data", "0123abc", "folder/file.arff", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Folder of downloaded files."""
    monkeypatch.setenv("CCMN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mirror(served, monkeypatch):
    """Server that has the file."""
    folder, address = served
    monkeypatch.setenv("CCMN_MIRROR", address)
    file = folder / "owner/data/0123abc/folder/file.arff"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)


BY_BLOB_ID = catalog.Source(
    SOURCE.repository, SOURCE.commit, SOURCE.path, git_blob=hashlib.sha1(b"blob 12000\0" + CONTENT).hexdigest()
)


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_downloads_are_cached(mirror, cache, monkeypatch, capfd):
    path = catalog.download(SOURCE)
    assert path.read_bytes() == CONTENT
    assert path.name == "file.arff"
    assert files_in(cache) == [path]
    monkeypatch.setenv("CCMN_MIRROR", "http://127.0.0.1:1")
    assert catalog.download(SOURCE) == path
    assert capfd.readouterr() == ("", "")  # no terminal, no progress


@pytest.mark.parametrize("source", [SOURCE, BY_BLOB_ID], ids=["sha256", "git"])
def test_damaged_cache_is_replaced(mirror, source):
    catalog.download(source).write_bytes(b"damaged")
    assert catalog.download(source).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("change", "address", "message"),
    [
        ({"sha256": "0" * 64}, None, r"file\.arff is not the expected file: its .* is not 000"),
        ({"sha256": "", "git_blob": "0" * 40}, None, r"file\.arff is not the expected file: its .* is not 000"),
        ({"path": "gone.arff"}, None, r"could not download http.*gone\.arff: the server answered 404"),
        ({}, "http://127.0.0.1:1", r"could not download .*: the server cannot be reached"),
        ({}, "nonsense://x", r"could not download .*: the server cannot be reached"),
    ],
)
def test_failed_downloads(mirror, cache, monkeypatch, change, address, message):
    if address:
        monkeypatch.setenv("CCMN_MIRROR", address)
    with pytest.raises((ValueError, OSError), match=message):
        catalog.download(replace(SOURCE, **change))
    assert files_in(cache) == []


def test_readings_of_electrocardiograms(served, monkeypatch):
    folder, address = served
    rng = np.random.default_rng(0)
    sources, expected = {}, {}
    for name, source in catalog.ECG_FILES.items():
        path = folder / source.repository / source.commit / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "model":
            expected[name] = rng.random((20, 6), dtype=np.float32)
            np.save(path, expected[name])
        else:
            expected[name] = rng.integers(0, 2, (20, 6))
            pd.DataFrame(expected[name], columns=list("abcdef")).to_csv(path, index=False)
        sources[name] = replace(source, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(catalog, "ECG_FILES", sources)
    monkeypatch.setenv("CCMN_MIRROR", address)
    found = catalog.fetch_ecg()
    assert found["labels"].tolist() == list("abcdef")
    np.testing.assert_array_equal(found["Y_true"], expected["gold_standard"])
    np.testing.assert_array_equal(found["Y_medical_students"], expected["medical_students"])
    np.testing.assert_array_equal(found["scores"][:, 0], expected["model"])
    assert found["votes"].shape == (20, 5, 6)
    assert "gold_standard" not in found["readers"]
