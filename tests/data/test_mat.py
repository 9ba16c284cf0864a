"""MAT files are read as by scipy; damaged files raise ValueError and never crash."""

import io
import struct
import zlib

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ccmn.data import read_file
from ccmn.data.mat import read_variables
from data.samples import dense, limited_memory

DTYPES = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


def saved(variables, **settings) -> bytes:
    stream = io.BytesIO()
    scipy.io.savemat(stream, variables, **settings)
    return stream.getvalue()


@given(
    data=st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=4))
    ),
    compressed=st.booleans(),
    sparse=st.booleans(),
)
def test_agrees_with_scipy(data, compressed, sparse):
    other = np.arange(6.0).reshape(2, 3)
    if sparse and data.ndim == 2 and data.dtype.kind == "f":
        data = scipy.sparse.csc_matrix(np.nan_to_num(data))
    content = saved({"words": "some text", "data": data, "other": other, "x": {"a": 1}}, do_compression=compressed)
    expected = scipy.io.loadmat(io.BytesIO(content))
    found, names = read_variables(content, ("data", "other", "absent"))
    assert names == ["words", "data", "other", "x"]
    assert set(found) == {"data", "other"}
    assert scipy.sparse.issparse(found["data"]) == scipy.sparse.issparse(expected["data"])
    for name, values in found.items():
        assert values.shape == expected[name].shape
        np.testing.assert_array_equal(dense(values), dense(expected[name]))


@pytest.mark.parametrize("value", ["text", {"a": 1}, np.ones((2, 2), complex), np.array([[1, "a"]], dtype=object)])
def test_other_values_than_numbers_become_objects(value):
    assert read_variables(saved({"data": value}), ("data",))[0]["data"].dtype == object


def test_logical_sparse_matrices():
    Y = scipy.sparse.csc_matrix(np.eye(3, 5, dtype=bool))
    np.testing.assert_array_equal(dense(read_variables(saved({"data": Y}), ("data",))[0]["data"]), np.eye(3, 5))


@pytest.mark.parametrize(("zeros", "message"), [(0, "no element"), (1 << 24, "several elements")])
def test_compressed_element_must_contain_one_variable(zeros, message):
    """Two million empty elements compress to 16 kB; they are not all read."""
    packed = zlib.compress(bytes(zeros))
    content = saved({"x": np.eye(2)})[:128] + struct.pack("<II", 15, len(packed)) + packed
    with limited_memory(3 * zeros + 100_000), pytest.raises(ValueError, match=message):
        read_variables(content, ["x"])


def test_version_4_is_rejected(tmp_path):
    path = tmp_path / "old.mat"
    scipy.io.savemat(path, {"data": np.ones((3, 2)), "target": np.eye(2, 3)}, format="4")
    with pytest.raises(ValueError, match=r"old\.mat is a MAT file of version 4; .*-v7"):
        read_file(path)
