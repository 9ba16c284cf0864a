"""Evidence of the features of a row for a label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray


def feature_evidence(X: Any, Y: FloatArray) -> Callable[[int, int], tuple[FloatArray, FloatArray]]:
    r"""Return a function of (row, label) that returns the features of the row and their evidence for the label.

    The evidence of feature j in row i for label k is

    .. math:: t_{ij} = z_{ij}\, r_{jk}, \qquad z_{ij} = (x_{ij} - \bar x_j) / s_j

    with r_jk the correlation of feature j and the noisy label k. Class-conditional noise multiplies all correlations
    with a label by the same factor, so the order of the features is that of the true label.
    """
    mean = np.asarray(X.mean(0), dtype=np.float64).ravel()
    squares = X.multiply(X).mean(0) if is_sparse(X) else (np.asarray(X, dtype=np.float64) ** 2).mean(0)
    deviation = np.sqrt(np.maximum(np.asarray(squares).ravel() - mean**2, 0))
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 1e-12)
    correlations: dict[int, FloatArray] = {}

    def values_and_evidence(row: int, label: int) -> tuple[FloatArray, FloatArray]:
        if label not in correlations:
            correlations[label] = _standardize(Y[:, label]) @ X * scale / len(Y)
        values = np.asarray(X[[row]].toarray() if is_sparse(X) else X[[row]], dtype=np.float64).ravel()
        return values, (values - mean) * scale * correlations[label]

    return values_and_evidence


def _standardize(y: FloatArray) -> FloatArray:
    """Scale the observed labels to mean 0 and standard deviation 1; labels that were not observed become 0."""
    centered = np.nan_to_num(y - np.nanmean(y)) if (~np.isnan(y)).any() else np.zeros_like(y)
    deviation = np.sqrt((centered**2).mean())
    return np.asarray(centered / deviation if deviation > 0 else centered)
