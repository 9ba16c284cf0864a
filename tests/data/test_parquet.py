from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ccmn.data import read_file

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def write_table(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_reads_numbers_booleans_and_nulls(tmp_path):
    path = write_table(
        tmp_path / "data.parquet",
        length=pa.array([0.5, None, 1.5]),
        count=pa.array([1, 2, 2**40], pa.int64()),
        flag=pa.array([True, False, True]),
        label_sea=pa.array([1, 0, None], pa.int8()),
        label_sky=pa.array([True, False, True]),
    )
    data = read_file(path, "label_*")
    assert data.feature_names == ("length", "count", "flag")
    assert_array_equal(data.X, np.array([[0.5, 1, 1], [np.nan, 2, 0], [1.5, 2**40, 1]], np.float32))
    assert_array_equal(data.Y, [[1, 1], [0, 0], [np.nan, 1]])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["red"], "sea": [0]}, "row 1: 'red' in column 'a' is not a number.*TablePreprocessor"),
        ({"a": [[1.0]], "sea": [0]}, r"row 1: '\[1\.?\]' in column 'a' is not a number"),
        ({"a": pa.array([0], pa.timestamp("s")), "sea": [0]}, "row 1: '1970-01-01 00:00:00' in column 'a'"),
        ({"a": [1.0], "sea": ["maybe"]}, "row 1: 'maybe' in column 'sea' is not a number"),
        ({"a": [1.0, 2.0], "sea": [0, 3]}, "row 2: 3 in column 'sea'"),
        ({"a": [np.inf], "sea": [0]}, "row 1: infinite"),
        ({"__index_level_0__": [5], "sea": [0]}, "index=False"),
        ({"a": pa.array([], pa.float32()), "sea": pa.array([], pa.int8())}, "has no rows"),
        ({"a": [1.0], "b": [0]}, "there is no label column"),
    ],
)
def test_malformed(tmp_path, columns, message):
    path = write_table(tmp_path / "data.parquet", **columns)
    with pytest.raises(ValueError, match=message) as caught:
        read_file(path, ["sea"])
    assert str(path) in str(caught.value)


def test_damaged_footer_is_reported_in_one_line(tmp_path):
    path = write_table(tmp_path / "data.parquet", a=[1.0], sea=[0])
    content = bytearray(path.read_bytes())
    content[-60:-8] = b"\xff" * 52
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a complete Parquet file") as caught:
        read_file(path, -1)
    assert "\n" not in str(caught.value)


def test_damaged_levels_do_not_end_the_process(tmp_path):
    """Pyarrow ends the process if metadata of columns are inspected that do not fit the schema."""
    path = write_table(tmp_path / "data.parquet", a=[1.0], sea=[0])
    content = path.read_bytes()
    optional, required = b"\x25\x02\x18\x01a", b"\x25\x00\x18\x01a"  # whether column a has empty cells, in Thrift
    assert content.count(optional) == 1
    path.write_bytes(content.replace(optional, required))
    code = "import sys; from ccmn.data import read_file; read_file(sys.argv[1], -1)"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ValueError" in done.stderr
    assert "data.parquet: the file is not a complete Parquet file" in done.stderr
