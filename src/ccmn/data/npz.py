"""NPZ: numpy arrays by name, the common format of the data sets here; read without ever unpickling.

A matrix ``M`` is stored as ``M``, or in CSR form as ``M_data``, ``M_indices``, ``M_indptr``, ``M_shape``. There are
``X``, ``Y`` and, for candidate sets, ``candidates``; ``feature_names`` and ``label_names`` where they are known. A
file without ``X`` holds labels alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn.data.files import PathLike, blame, check_file, data_name, whole_file
from ccmn.data.multilabel import Matrix, MultiLabelData

_MATRICES = ("X", "Y", "candidates")
_NAMES = ("feature_names", "label_names")
_PARTS = ("data", "indices", "indptr", "shape")


def read_npz(path: PathLike, *, need_labels: bool = True) -> MultiLabelData:
    """Read an NPZ file; without features in it, ``X`` has shape (n, 0).

    ``need_labels=False`` takes a file without labels too, rows to predict on: ``Y`` has shape (n, 0).
    """
    path = check_file(path)
    arrays = _load(path)
    with blame(path):
        Y = _unpack(arrays, "Y")
        X = _unpack(arrays, "X")
        if Y is None and (need_labels or X is None):
            raise ValueError(f"the array 'Y' is missing; found {', '.join(arrays) or 'nothing'}")
        return MultiLabelData(
            X=_none_beside(Y) if X is None else X,
            Y=_none_beside(X) if Y is None else Y,
            candidates=_unpack(arrays, "candidates"),
            name=data_name(path),
            **{key: np.atleast_1d(arrays[key]).tolist() for key in _NAMES if key in arrays},
        )


def write_npz(data: MultiLabelData, path: PathLike) -> None:
    """Write what ``read_npz`` reads, sparse matrices as such; the file appears whole or not at all."""
    arrays: dict[str, Any] = {}
    for key in _MATRICES:
        matrix = getattr(data, key)
        if matrix is not None and not (key == "X" and data.d == 0):
            arrays.update(_pack(key, matrix))
    arrays.update({key: np.array(getattr(data, key), dtype=str) for key in _NAMES if getattr(data, key) is not None})
    with whole_file(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def _none_beside(other: Matrix) -> NDArray[np.float32]:
    """As many rows as the other matrix has, and no columns."""
    return np.empty((other.shape[0] if other.ndim else 0, 0), np.float32)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    known = {*_MATRICES, *_NAMES, *(f"{key}_{part}" for key in _MATRICES for part in _PARTS)}
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files if key in known}
    except Exception as error:  # damaged bytes make the parser fail in any way at all
        raise ValueError(f"{path} is not a whole NPZ file of plain arrays: {error}") from None
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy hands over the bytes of members it does not know
            raise ValueError(f"{path} is not a whole NPZ file of plain arrays: {key!r} is none")
    return arrays


def _pack(key: str, matrix: Matrix) -> dict[str, Any]:
    if not is_sparse(matrix):
        return {key: matrix}
    parts = (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape, dtype=np.int64))
    return {f"{key}_{part}": values for part, values in zip(_PARTS, parts)}


def _unpack(arrays: Mapping[str, NDArray[Any]], key: str) -> Matrix | None:
    if key in arrays:
        return arrays[key]
    parts = [f"{key}_{part}" for part in _PARTS]
    missing = [part for part in parts if part not in arrays]
    if len(missing) == len(parts):
        return None
    if missing:
        raise ValueError(f"the sparse matrix {key} lacks {', '.join(missing)}")
    data, *places = (np.atleast_1d(arrays[part]) for part in parts)
    if any(place.dtype.kind not in "iu" for place in places):
        raise ValueError(f"the sparse matrix {key} must have whole numbers in {', '.join(parts[1:])}")
    indices, indptr, shape = places
    try:
        return scipy.sparse.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the parts of the sparse matrix {key} do not fit together: {error}") from None
