"""Labels: what values they have and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn.validation.arrays import FloatArray
from ccmn.validation.matrices import check_no_nan, check_numeric


def check_label_values(values: NDArray[Any], argument: str = "labels") -> None:
    """0, 1 or NaN, and nothing else (values of a matrix, or the stored values of a sparse one)."""
    if values.dtype == bool:
        return
    if not np.issubdtype(values.dtype, np.number):
        raise ValueError(f"{argument} must be numbers 0 or 1 (NaN: not observed); got dtype {values.dtype}")
    wrong = ~((values == 0) | (values == 1))
    if np.issubdtype(values.dtype, np.floating):
        wrong &= ~np.isnan(values)
    if wrong.any():
        bad = values[wrong].ravel()[0]
        remedy = " For -1/+1 labels pass (Y + 1) / 2." if (values == -1).any() else ""
        raise ValueError(f"{argument} must be 0 or 1 (NaN: not observed); got {bad:g}.{remedy}")


def check_label_width(shape: Sequence[int], n_labels: int, argument: str = "labels") -> None:
    """The last dimension is the labels', and as long as the noise model says."""
    if len(shape) == 0 or shape[-1] != n_labels:
        raise ValueError(
            f"{argument} must have {n_labels} labels in the last dimension, shape (n, {n_labels}); "
            f"got shape {tuple(shape)}"
        )


def check_label_matrix(Y: NDArray[Any], argument: str) -> FloatArray:
    """Labels of shape (n, q) with at least one entry, 0, 1 or NaN, as float64."""
    if Y.ndim != 2 or not Y.size:
        raise ValueError(
            f"{argument} must be a matrix of shape (n, q), a row per sample and a column per label; got shape {Y.shape}"
        )
    if Y.dtype == object:
        try:
            Y = Y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{argument} must hold numbers 0 or 1 (NaN: not observed)") from None
    check_label_values(Y, argument)
    return Y.astype(np.float64)


def check_one_hot(rows: NDArray[Any], argument: str = "labels") -> None:
    """Exactly one 1 per row, or a NaN (not observed)."""
    total = rows.sum(-1)
    if not ((total == 1) | np.isnan(np.asarray(total, dtype=np.float64))).all():
        raise ValueError(
            f"{argument} must be one-hot: exactly one 1 per row; got a row with {np.nanmax(np.abs(total - 1)) + 1:g} "
            "or none. For rows with several labels use ClassConditionalNoise."
        )


def check_zero_one(matrix: Any, argument: str) -> None:
    """0 or 1 and nothing else, not even NaN, in a matrix (array or tensor)."""
    check_no_nan(matrix, argument)
    wrong = (matrix != 0) & (matrix != 1)
    if wrong.any():
        remedy = "for -1/+1 labels pass (Y + 1) / 2" if (matrix == -1).any() else "cut scores into labels, scores >= 0"
        raise ValueError(f"{argument} must be 0 or 1; got {matrix[wrong][0]:g}: {remedy}")


def check_candidates(candidates: NDArray[Any], argument: str = "candidates") -> FloatArray:
    """Candidate sets (n, q) of 0 and 1, every entry known, as float64."""
    if candidates.dtype.kind not in "biuf" or not ((candidates == 0) | (candidates == 1)).all():
        raise ValueError(
            f"Only binary classification is supported. {argument} must be 0 or 1 for every label; got "
            f"{np.unique(candidates)[:5].tolist()}: for -1/+1 pass (candidates + 1) / 2."
        )
    if candidates.ndim != 2:
        raise ValueError(
            f"{argument} must be a matrix of shape (n, q), 1 where a label is in the row's candidate set; got shape "
            f"{candidates.shape}. One class per row becomes such a matrix by sklearn.preprocessing.label_binarize."
        )
    return candidates.astype(np.float64)


def check_votes(votes: Any) -> FloatArray:
    """Votes (n, annotators, q) of 0, 1 or NaN, as float64."""
    array = np.asarray(votes)
    if array.ndim != 3 or not array.size:
        raise ValueError(f"annotators must be an array (n, annotators, labels) of votes; got shape {array.shape}")
    check_numeric(array, "annotators")
    check_label_values(array, "annotators")
    return array.astype(np.float64)
