"""Label containers: numpy arrays, torch tensors, pandas DataFrames and scipy sparse matrices.

Functions of labels compute on a numpy array and return the result in the container of their input. This module does
not import pandas: a caller that passes a DataFrame has imported it already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

Labels = Any
"""Accepted label containers: ndarray, tensor, DataFrame, CSR matrix, or nested lists of 0 and 1."""


def is_sparse(labels: Any) -> bool:
    """Return whether ``labels`` is a scipy sparse matrix or array."""
    return bool(scipy.sparse.issparse(labels))


def is_dataframe(labels: object) -> bool:
    """Return whether ``labels`` is a pandas DataFrame, without importing pandas."""
    return type(labels).__name__ == "DataFrame" and hasattr(labels, "iloc")


def label_names_of(labels: object) -> tuple[str, ...] | None:
    """Return the column names of a DataFrame (or the index of a Series) as label names, else None.

    A ``RangeIndex``, the default of pandas, carries no names.
    """
    if is_dataframe(labels):
        index = labels.columns  # type: ignore[attr-defined]
    elif type(labels).__name__ == "Series" and hasattr(labels, "iloc"):
        index = labels.index  # type: ignore[attr-defined]
    else:
        return None
    return None if type(index).__name__ == "RangeIndex" else tuple(str(name) for name in index)


def unwrap(labels: Labels) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Labels]]:
    """Return dense labels as an array, and a function that converts an array back to the container of ``labels``.

    Sparse labels are not supported: their callers never build the dense array.
    """
    if isinstance(labels, torch.Tensor):
        device = labels.device
        return labels.detach().cpu().numpy(), lambda array: torch.from_numpy(array).to(device)
    if is_dataframe(labels):
        return labels.to_numpy(), lambda array: type(labels)(array, index=labels.index, columns=labels.columns)
    return np.asarray(labels), lambda array: array


def to_dense_array(labels: Labels) -> NDArray[Any]:
    """Return labels in any container as a dense numpy array."""
    if is_sparse(labels):
        return np.asarray(labels.toarray())
    return unwrap(labels)[0]
