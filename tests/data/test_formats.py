from __future__ import annotations

import pytest

from ccmn.data import write_file
from ccmn.data.formats import FORMATS, read_file


def test_suffix_selects_the_reader(tmp_path, small, same, write):
    write_file(small, tmp_path / "small.CSV")
    write_file(small, tmp_path / "small.npz")
    same(read_file(tmp_path / "small.CSV", -2), small)
    same(read_file(str(tmp_path / "small.npz")), small)
    for suffix in (".txt", ".svm", ".libsvm"):
        assert read_file(write(f"small{suffix}", "0 1:1\n")).n == 1


@pytest.mark.parametrize("name", ["data.xlsx", "data", "data.gz", "data.csv.bz2"])
def test_unknown_suffix(write, name):
    path = write(name, "a,b\n")
    with pytest.raises(ValueError, match=r"unknown file format .* Known: \.csv, \.parquet, \.arff") as caught:
        read_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_labels_are_rejected_for_formats_with_a_label_matrix(write, suffix):
    with pytest.raises(ValueError, match="omit labels=-2"):
        read_file(write(f"data{suffix}", ""), -2)


@pytest.mark.parametrize("suffix", list(FORMATS))
def test_missing_file_and_folder(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        FORMATS[suffix].read(path)
    path.mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        FORMATS[suffix].read(path)


@pytest.mark.parametrize("suffix", list(FORMATS))
@pytest.mark.parametrize("content", [b"", b"\x00\x01\xff\xfe" * 50, b"PK\x03\x04 @data {"])
def test_junk_is_rejected_by_every_reader(tmp_path, suffix, content):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="data") as caught:
        FORMATS[suffix].read(path) if FORMATS[suffix].labels_apart else FORMATS[suffix].read(path, -1)
    assert str(path) in str(caught.value)
