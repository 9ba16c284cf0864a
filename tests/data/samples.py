"""Samples of every file format, written by the package or by hand."""

import gzip
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse

from ccmn.data import MultiLabelData, write_file


def dense(matrix):
    """Return a sparse or dense matrix as an array."""
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


@contextmanager
def limited_memory(most: int) -> Iterator[None]:
    """Check that a block allocates at most some bytes at a time. Libraries that are loaded on demand do not count."""
    import sklearn.datasets  # noqa: F401

    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most


def save_csv(data: MultiLabelData, path: Path) -> None:
    write_file(data, path.with_suffix("") if path.suffix == ".gz" else path)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))


def save_parquet(data: MultiLabelData, path: Path) -> None:
    columns = zip((*data.feature_names, *data.label_names), (*data.X.T, *data.Y.T))
    pd.DataFrame(dict(columns)).to_parquet(path, index=False)


def save_arff(data: MultiLabelData, path: Path, sparse: bool = False) -> None:
    kinds = [*[(name, "real") for name in data.feature_names], *[(name, "{0,1}") for name in data.label_names]]
    head = "\n".join(["@relation small", *(f"@attribute {name} {kind}" for name, kind in kinds), "@data", ""])
    rows = np.hstack([data.X, data.Y])
    if sparse:
        lines = ("{" + ", ".join(f"{j} {row[j]:.9g}" for j in np.flatnonzero(row)) + "}" for row in rows)
    else:
        lines = (",".join(f"{value:.9g}" for value in row) for row in rows)
    text = (head + "\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def save_svm(data: MultiLabelData, path: Path) -> None:
    lines = [
        ",".join(map(str, np.flatnonzero(y))) + "".join(f" {j + 1}:{x[j]:.9g}" for j in np.flatnonzero(x))
        for x, y in zip(data.X, data.Y)
    ]
    text = ("\n".join(lines) + "\n\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def save_mat(data: MultiLabelData, path: Path, container: Callable = np.asarray, sign: bool = False) -> None:
    target = 2.0 * data.Y.T - 1 if sign else data.Y.T.astype(float)
    variables = {"data": container(data.X.astype(float)), "target": container(target)}
    scipy.io.savemat(path, variables, do_compression=path.name.startswith("large") or "packed" in path.name)


def save_npz(data: MultiLabelData, path: Path) -> None:
    sparse = {name: scipy.sparse.csr_array(getattr(data, name)) for name in ("X", "Y")}
    write_file(MultiLabelData(**sparse, feature_names=data.feature_names, label_names=data.label_names), path)


SAVE = {
    "csv": save_csv,
    "csv.gz": save_csv,
    "parquet": save_parquet,
    "arff": save_arff,
    "arff.gz": save_arff,
    "sparse.arff": lambda data, path: save_arff(data, path, sparse=True),
    "svm": save_svm,
    "svm.gz": save_svm,
    "mat": save_mat,
    "signed.mat": lambda data, path: save_mat(data, path, sign=True),
    "packed.mat": save_mat,
    "sparse.mat": lambda data, path: save_mat(data, path, scipy.sparse.csc_matrix),
    "npz": write_file,
    "sparse.npz": save_npz,
}
"""Functions that write a dataset, by the end of the file name."""
