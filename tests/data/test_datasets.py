from __future__ import annotations

import gzip
import hashlib
import sys

import numpy as np
import pytest

from ccmn.data import DATASETS, load_dataset, load_labels, write_csv, write_npz
from ccmn.data.datasets import where_is

ORIGINALS = {
    "yeast.arff": "mulan_yeast.arff.gz",
    "yeast.xml": "mulan_yeast.xml",
    "scene-train.arff": "mulan_scene-train.arff.gz",
    "scene-test.arff": "mulan_scene-test.arff.gz",
    "scene.xml": "mulan_scene.xml",
    "enron.arff": "mulan_enron.arff.gz",
    "enron.xml": "mulan_enron.xml",
    "SLASHDOT-F.arff": "meka_SLASHDOT-F.arff.gz",
    "tmc2007-500-train.arff": "mulan_tmc2007-500-train.arff.gz",
    "tmc2007-500-test.arff": "mulan_tmc2007-500-test.arff.gz",
    "tmc2007-500.xml": "mulan_tmc2007-500.xml",
    "mirflickr.mat": "mirflickr_5000.mat",
}
WITH_FEATURES = [name for name, row in DATASETS.items() if row.bundle]


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No data folder, an empty cache, and nobody who answers."""
    monkeypatch.delenv("CCMN_DATA", raising=False)
    monkeypatch.setenv("CCMN_MIRROR", "http://127.0.0.1:1")
    monkeypatch.setenv("CCMN_CACHE", str(tmp_path / "cache"))


def unpack(original, source):
    content = (original / ORIGINALS[source.file]).read_bytes()
    return gzip.decompress(content) if ORIGINALS[source.file].endswith(".gz") else content


@pytest.mark.parametrize("name", DATASETS)
def test_bundles_have_the_checksums_listed(real_data, name):
    row = DATASETS[name]
    for bundle in filter(None, (row.bundle, row.labels_bundle)):
        assert hashlib.sha256((real_data / bundle.file).read_bytes()).hexdigest() == bundle.sha256


@pytest.mark.parametrize("name", WITH_FEATURES)
def test_public_files_have_the_checksums_listed(original, name):
    for source in DATASETS[name].files:
        assert hashlib.sha256(unpack(original, source)).hexdigest() == source.sha256


@pytest.mark.parametrize("name", WITH_FEATURES)
def test_measured_beside_the_paper(real_data, name):
    data, paper = load_dataset(name, data_dir=real_data), DATASETS[name].paper
    assert (data.d, data.q, data.name, data.domain) == (paper.d, paper.q, name, DATASETS[name].domain)
    if not DATASETS[name].note:
        assert (data.n, int(data.cardinality * 100) / 100) == (paper.n, paper.cardinality)


@pytest.mark.parametrize("name", ["music_emotion", "music_style"])
def test_no_features(name):
    with pytest.raises(FileNotFoundError, match=f"features of {name} could not be had.*load_labels"):
        load_dataset(name)


@pytest.mark.parametrize("name", [name for name, row in DATASETS.items() if row.labels_bundle])
def test_labels_alone(real_data, name, monkeypatch):
    monkeypatch.setenv("CCMN_DATA", str(real_data))
    data, paper = load_labels(name), DATASETS[name].paper
    assert (data.n, data.d, data.q) == (paper.n, 0, paper.q)
    assert (data.candidates >= data.Y).all()  # real candidate sets only add labels


def test_labels_of_a_data_set_with_features(real_data):
    data = load_labels("yeast", data_dir=real_data)
    assert (data.d, data.q, data.feature_names) == (0, 14, None)
    assert data.label_names[0] == "Class1"


@pytest.fixture
def public_home(original, served, monkeypatch, offline):
    """The public files under their public paths, on a server on this machine."""
    folder, address = served
    for source in {source for row in DATASETS.values() for source in row.files}:
        path = folder / source.repository / source.commit / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(unpack(original, source))
    monkeypatch.setenv("CCMN_MIRROR", address)


def test_downloads_give_the_same_data(real_data, public_home, same, monkeypatch):
    for name in WITH_FEATURES:
        data, expected = load_dataset(name), load_dataset(name, data_dir=real_data)
        same(data, expected)
        assert (data.name, data.label_names) == (expected.name, expected.label_names)
    monkeypatch.setenv("CCMN_MIRROR", "http://127.0.0.1:1")
    assert load_dataset("yeast").n == 2417  # from the cache


def test_public_files_in_the_data_folder(original, tmp_path, offline, monkeypatch):
    for source in DATASETS["yeast"].files:
        (tmp_path / source.file).write_bytes(unpack(original, source))
    monkeypatch.setenv("CCMN_DATA", str(tmp_path))
    assert load_dataset("yeast").n == 2417


def test_advice_when_nothing_is_to_be_had(offline, tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match=r"no folder was given.*could not download http://127\.0\.0\.1:1"
    ) as error:
        load_dataset("scene")
    assert "scene-train.arff" in str(error.value)
    assert "scene.xml" in str(error.value)
    with pytest.raises(FileNotFoundError, match=r"scene\.npz was not found: it is not in the folder"):
        load_dataset("scene", data_dir=tmp_path)
    monkeypatch.setenv("CCMN_DATA", "/nowhere")
    with pytest.raises(FileNotFoundError, match="it is not in CCMN_DATA=/nowhere"):
        load_dataset("scene")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileNotFoundError, match=r"pip install 'ccmn\[download\]'"):
        load_dataset("scene")
    with pytest.raises(FileNotFoundError, match=r"music_style_labels\.npz was not found.*grad_thesis"):
        load_labels("music_style")


def test_another_file_under_the_name_is_refused(small, tmp_path):
    write_npz(small, tmp_path / "yeast.npz")
    with pytest.raises(ValueError, match=r"yeast\.npz is not the file expected.*load it by its path"):
        load_dataset("yeast", data_dir=tmp_path)
    assert load_dataset(str(tmp_path / "yeast.npz")).n == 3


def test_by_path(small, tmp_path, same, monkeypatch):
    write_csv(small, tmp_path / "small.csv")
    same(load_dataset(tmp_path / "small.csv", labels=["sea", "sky"]), small)
    monkeypatch.chdir(tmp_path)
    same(load_dataset("small.csv", labels=-2), small)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("yaest", r"unknown data set 'yaest'; did you mean 'yeast'\? Known: yeast.* told by its suffix: \.csv"),
        ("small.xyz", "unknown data set 'small.xyz'"),
        ("", "unknown data set ''"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(name)


def test_paths_that_are_not_there(tmp_path):
    for path in ("nowhere.csv", "folder/yeast", tmp_path / "yeast"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            load_dataset(path)


def test_a_name_takes_no_labels():
    with pytest.raises(ValueError, match="'yeast' knows its labels"):
        load_dataset("yeast", labels=-14)
    with pytest.raises(ValueError, match="unknown data set 'nothing'"):
        load_labels("nothing")


def test_labels_keep_the_order_of_the_arff(real_data):
    data = load_dataset("enron", data_dir=real_data)
    assert data.label_names[:2] == ("A.A8", "C.C9")
    assert data.Y.sum(0)[data.label_names.index("D.D18")] == 1


def test_a_data_set_without_public_features_is_read_from_the_users_own_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"music_style\.mat or music_style\.npz"):
        load_dataset("music_style", data_dir=tmp_path)
    np.savez(tmp_path / "music_style.npz", X=np.ones((3, 2), np.float32), Y=np.eye(3, dtype=np.uint8))
    data = load_dataset("music_style", data_dir=tmp_path)
    assert (data.n, data.d, data.q, data.name) == (3, 2, 3, "music_style")
    assert where_is("music_style", data_dir=tmp_path) == "folder"
