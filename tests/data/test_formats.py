"""Every file format: round trips, damaged, truncated and hostile files, files that are none."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from ccmn.data import MultiLabelData, load_dataset, read_file, write_file
from ccmn.data.formats import FORMATS
from data.samples import SAVE, limited_memory

LIMIT = 20_000


def read(path: Path) -> MultiLabelData:
    """Read a file of which the last two columns are labels, if it has columns."""
    form = next(FORMATS[suffix] for suffix in FORMATS if f"{suffix}." in f"{path.name}.")
    return read_file(path, -2) if form.labels == "columns" else read_file(path)


def message(path: Path) -> str:
    """Return the message of the error, which names the file; an empty text if the file is read."""
    try:
        data = read(path)
    except ValueError as error:
        assert str(path) in str(error)  # noqa: PT017
        return str(error)
    assert data.X.shape[0] == data.Y.shape[0]
    return ""


@pytest.fixture(params=SAVE)
def saved(request, small, tmp_path):
    """Return the path of the small dataset in one of the formats."""
    path = tmp_path / f"small.{request.param}"
    SAVE[request.param](small, path)
    return path


def test_round_trip(saved, small, same):
    data = read(saved)
    same(data, small)
    assert data.X.dtype == np.float32
    assert scipy.sparse.issparse(data.X) == ("sparse" in saved.name or "svm" in saved.name)
    assert data.name == "small" or saved.name.count(".") > 1
    if not any(kind in saved.name for kind in ("svm", "mat")):
        assert (data.feature_names, data.label_names) == (small.feature_names, small.label_names)


def test_truncated(saved):
    """A text file may end after any row; any other part of a file is rejected."""
    whole = saved.read_bytes()
    for length in range(0, len(whole), 1 + len(whole) // 40):
        saved.write_bytes(whole[:length])
        assert message(saved) or saved.suffix in (".csv", ".arff", ".svm")


def test_changed_bytes(saved):
    """Changed types and sizes are included."""
    whole = saved.read_bytes()
    for place in range(0, len(whole), 1 + len(whole) // 40):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[place] ^= change
            saved.write_bytes(damaged)
            message(saved)


@pytest.mark.parametrize("kind", [*(kind for kind in SAVE if kind != "arff"), "sparse labels.arff"])
def test_files_that_need_too_much_memory(tmp_path, monkeypatch, kind):
    """They are rejected before the memory is used, although they are small."""
    if kind == "sparse labels.arff":
        attributes = "".join(f"@attribute a{j} {{0,1}}\n" for j in range(5000))
        path = tmp_path / "large.arff"
        path.write_text(f"@relation x\n{attributes}@data\n" + "{}\n" * 5000)
    else:
        n = 40_000
        path = tmp_path / f"large.{kind}"
        SAVE[kind](MultiLabelData(np.zeros((n, 1)), np.ones((n, 2)), None, ["a"], ["b", "c"]), path)
    monkeypatch.setenv("CCMN_MAX_BYTES", str(LIMIT))
    with limited_memory(5_000_000 + path.stat().st_size):
        text = message(path)
    assert "more than the limit of" in text
    assert text.count(path.name) == 1


@pytest.mark.parametrize("suffix", [*FORMATS, ".csv.gz"])
def test_other_than_regular_files(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_file(path)
    path.mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        read_file(path)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="is a pipe or a device"):
        load_dataset(path)


@pytest.mark.parametrize("suffix", list(FORMATS))
@pytest.mark.parametrize("content", [b"", b"\x00\x01\xff\xfe" * 50, b"PK\x03\x04 @data {"])
def test_junk_is_rejected_by_every_reader(tmp_path, suffix, content):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content)
    assert message(path)


@pytest.mark.parametrize("name", ["data.xlsx", "data", "data.gz", "data.csv.bz2"])
def test_unknown_suffix(write, name):
    path = write(name, "a,b\n")
    with pytest.raises(ValueError, match=r"unknown file format .* Known: \.csv, \.parquet, \.arff") as caught:
        read_file(path)
    assert str(path) in str(caught.value)
    with pytest.raises(ValueError, match=r"unknown suffix to write .* Known: \.npz"):
        write_file(MultiLabelData([[1]], [[1]]), path)


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_labels_are_rejected_for_formats_with_a_label_matrix(write, suffix):
    with pytest.raises(ValueError, match="omit labels=-2"):
        read_file(write(f"data{suffix}", ""), -2)


@pytest.mark.parametrize("end", ["-12", "flip", "plain"])
def test_damaged_compression(tmp_path, end):
    path = tmp_path / "data.csv.gz"
    content = bytearray(gzip.compress(b"a,b,c\n" + b"1,0,1\n" * 50))
    if end == "flip":
        content[30] ^= 255
    path.write_bytes(b"a,b,c\n1,0,1\n" if end == "plain" else content[:-12] if end == "-12" else content)
    expected = {"-12": "end too early", "flip": "damaged", "plain": "is not compressed with gzip"}
    assert expected[end] in message(path)


@pytest.mark.parametrize(
    ("name", "target"), [("task.npz", "ccmn.data.npz.np.load"), ("task.mat", "ccmn.data.mat.read_variables")]
)
def test_exhausted_memory_is_not_reported_as_a_damaged_file(small, tmp_path, monkeypatch, name, target):
    SAVE[name.partition(".")[2]](small, tmp_path / name)

    def fail(*_, **__):
        raise MemoryError("Unable to allocate 7.63 MiB")

    monkeypatch.setattr(target, fail)
    with pytest.raises(MemoryError, match="Unable"):
        read_file(tmp_path / name)
