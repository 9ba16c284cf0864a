"""Small files that unpack to large ones, and headers that declare too much, are rejected before memory is used."""

import io
import json
import time
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

from ccmn.data import ShardedData, read_file
from ccmn.data.column_roles import ColumnRoles
from ccmn.data.columns import Columns
from data.samples import limited_memory

LIMIT = 20_000
ROLES = ColumnRoles(["sea"], text=("text",))


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    monkeypatch.setenv("CCMN_MAX_BYTES", str(LIMIT))


def rejected(read, *arguments):
    """Assert that a reader rejects a file without using much more memory than the limit."""
    with limited_memory(5_000_000), pytest.raises(ValueError, match=r"data\.\w+.*more than the limit of 20000"):
        read(*arguments)


def test_npz_header_that_declares_more_than_it_contains(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 2)})
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("X.npy", stream.getvalue())
    with pytest.raises(ValueError, match=r"data\.npz .*X\.npy declares the shape"):
        read_file(tmp_path / "data.npz")


@pytest.mark.parametrize("shape", [(2**31 - 1, 1), (3, 1)])
def test_mat_sparse_dimensions(tmp_path, shape):
    labels = scipy.sparse.csc_matrix((10**6 if shape[0] == 3 else 1, 3))
    data = scipy.sparse.csc_matrix(([1.0], ([0], [0])), shape=shape)
    scipy.io.savemat(tmp_path / "data.mat", {"data": data, "target": labels})
    rejected(read_file, tmp_path / "data.mat")


def test_many_nominal_declarations(tmp_path):
    """The time grows linearly with the number of different declarations."""

    def seconds(count):
        attributes = "".join(f"@attribute a{j} {{0,{j + 2}}}\n" for j in range(count))
        (tmp_path / "data.arff").write_text(f"@relation x\n{attributes}@attribute sea {{0,1}}\n@data\n{{}}\n")
        start = time.process_time()
        assert read_file(tmp_path / "data.arff", ["sea"]).d == count
        return time.process_time() - start

    few = min(seconds(500) for _ in range(3))
    assert min(seconds(8000) for _ in range(2)) < 80 * few  # 16 if linear, 256 if quadratic


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_votes(tmp_path, suffix):
    frame = pd.DataFrame({"row": range(3000), "annotator": "ann", "label": "sea"})
    path = tmp_path / f"data{suffix}"
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    rejected(lambda: Columns.from_training_data(path, votes=["row", "annotator", "label"]))


@pytest.mark.parametrize("columns", [["row", "annotator", "label"], ["row", "annotator", "label", "value"]])
def test_votes_that_imply_many_others(tmp_path, columns):
    """Dense labels have an entry for every row and label, and a table without values implies a vote for each."""
    frame = pd.DataFrame({name: range(100) for name in columns[:3]}).assign(value=[0, 1] * 50)
    frame[columns].to_csv(tmp_path / "data.csv", index=False)
    rejected(lambda: Columns.from_training_data(tmp_path / "data.csv", votes=columns))


def test_annotations_of_many_annotators(tmp_path):
    def annotate(who, choice):
        return {"completed_by": who, "result": [{"value": {"choices": [choice]}}]}

    tasks = [
        {"id": i, "data": {}, "annotations": [annotate(who, f"c{i}") for who in (f"a{i}", f"b{i}")]} for i in range(20)
    ]
    (tmp_path / "data.json").write_text(json.dumps(tasks, separators=(",", ":")))
    rejected(read_file, tmp_path / "data.json")


def test_json_rows_with_columns_of_their_own(tmp_path):
    (tmp_path / "data.jsonl").write_text("".join(f'{{"a{i}":1}}\n' for i in range(100)))
    rejected(read_file, tmp_path / "data.jsonl")


@pytest.fixture
def parquet(tmp_path):
    """Return a function that writes a Parquet file of one row group."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    def write(**columns):
        pq.write_table(pa.table(columns), tmp_path / "data.parquet")
        return tmp_path / "data.parquet"

    return write


@pytest.mark.parametrize("cell", ["x" * 1000, ["x" * 1000], {"a": "x" * 1000}], ids=["text", "list", "struct"])
def test_parquet_texts_that_are_stored_once(parquet, monkeypatch, cell):
    """The size is known before the texts are decoded."""
    import pyarrow.parquet as pq

    path, read = parquet(text=[cell] * 4000, sea=[0, 1] * 2000), pq.ParquetFile.iter_batches
    assert path.stat().st_size < 10_000

    def iterate(self, *arguments, **settings):
        for batch in read(self, *arguments, **settings):
            assert batch.nbytes < 100_000
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iterate)
    rejected(lambda: Columns.from_training_data(path, roles=ROLES))


def test_shards(parquet, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    folder = parquet(a=[0.0] * 100, y=[[0] * 1000] * 100).parent
    rejected(lambda: ShardedData(folder, "y", n_labels=5))
    parquet(a=pa.array([[0.0] * 10_000] * 3, pa.list_(pa.float32(), 10_000)), y=[0, 1, 0])
    rejected(lambda: ShardedData(folder, "y"))
