"""Label containers: numpy arrays, torch tensors, pandas DataFrames and scipy sparse matrices.

Functions of labels compute on a numpy array and return the result in the container of their input. This module does
not import pandas and torch: a caller that passes a DataFrame or a tensor has imported them already, and reading
data files starts faster without them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Labels = Any
"""Accepted label containers: ndarray, tensor, DataFrame, CSR matrix, or nested lists of 0 and 1."""

is_sparse: Callable[[Any], bool] = scipy.sparse.issparse


def is_dataframe(labels: object) -> bool:
    """Return whether ``labels`` is a pandas DataFrame, without importing pandas."""
    return type(labels).__name__ == "DataFrame" and hasattr(labels, "iloc")


def is_other_table(labels: object) -> bool:
    """Return whether ``labels`` is a table of pyarrow or polars, without importing them."""
    return type(labels).__module__.partition(".")[0] in ("pyarrow", "polars") and hasattr(labels, "to_pandas")


def label_names_of(labels: object) -> tuple[str, ...] | None:
    """Return the column names of a table (or the index of a Series) as label names, else None.

    Tables are those of pandas, pyarrow and polars. A ``RangeIndex``, the default of pandas, carries no names.
    """
    if is_other_table(labels):
        index = getattr(labels, "column_names", None) or getattr(labels, "columns", None)
    else:
        series = type(labels).__name__ == "Series" and hasattr(labels, "iloc")
        index = labels.columns if is_dataframe(labels) else labels.index if series else None  # type: ignore[attr-defined]
    return None if index is None or type(index).__name__ == "RangeIndex" else tuple(str(name) for name in index)


def unwrap(labels: Labels) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Labels]]:
    """Return dense labels as an array, and a function that converts an array back to the container of ``labels``.

    bfloat16, which numpy does not have, becomes float32 and is converted back. ``None``, ``pd.NA`` and masked entries
    become NaN.
    Sparse labels are not supported: their callers never build the dense array.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(labels, torch.Tensor):
        device, is_bfloat16 = labels.device, labels.dtype == torch.bfloat16
        tensor = labels.detach().cpu()

        def to_tensor(array: NDArray[Any]) -> Tensor:
            result: Tensor = torch.from_numpy(array).to(device)
            return result.bfloat16() if is_bfloat16 and result.dtype == torch.float32 else result

        return (tensor.float() if is_bfloat16 else tensor).numpy(), to_tensor
    if is_dataframe(labels):
        array = _missing_as_nan(labels.to_numpy())
        return array, lambda array: type(labels)(array, index=labels.index, columns=labels.columns)
    if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels) and labels.dtype.kind in "biuf":
        labels = np.ma.filled(labels.astype(np.result_type(labels.dtype, np.float32)), np.nan)
    return _missing_as_nan(np.asarray(labels)), lambda array: array


def _missing_as_nan(array: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix of objects that are numbers, ``None`` or ``pd.NA`` as float64 with NaN; other arrays unchanged.

    Objects in one dimension are classes; only those with gaps are converted.
    """
    if array.dtype != object:
        return array
    missing = np.array([value is None or type(value).__name__ == "NAType" for value in array.flat], dtype=bool)
    numbers = all(isinstance(value, (bool, int, float, np.number, np.bool_)) for value in array.ravel()[~missing])
    if not numbers:
        return array
    try:
        converted = np.where(missing.reshape(array.shape), np.nan, array).astype(np.float64)
    except OverflowError:
        raise ValueError("Expected numbers in the range of float64; got an integer beyond it") from None
    return converted if missing.any() or array.ndim == 2 else array


def to_plain_container(matrix: Any) -> Any:
    """Return tensors, masked arrays and arrays of objects as plain arrays; scikit-learn reads other containers."""
    convert = hasattr(matrix, "detach") or isinstance(matrix, np.ma.MaskedArray)
    return unwrap(matrix)[0] if convert or (isinstance(matrix, np.ndarray) and matrix.dtype == object) else matrix


def to_dense_array(labels: Labels) -> NDArray[Any]:
    """Return labels in any container as a dense numpy array."""
    if is_sparse(labels):
        return np.asarray(labels.toarray())
    return unwrap(labels)[0]


def to_dense_floats(matrix: Any) -> NDArray[np.float64]:
    """Return a dense or sparse matrix, such as a product of sparse matrices, as a dense float64 array."""
    return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix, dtype=np.float64)
