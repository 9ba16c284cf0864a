"""MAT: MATLAB files with ``data`` (n x d), ``target`` (q x n) and, for candidate sets, ``partial_labels`` (q x n)."""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ccmn._containers import is_sparse
from ccmn.data.files import PathLike, blame, check_file, data_name
from ccmn.data.mat5 import read_variables
from ccmn.data.multilabel import Matrix, MultiLabelData

_VARIABLES = ("data", "target", "partial_labels")


def read_mat(path: PathLike) -> MultiLabelData:
    """Read a MATLAB file (version 7 or older) in the layout that multi-label data sets come in.

    Labels have a row per label and a column per sample, in {0, 1} or {-1, +1}. Sparse features stay sparse.
    """
    path = check_file(path)
    content, names = _load(path)
    with blame(path):
        for variable in ("data", "target"):
            if variable not in content:
                raise ValueError(
                    f"the variable {variable!r} is missing; expected data (n x d), target (q x n) and, for "
                    f"candidate sets, partial_labels (q x n); found {', '.join(names) or 'none'}"
                )
        X = _matrix(content["data"], "data")
        partial = content.get("partial_labels")
        return MultiLabelData(
            X=_float32(X),
            Y=_labels(content["target"], "target", X.shape[0]),
            candidates=None if partial is None else _labels(partial, "partial_labels", X.shape[0]),
            name=data_name(path),
        )


def _load(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The variables that are data, and the names of all."""
    content = path.read_bytes()
    if content[124:126] in (b"\x00\x02", b"\x02\x00") and content[126:128] in (b"IM", b"MI"):
        raise ValueError(f"{path} is a MAT file of version 7.3 (HDF5); save it in MATLAB with '-v7'")
    # A file of version 4 begins with a small number, all others with text.
    read = _read_version_4 if 0 in content[:4] else read_variables
    try:
        return read(content, _VARIABLES)
    except Exception as error:  # damaged bytes make a parser fail in any way at all
        raise ValueError(f"{path} is not a whole MAT file: {error}") from None


def _read_version_4(content: bytes, wanted: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    import scipy.io

    stream: Any = io.BytesIO(content)
    names = [name for name, _, _ in scipy.io.whosmat(stream)]
    found = scipy.io.loadmat(stream, variable_names=list(wanted))
    return {name: found[name] for name in wanted if name in found}, names


def _matrix(values: Any, variable: str) -> Matrix:
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{variable} must be a matrix of numbers; got {values.dtype}")
    if values.ndim != 2:
        raise ValueError(f"{variable} must be a matrix; got shape {values.shape}")
    if not is_sparse(values):
        return values
    values.check_format(full_check=True)  # before anything follows its indices
    return scipy.sparse.csr_array(values)


def _float32(X: Matrix) -> Matrix:
    with np.errstate(over="ignore"):  # too large is infinite, and refused as such
        return X.astype(np.float32)


def _labels(values: Any, variable: str, n: int) -> Matrix:
    values = _matrix(values, variable)
    if values.shape[1] != n:
        remedy = f"; it has a row per sample: save {variable}' instead" if values.shape[0] == n else ""
        raise ValueError(f"{variable} must be q x n with n = {n}, the rows of data; got {values.shape}{remedy}")
    dense = values.toarray() if is_sparse(values) else values
    if np.isin(dense, (-1, 1)).all():
        return (dense.T == 1).astype(np.uint8)
    if not np.isin(dense, (0, 1)).all():
        raise ValueError(f"{variable} must hold 0 and 1 only, or -1 and +1 only; got {np.unique(dense)[:5].tolist()}")
    return dense.T
