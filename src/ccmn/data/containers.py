"""The containers labels come in: numpy arrays, torch tensors, pandas DataFrames, scipy CSR.

Whatever comes in goes out: a function of labels is written once, on an array, and its result is put back into the
container it was given. pandas is never imported here: whoever hands in a DataFrame has imported it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

Labels = Any
"""What users call labels: ndarray, tensor, DataFrame, CSR, or nested lists of 0/1."""


def is_sparse(labels: Any) -> bool:
    """Any scipy sparse matrix or array."""
    return bool(scipy.sparse.issparse(labels))


def is_dataframe(labels: object) -> bool:
    """A pandas DataFrame, told without importing pandas."""
    return type(labels).__name__ == "DataFrame" and hasattr(labels, "iloc")


def label_names_of(labels: object) -> tuple[str, ...] | None:
    """The label names that a DataFrame's columns (or a Series' index) carry, else None.

    Columns that are merely counted, as pandas does where none are named, carry no names.
    """
    if is_dataframe(labels):
        index = labels.columns  # type: ignore[attr-defined]
    elif type(labels).__name__ == "Series" and hasattr(labels, "iloc"):
        index = labels.index  # type: ignore[attr-defined]
    else:
        return None
    return None if type(index).__name__ == "RangeIndex" else tuple(str(name) for name in index)


def unwrap(labels: Labels) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Labels]]:
    """An array to compute on, and the way back into the container.

    For dense containers; sparse labels go their own way, never through the whole as an array.
    """
    if isinstance(labels, torch.Tensor):
        device = labels.device
        return labels.detach().cpu().numpy(), lambda array: torch.from_numpy(array).to(device)
    if is_dataframe(labels):
        return labels.to_numpy(), lambda array: type(labels)(array, index=labels.index, columns=labels.columns)
    return np.asarray(labels), lambda array: array


def to_dense_array(labels: Labels) -> NDArray[Any]:
    """Labels in any container as a numpy array."""
    if is_sparse(labels):
        return np.asarray(labels.toarray())
    return unwrap(labels)[0]
