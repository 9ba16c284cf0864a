import gzip
import hashlib
import io
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from ccmn.data import MultiLabelData, load_dataset, write_file
from ccmn.data.catalog import DATASETS, Source, dataset_location
from ccmn.data.dataset import describe

WITH_FEATURES = [name for name, row in DATASETS.items() if row.sources and all(file.sha256 for file in row.files)]
BY_BLOB_ID = [name for name, row in DATASETS.items() if any(file.git_blob for file in row.files)]


def unpack(original, source):
    """Return the content of a public file. The originals have a prefix, such as "mulan_", and may be compressed."""
    name = source.file.replace("mirflickr.mat", "mirflickr_5000.mat")
    (path,) = [
        path for path in original.iterdir() if path.name.removesuffix(".gz") in (name, f"mulan_{name}", f"meka_{name}")
    ]
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.parametrize("name", WITH_FEATURES)
def test_public_files_have_the_listed_checksums(original, name):
    for source in DATASETS[name].files:
        assert hashlib.sha256(unpack(original, source)).hexdigest() == source.sha256


@pytest.mark.parametrize("name", WITH_FEATURES)
def test_shapes_agree_with_the_paper(real_data, name):
    data, paper = load_dataset(name, data_dir=real_data), DATASETS[name].paper
    assert (data.d, data.q, data.name, data.domain) == (paper.d, paper.q, name, DATASETS[name].domain)
    if not DATASETS[name].note:
        assert (data.n, int(describe(data).cardinality * 100) / 100) == (paper.n, paper.cardinality)


@pytest.fixture
def public_home(original, served, monkeypatch, offline):
    """Serve the public files under their public paths on this machine."""
    folder, address = served
    for source in {source for name in WITH_FEATURES for source in DATASETS[name].files}:
        path = folder / source.repository / source.commit / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(unpack(original, source))
    monkeypatch.setenv("CCMN_MIRROR", address)


@pytest.mark.slow
def test_downloads_equal_the_files_in_the_folder(real_data, public_home, same, monkeypatch):
    for name in WITH_FEATURES:
        data, expected = load_dataset(name), load_dataset(name, data_dir=real_data)
        same(data, expected)
        assert (data.name, data.label_names) == (expected.name, expected.label_names)
    monkeypatch.setenv("CCMN_MIRROR", "http://127.0.0.1:1")
    assert load_dataset("yeast").n == 2417  # from the cache


def test_error_lists_the_folder_and_the_public_files(offline, tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match=r"not in a data folder; none is set.*could not download http://127\.0\.0\.1:1"
    ) as error:
        load_dataset("scene")
    assert "scene-train.arff" in str(error.value)
    assert "scene.xml" in str(error.value)
    with pytest.raises(FileNotFoundError, match=r"scene\.npz was not found: it is not in the data folder"):
        load_dataset("scene", data_dir=tmp_path)
    monkeypatch.setenv("CCMN_DATA", "/nowhere")
    with pytest.raises(FileNotFoundError, match="it is not in the data folder /nowhere"):
        load_dataset("scene")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileNotFoundError, match=r'pip install "ccmn\[app\]"'):
        load_dataset("scene")


def test_names_are_looked_up_in_the_data_folder(small, same, tmp_path, monkeypatch):
    write_file(small, tmp_path / "yeast.npz")
    assert load_dataset("yeast", data_dir=tmp_path).domain == "biology"
    write_file(small, tmp_path / "mine.csv")
    same(load_dataset("mine", labels=-2, data_dir=tmp_path), small)
    monkeypatch.setenv("CCMN_DATA", str(tmp_path))
    same(load_dataset("mine", labels=["sea", "sky"]), small)
    with pytest.raises(ValueError, match="specify which columns are labels"):
        load_dataset("mine")
    write_file(small, tmp_path / "mine.npz")
    same(load_dataset("mine"), small)


def test_public_file_with_another_checksum_is_rejected(tmp_path):
    (tmp_path / "yeast.arff").write_text("@relation x\n")
    with pytest.raises(ValueError, match=r"yeast\.arff is not the expected file.*load it by its path"):
        load_dataset("yeast", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("yaest", r"unknown dataset 'yaest'; did you mean 'yeast'\? Known: yeast.* suffixes \.csv"),
        ("small.xyz", "unknown dataset 'small.xyz'"),
        ("", "unknown dataset ''"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(name)


@pytest.fixture
def music(served, offline, monkeypatch):
    """Serve a small MAT file as music_emotion; return a function that sets its size in the catalog."""
    folder, address = served
    content = io.BytesIO()
    scipy.io.savemat(content, {"data": np.ones((4, 3)), "target": np.eye(2, 4), "partial_labels": np.ones((2, 4))})
    content = content.getvalue()
    # git hash-object prints the same id.
    blob = hashlib.sha1(b"blob " + str(len(content)).encode() + b"\0" + content).hexdigest()
    source = Source("owner/data", "0123abc", "data/music_emotion.mat", git_blob=blob)
    path = folder / "owner/data/0123abc/data/music_emotion.mat"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    monkeypatch.setenv("CCMN_MIRROR", address)

    def listed(n):
        row = DATASETS["music_emotion"]
        size = row.paper._replace(n=n, d=3, q=2)
        monkeypatch.setitem(DATASETS._members, "music_emotion", replace(row, paper=size, sources=(source,)))

    return listed


def test_download_by_blob_id_and_of_another_size(music):
    pytest.importorskip("pooch")
    music(4)
    data = load_dataset("music_emotion")
    assert (data.n, data.d, data.q, data.name) == (4, 3, 2, "music_emotion")
    assert data.candidates.shape == (4, 2)
    music(5)
    with pytest.raises(ValueError, match="music_emotion has 4 rows, 3 features and 2 labels; expected 5, 3 and 2"):
        load_dataset("music_emotion")


@pytest.mark.parametrize("name", ["enron", "slashdot"])
def test_datasets_as_printed_are_the_columns_with_the_last_ones_as_labels(name, same, real_data):
    expected = load_dataset(str(real_data / f"{name}_labels_last.npz"))
    found = load_dataset(f"{name}_as_printed", data_dir=real_data)
    same(found, expected)
    assert found.label_names == expected.label_names
    assert found.feature_names == expected.feature_names
    assert dataset_location(f"{name}_as_printed", data_dir=real_data) == "folder"
    row = DATASETS[f"{name}_as_printed"].paper
    assert (found.n, found.d, found.q) == (row.n, row.d, row.q)


def test_characteristics_of_sparse_and_dense_data():
    X = np.array([[0, 1], [0, 0], [-0.0, 1], [2, 0], [0, 0]], dtype=np.float32)
    Y = [[1, 0], [0, 0], [1, 1], [0, 0], [1, 0]]
    stored_zero = scipy.sparse.csr_array(([1.0, 0, 1, 2, 0], [1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5]), shape=(5, 2))
    dense, sparse = describe(MultiLabelData(X, Y)), describe(MultiLabelData(stored_zero, scipy.sparse.csr_array(Y)))
    assert dense == sparse
    assert (dense.rows_without_features, dense.duplicate_rows, dense.feature_density) == (2, 2, 0.3)
    assert (dense.cardinality, dense.label_density, dense.candidate_size) == (0.8, 0.4, None)
    assert (dense.positives_min, dense.positives_median, dense.positives_max) == (1, 2.0, 3)
