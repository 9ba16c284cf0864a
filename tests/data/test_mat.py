from __future__ import annotations

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from ccmn.data import load_dataset, read_file


def save(path, **variables):
    scipy.io.savemat(path, variables)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "the variable 'target' is missing; expected .* found data"),
        ({"data": None}, "the variable 'data' is missing"),
        (
            {"target": np.zeros((3, 2))},
            r"target must be q x n with n = 3.*it has a row per sample: save target' instead",
        ),
        ({"target": np.zeros((2, 4))}, r"target must be q x n with n = 3, the rows of data; got \(2, 4\)"),
        ({"target": np.array([[1, 0, -1], [0, 0, 0]])}, r"0 and 1 only, or -1 and \+1 only; got \[-1, 0, 1\]"),
        ({"target": np.array([[1, 0, np.nan], [0, 0, 0]])}, "0 and 1 only"),
        ({"data": np.array([["a", "b"]] * 3, dtype=object)}, "data must be a matrix of numbers; got object"),
        ({"data": {"x": 1}}, "data must be a matrix of numbers"),
        ({"data": np.ones((3, 2), complex)}, "data must be a matrix of numbers"),
        ({"data": np.full((3, 2), 1e300)}, "infinite value"),
        ({"data": np.ones((3, 2, 2))}, "data must be a matrix; got shape"),
        ({"partial_labels": np.ones((2, 4))}, "partial_labels must be q x n"),
    ],
)
def test_malformed(tmp_path, small, change, message):
    variables = {"data": small.X, "target": small.Y.T} | change
    path = save(tmp_path / "data.mat", **{key: value for key, value in variables.items() if value is not None})
    with pytest.raises(ValueError, match=message) as caught:
        read_file(path)
    assert str(path) in str(caught.value)


def test_version_7_3(tmp_path):
    path = tmp_path / "data.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(ValueError, match=r"version 7\.3 .*-v7"):
        read_file(path)


@pytest.mark.parametrize("name", ["yeast", "enron"])
def test_real_files_equal_the_npz(real_data, original, same, name):
    same(read_file(original / f"{name}.mat"), load_dataset(name, data_dir=real_data))


def test_mirflickr_with_candidates(real_data, original, same):
    same(read_file(original / "mirflickr_5000.mat"), load_dataset("mirflickr", data_dir=real_data))
