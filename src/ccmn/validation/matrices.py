"""Matrices of numbers: what is in them, and whether two fit together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.validation.arrays import FloatArray


def check_numeric(array: NDArray[Any], argument: str) -> None:
    """Booleans, integers or floats."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{argument} must be a matrix of numbers; got dtype {array.dtype}")


def check_matrix_pair(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Two matrices (arrays or tensors) of one shape (n, q), with at least one entry."""
    for matrix, name in zip((first, second), names):
        if matrix.ndim != 2:
            raise ValueError(
                f"{name} must be a matrix of shape (n, q), a row per sample and a column per label; got shape "
                f"{tuple(matrix.shape)}. A single sample is a matrix of one row, a single label one of one column."
            )
    shapes = tuple(first.shape), tuple(second.shape)
    if shapes[0] != shapes[1]:
        dummy = shapes[1] == (shapes[0][0], shapes[0][1] + 1)
        remedy = " Outputs with a dummy label in column 0 become scores by loss.decision(outputs)." if dummy else ""
        raise ValueError(
            f"{names[0]} and {names[1]} must have one shape (n, q); got {shapes[0]} and {shapes[1]}.{remedy}"
        )
    if 0 in shapes[0]:
        raise ValueError(f"{names[0]} must have at least one row and one label; got shape {shapes[0]}")


def check_same_shape(matrix: NDArray[Any], like: NDArray[Any], argument: str, what: str) -> None:
    """A matrix of labels beside another one."""
    if matrix.shape != like.shape:
        raise ValueError(f"{argument} must have the shape of {what}, {like.shape}; got {matrix.shape}")


def check_same_rows(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Two matrices, dense or sparse, with as many rows."""
    if first.shape[0] != second.shape[0]:
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same rows; got {first.shape[0]} and {second.shape[0]}"
        )


def check_no_nan(matrix: Any, argument: str) -> None:
    """No NaN in a matrix (array or tensor)."""
    unknown = matrix != matrix
    if unknown.any():
        row, label = divmod(unknown.ravel().tolist().index(True), matrix.shape[1])
        raise ValueError(
            f"{argument} holds NaN, first in row {row}, label {label}: a metric needs every entry; "
            "leave such rows (or labels) out"
        )


def check_no_missing(X: Any, names: Sequence[str] | None) -> None:
    """No missing value (NaN) among the features, in an array or CSR."""
    coo = X.tocoo() if hasattr(X, "tocoo") else None
    rows, columns = np.nonzero(np.isnan(X)) if coo is None else (c[np.isnan(coo.data)] for c in coo.coords)
    if len(rows):
        name = repr(names[columns[0]]) if names else str(columns[0])
        raise ValueError(
            f"{len(rows)} feature values are missing, first in row {rows[0]} (from 0), column {name}: fill them in "
            "(with the column's mean, say), or leave those rows or columns out"
        )


def check_nonnegative(X: Any, argument: str) -> None:
    """No negative entry in a matrix, dense or sparse."""
    if X.min() < 0:
        raise ValueError(
            f"{argument} must not be negative; its smallest entry is {X.min():g}: scale the features to [0, 1], for "
            "instance with sklearn.preprocessing.MinMaxScaler"
        )


def check_probabilities(values: NDArray[Any], argument: str) -> FloatArray:
    """Numbers between 0 and 1, without NaN, as float64."""
    check_numeric(values, argument)
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        bad = values[wrong].ravel()[0]
        remedy = "leave no entry out" if np.isnan(bad) else "scores become probabilities by 1 / (1 + exp(-scores))"
        raise ValueError(f"{argument} must hold probabilities, between 0 and 1; got {bad:g}: {remedy}")
    return np.asarray(values, dtype=np.float64)
