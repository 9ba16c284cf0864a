"""Folds, and reduced features of wide matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from ccmn._containers import is_sparse
from ccmn._threads import limit_threads
from ccmn._validation import FloatArray

MAX_FEATURES = 400
"""Features above this number are replaced by their principal components."""
N_COMPONENTS = 120
"""Number of these principal components."""
N_LANDMARKS = 150
"""Landmark rows of the kernel features."""
Fold = NDArray[np.intp]


def stratified_folds(Y: FloatArray, k: int, rng: np.random.Generator) -> list[Fold]:
    """Return k folds of equal size, stratified by the rarest label of each row.

    Rows are sorted by their rarest label, in random order within a label, and assigned to the folds in turn.

    >>> [fold.size for fold in stratified_folds(np.eye(10)[:, :2], 3, np.random.default_rng(0))]
    [4, 3, 3]
    """
    counts = np.where(Y == 1, (Y == 1).sum(0), np.inf)
    order = np.lexsort((rng.random(len(Y)), counts.argmin(1), counts.min(1)))
    return [order[start::k] for start in range(k)]


def feature_maps(X: Any, seed: int) -> list[FloatArray]:
    """Return linear and kernel features of the same rows.

    Both are centered and have a mean square of 1 over all columns, so that one step size suits both. The held-out
    likelihood of each label selects between them.
    """
    linear = reduce_features(X, seed)
    return [linear, kernel_features(linear, seed)]


def reduce_features(X: Any, seed: int, n_components: int = N_COMPONENTS) -> FloatArray:
    """Return dense centered features: standardized columns, or principal components if there are many columns.

    The rows of a wide sparse matrix are normalized first, so that the length of a text has no influence.
    """
    if X.shape[1] <= MAX_FEATURES:
        return standardize(np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64))
    rows = normalize(X) if is_sparse(X) else standardize(np.asarray(X, dtype=np.float64))
    size = min(n_components, min(rows.shape) - 1)
    with limit_threads(rows.shape[0] * size**2):
        left, values, _ = randomized_svd(rows, size, n_iter=2, random_state=seed)
    return rescale(left * values)


def standardize(X: FloatArray) -> FloatArray:
    """Return columns of mean 0 and standard deviation 1; constant columns become 0."""
    deviation = X.std(0)
    # Rounding errors give a constant column a small deviation, which must not be scaled up.
    varied = deviation > 1e-9 * np.maximum(1.0, np.abs(X).max(0, initial=0.0))
    return np.where(varied, (X - X.mean(0)) / np.where(varied, deviation, 1), 0.0)


def rescale(X: FloatArray) -> FloatArray:
    """Return centered columns divided by one common factor, so that their mean square is 1."""
    centered: FloatArray = X - X.mean(0)
    scale = float(np.sqrt(np.square(centered).mean()))
    return centered / scale if scale > 0 else centered


def kernel_features(X: FloatArray, seed: int) -> FloatArray:
    r"""Return Nystroem features of the Gaussian kernel with random landmark rows.

    .. math:: K(x, c)\, K(c, c')^{-1/2}, \qquad K(x, c) = e^{-\lVert x - c \rVert^2 / m}

    where m is the median squared distance between landmarks.
    """
    landmarks = X[np.random.default_rng(seed).permutation(len(X))[:N_LANDMARKS]]
    distances = squared_distances(landmarks, landmarks)
    width = float(np.median(distances[np.triu_indices(len(landmarks), 1)])) if len(landmarks) > 1 else 1.0
    width = width if width > 0 else 1.0
    values, vectors = np.linalg.eigh(np.exp(-distances / width))
    kept = values > 1e-6 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    return rescale(np.exp(-squared_distances(X, landmarks) / width) @ root)


def squared_distances(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the squared distances (n, m) between all rows of A and all rows of B."""
    squares = np.square(A).sum(1)[:, None] + np.square(B).sum(1) - 2 * A @ B.T
    return np.asarray(np.maximum(squares, 0))
