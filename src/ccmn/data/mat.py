"""MATLAB files with ``data`` (n x d), ``target`` (q x n) and, for candidate sets, ``partial_labels`` (q x n)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ccmn._containers import is_sparse
from ccmn._files import PathLike, check_file, check_unpacked_size, data_name, prefix_errors, unpacked_limit
from ccmn.data.dataset import Matrix, MultiLabelData
from ccmn.data.mat5 import read_variables

_VARIABLES = ("data", "target", "partial_labels")


def read_mat(path: PathLike) -> MultiLabelData:
    """Read a MATLAB file of versions 5 to 7 in the layout of published multi-label datasets.

    Version 4 and version 7.3 (HDF5) are rejected: save such files in MATLAB with '-v7'.

    Parameters
    ----------
    path : str or path
        File with the variables ``data`` (n x d), ``target`` (q x n) and optionally ``partial_labels`` (q x n).
        Labels are in {0, 1} or {-1, +1}.

    Returns
    -------
    MultiLabelData
        Features in float32, sparse if they are stored as sparse; ``partial_labels`` become ``candidates``.
    """
    path = check_file(path)
    content, limit = path.read_bytes(), unpacked_limit(path)
    version = _other_version(content)
    if version:
        raise ValueError(f"{path} is a MAT file of version {version}; save it in MATLAB with '-v7'")
    try:
        variables, names = read_variables(content, _VARIABLES, limit)
    except Exception as error:  # damaged content can make a parser fail in any way
        raise ValueError(f"{path} is not a complete MAT file: {error}") from None
    with prefix_errors(path):
        for variable in ("data", "target"):
            if variable not in variables:
                raise ValueError(
                    f"the variable {variable!r} is missing; expected data (n x d), target (q x n) and, for "
                    f"candidate sets, partial_labels (q x n); found {', '.join(names) or 'none'}"
                )
        X = _matrix(variables["data"], "data", limit)
        partial = variables.get("partial_labels")
        with np.errstate(over="ignore"):  # values beyond float32 become infinite and are rejected
            features = X.astype(np.float32)
        return MultiLabelData(
            X=features,
            Y=_labels(variables["target"], "target", X.shape[0], limit),
            candidates=None if partial is None else _labels(partial, "partial_labels", X.shape[0], limit),
            name=data_name(path),
        )


def _other_version(content: bytes) -> str:
    """Return the version of a file that is not of versions 5 to 7, if its first bytes tell."""
    if content[124:126] in (b"\x00\x02", b"\x02\x00") and content[126:128] in (b"IM", b"MI"):
        return "7.3 (HDF5)"
    # Version 4 begins with a type code below 5000 in four bytes; later versions begin with text.
    code = content[:4]
    kinds = (int.from_bytes(code, "little"), int.from_bytes(code, "big"))
    return "4" if len(code) == 4 and 0 in code and any(kind < 5000 for kind in kinds) else ""


def _matrix(values: Any, variable: str, limit: int) -> Matrix:
    """Return a matrix of numbers, dense or CSR."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{variable} must be a matrix of numbers; got {values.dtype}")
    if values.ndim != 2:
        raise ValueError(f"{variable} must be a matrix; got shape {values.shape}")
    if not is_sparse(values):
        return values
    # A CSR matrix takes at least 8 bytes per row, even if the file stores no value of it.
    check_unpacked_size(8 * values.shape[0], limit)
    values.check_format(full_check=True)  # before an operation follows the indices
    return scipy.sparse.csr_array(values)


def _labels(values: Any, variable: str, n: int, limit: int) -> Matrix:
    """Return labels (n, q) in {0, 1}."""
    if values.ndim == 2 and values.shape[1] != n:
        remedy = f"; it has a row per sample: save {variable}' instead" if values.shape[0] == n else ""
        raise ValueError(f"{variable} must be q x n with n = {n}, the rows of data; got {values.shape}{remedy}")
    values = _matrix(values, variable, limit)
    if is_sparse(values):
        check_unpacked_size(values.shape[0] * values.shape[1] * values.dtype.itemsize, limit)
    dense = values.toarray() if is_sparse(values) else values
    if np.isin(dense, (-1, 1)).all():
        return (dense.T == 1).astype(np.uint8)
    if not np.isin(dense, (0, 1)).all():
        raise ValueError(f"{variable} must hold 0 and 1 only, or -1 and +1 only; got {np.unique(dense)[:5].tolist()}")
    return dense.T
