"""Folders of Parquet shards: layouts, pieces and rejected files."""

import numpy as np
import pytest

from ccmn.data import ShardedData

pa = pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, D, Q = 50, 3, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = (RNG.random((N, Q)) < 0.4).astype(np.uint8)


def vectors(values):
    flat = pa.array(np.asarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def table(layout):
    """Features and labels in one of the layouts."""
    names = [f"f{j}" for j in range(D)], [f"label_{j}" for j in range(Q)]
    if layout == "columns":
        return pa.table({n: v for ns, M in zip(names, (X, Y)) for n, v in zip(ns, M.T)})
    if layout == "vectors":
        return pa.table({"x": vectors(X), "label_y": vectors(Y)})
    return pa.table({"x": vectors(X), "label_y": pa.array([np.flatnonzero(row).tolist() for row in Y])})


def write(folder, whole, rows_per_file=20, row_group_size=7):
    for i, start in enumerate(range(0, whole.num_rows, rows_per_file)):
        pq.write_table(whole.slice(start, rows_per_file), folder / f"{i:03}.parquet", row_group_size=row_group_size)
    return folder


def read_all(data, at_once):
    parts = [part for group in data.groups for part in data.read(group, at_once)]
    return np.concatenate([x for x, _ in parts]), [y for _, y in parts]


@pytest.mark.parametrize("layout", ["columns", "vectors", "numbers"])
@pytest.mark.parametrize("at_once", [3, 100])
def test_all_layouts_agree(tmp_path, layout, at_once):
    data = ShardedData(write(tmp_path, table(layout)), "label_*", n_labels=Q)
    assert (data.n, data.d, data.q, len(data.files)) == (N, D, Q, 3)
    assert [g.rows for g in data.groups] == [7, 7, 6, 7, 7, 6, 7, 3]
    features, labels = read_all(data, at_once)
    np.testing.assert_array_equal(features, X)
    dense = np.concatenate([y.toarray() if data.sparse else y for y in labels])
    np.testing.assert_array_equal(dense, Y)
    assert data.label_names == (tuple(f"label_{j}" for j in range(Q)) if layout == "columns" else None)


def test_pieces_of_a_large_row_group_have_equal_size(tmp_path):
    """Streaming relies on it: every piece of a row group but the last has the requested number of rows."""
    rows = 5000
    big = pa.table({"x": vectors(np.zeros((rows, 40), np.float32)), "label_y": pa.array([[1]] * rows)})
    data = ShardedData(write(tmp_path, big, rows, rows), "label_y", n_labels=3)
    assert [len(x) for x, _ in data.read(data.groups[0], 700)] == [700] * 7 + [100]


@pytest.mark.parametrize(
    ("columns", "labels", "message"),
    [
        ({"f": [1.0, None], "y": [0, 1]}, ["y"], "missing or infinite"),
        ({"f": [1.0, 2.0], "y": [0, 2]}, ["y"], "0 or 1"),
        ({"f": ["red", "blue"], "y": [0, 1]}, ["y"], "not numbers"),
        ({"f": [1.0, 2.0], "y": [[0], [9]]}, ["y"], "between 0 and 4"),
        ({"f": [[1.0], [2.0, 3.0]], "y": [0, 1]}, ["y"], "varying length"),
        ({"f": [1.0, 2.0], "y": [[0], [1]], "z": [0, 1]}, ["y", "z"], "not both"),
    ],
)
def test_unreadable_columns(tmp_path, columns, labels, message):
    write(tmp_path, pa.table(columns))
    with pytest.raises(ValueError, match=message):
        read_all(ShardedData(tmp_path, labels, n_labels=5), 10)


def test_invalid_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        ShardedData(tmp_path / "nowhere", "y")
    with pytest.raises(FileNotFoundError, match=r"no \*.parquet"):
        ShardedData(tmp_path, "y")
    (tmp_path / "0.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match="not a complete Parquet file"):
        ShardedData(tmp_path, "y")


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"g": [1.0], "y": [1]}, "'f' is absent, not double"),
        ({"f": [1], "y": [1]}, "'f' is int64, not double"),
        ({"f": [1.0], "y": [1], "z": [1]}, "'z' is new"),
    ],
)
def test_shards_must_have_equal_columns(tmp_path, other, difference):
    pq.write_table(pa.table({"f": [1.0], "y": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table(other), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=f"other columns than 0.parquet .{difference}"):
        ShardedData(tmp_path, ["y"])


def test_empty_and_unfinished_shards(tmp_path):
    whole = table("columns")
    write(tmp_path, whole)
    pq.write_table(whole.slice(0, 0), tmp_path / "000-empty.parquet")
    for name in ("._000.parquet", "_temporary.parquet", "notes.txt"):
        (tmp_path / name).write_bytes(b"not yet")
    assert ShardedData(tmp_path, "label_*").n == N
    for path in tmp_path.glob("00?.parquet"):
        path.unlink()
    with pytest.raises(ValueError, match="no rows"):
        ShardedData(tmp_path, "label_*")


def test_damaged_shard(tmp_path):
    data = ShardedData(write(tmp_path, table("columns")), "label_*")
    path = tmp_path / "001.parquet"
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(8)
        file.write(b"\xff" * (size // 3))
    with pytest.raises(ValueError, match=r"001.parquet: .*damaged"):
        read_all(data, 10)
