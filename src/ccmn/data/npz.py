"""NPZ files: named numpy arrays, read without unpickling.

A matrix ``M`` is stored as ``M``, or in CSR form as ``M_data``, ``M_indices``, ``M_indptr`` and ``M_shape``. The
matrices are ``X``, ``Y`` and, for candidate sets, ``candidates``. ``feature_names`` and ``label_names`` are optional.
A file without ``X`` contains labels only.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.lib import format as npy
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._files import (
    PathLike,
    UnpackedSizeError,
    atomic_write,
    check_file,
    check_unpacked_size,
    data_name,
    prefix_errors,
    unpacked_limit,
)
from ccmn.data.dataset import Matrix, MultiLabelData

_MATRICES = ("X", "Y", "candidates")
_NAMES = ("feature_names", "label_names")
_PARTS = ("data", "indices", "indptr", "shape")
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npz(path: PathLike) -> MultiLabelData:
    """Read an NPZ file with ``X`` or ``Y``, and optionally ``candidates``, ``feature_names`` and ``label_names``.

    ``X`` has shape (n, 0) if the file contains labels only, and ``Y`` if it contains rows to predict.
    """
    path = check_file(path)
    arrays = load_arrays(path, {*_MATRICES, *_NAMES, *(f"{key}_{part}" for key in _MATRICES for part in _PARTS)})
    with prefix_errors(path):
        X, Y = _unpack(arrays, "X"), _unpack(arrays, "Y")
        other = Y if X is None else X
        if other is None:
            raise ValueError(f"the arrays 'X' and 'Y' are missing; found {', '.join(arrays) or 'nothing'}")
        none = np.empty((other.shape[0] if other.ndim else 0, 0), np.float32)
        return MultiLabelData(
            X=none if X is None else X,
            Y=none if Y is None else Y,
            candidates=_unpack(arrays, "candidates"),
            name=data_name(path),
            **{key: np.atleast_1d(arrays[key]).tolist() for key in _NAMES if key in arrays},
        )


def write_npz(data: MultiLabelData, path: PathLike) -> None:
    """Write data to an NPZ file; sparse matrices stay sparse."""
    arrays: dict[str, Any] = {}
    for key in _MATRICES:
        matrix = getattr(data, key)
        if is_sparse(matrix):
            parts = (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape, dtype=np.int64))
            arrays.update({f"{key}_{part}": values for part, values in zip(_PARTS, parts)})
        elif matrix is not None and matrix.shape[1]:
            arrays[key] = matrix
    arrays.update({key: np.array(getattr(data, key), dtype=str) for key in _NAMES if getattr(data, key) is not None})
    with atomic_write(path) as stream:
        np.savez_compressed(stream, **arrays)  # before version 2.1, numpy would store allow_pickle as an array


def load_arrays(path: Path, known: set[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that have known names; errors name the file."""
    try:
        _check_sizes(path, {f"{key}.npy" for key in known} | known)
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files if key in known}
        for key, array in arrays.items():
            if not isinstance(array, np.ndarray):  # numpy returns the bytes of members that are not arrays
                raise ValueError(f"{key!r} is not an array")
            if array.dtype.kind == "U":
                array.tolist()  # fails for numbers that are no characters
    except UnpackedSizeError as error:
        raise ValueError(f"{path}: {error}") from None
    except MemoryError:  # sizes in the file are checked: the memory of the machine is exhausted
        raise
    except Exception as error:  # damaged content can make the parser fail in any way
        raise ValueError(f"{path} is not a complete NPZ file of plain arrays: {error}") from None
    return arrays


def _check_sizes(path: Path, members: set[str]) -> None:
    """Reject members that are too large, or whose header declares more than they contain."""
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if info.filename in members]
        # zipfile never reads more of a member than the size declared in the directory.
        check_unpacked_size(sum(info.file_size for info in infos), unpacked_limit(path))
        for info in infos:
            with archive.open(info) as stream:
                try:
                    version = npy.read_magic(stream)
                except ValueError:
                    continue  # not an array; _load rejects it
                if version not in _HEADERS:
                    raise ValueError(f"{info.filename} has the unknown version {version}")
                shape, _, dtype = _HEADERS[version](stream)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(f"{info.filename} declares the shape {shape} but has {info.file_size} bytes")


def _unpack(arrays: Mapping[str, NDArray[Any]], key: str) -> Matrix | None:
    """Return a matrix from its array or its CSR parts, or None."""
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
