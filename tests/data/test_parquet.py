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
