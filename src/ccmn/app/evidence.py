"""Evidence of the features of a row for a label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray


def mean_and_deviation(X: Any) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each feature; NaN is left out."""
    if is_sparse(X):
        mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        variance = np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2
        return mean, np.sqrt(np.maximum(variance, 0))
    values = np.asarray(X, dtype=np.float64)
    return np.nanmean(values, axis=0), np.nanstd(values, axis=0)


def feature_evidence(X: Any, Y: FloatArray) -> Callable[[int, int], tuple[FloatArray, FloatArray]]:
    r"""Return a function of (row, label) that returns the features of the row and their evidence for the label.

    The evidence of feature j in row i for label k is

    .. math:: t_{ij} = z_{ij}\, r_{jk}, \qquad z_{ij} = (x_{ij} - \bar x_j) / s_j

    with r_jk the correlation of feature j and the noisy label k. Class-conditional noise multiplies all correlations
    with a label by the same factor, so the order of the features is that of the true label.
    """
    mean, deviation = mean_and_deviation(X)
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 1e-12)
    correlations: dict[int, FloatArray] = {}

    def values_and_evidence(row: int, label: int) -> tuple[FloatArray, FloatArray]:
        if label not in correlations:
            y = Y[:, label]
            centered = np.nan_to_num(y - np.nansum(y) / max(np.isfinite(y).sum(), 1))
            correlations[label] = centered @ X * scale / (len(Y) * (centered.std() or 1.0))
        values = np.asarray(X[[row]].toarray() if is_sparse(X) else X[[row]], dtype=np.float64).ravel()
        return values, (values - mean) * scale * correlations[label]

    return values_and_evidence
