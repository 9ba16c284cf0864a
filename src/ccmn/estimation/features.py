"""What the models of the profile likelihood look at: the features in two shapes, and the other noisy labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray

WIDEST = 400
"""Features beyond which only the leading directions are looked at."""
DIRECTIONS = 200
LANDMARKS = 300
"""Rows that the kernel features are measured from."""
MOST_LABELS = 300
"""Other labels that are evidence, the most frequent ones first."""


def heads(X: Any, seed: int) -> list[FloatArray]:
    """Two shapes of the same features: as they are (linear) and kernel features about landmark rows.

    Each is centred, with columns of mean square 1 on average, so that one step length suits both. Which of them a
    label is explained by is left to its held-out likelihood.
    """
    base = narrow(X, seed)
    return [base, kernel_features(base, seed)]


def narrow(X: Any, seed: int) -> FloatArray:
    """Dense features, centred: standardised columns, or the leading directions where there are many.

    Rows of a CSR are scaled to length 1 first: word counts say more about the length of a text than about its labels.
    """
    if X.shape[1] <= WIDEST:
        return standardise(np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64))
    rows = normalize(X) if is_sparse(X) else standardise(np.asarray(X, dtype=np.float64))
    size = min(DIRECTIONS, min(rows.shape) - 1)
    left, values, _ = randomized_svd(rows, size, n_iter=4, random_state=seed)
    return rescale(left * values)


def standardise(X: FloatArray) -> FloatArray:
    """Columns of mean 0 and deviation 1; constant ones become 0."""
    deviation = X.std(0)
    # Rounding leaves a little deviation in a constant column, which must not be blown up.
    varied = deviation > 1e-9 * np.maximum(1.0, np.abs(X).max(0, initial=0.0))
    return np.where(varied, (X - X.mean(0)) / np.where(varied, deviation, 1), 0.0)


def rescale(X: FloatArray) -> FloatArray:
    """Centred, and all columns by one factor to a mean square of 1 on average: small directions stay small."""
    centred: FloatArray = X - X.mean(0)
    size = float(np.sqrt(np.square(centred).mean()))
    return centred / size if size > 0 else centred


def kernel_features(X: FloatArray, seed: int) -> FloatArray:
    r"""Nystroem features of the Gaussian kernel about random landmark rows.

    .. math:: K(x, c)\, K(c, c')^{-1/2}, \qquad K(x, c) = e^{-\lVert x - c \rVert^2 / m}

    with m the median squared distance of the landmarks.
    """
    chosen = np.random.default_rng(seed).permutation(len(X))[:LANDMARKS]
    landmarks = X[chosen]
    apart = squared_distances(landmarks, landmarks)
    width = float(np.median(apart[np.triu_indices(len(chosen), 1)])) if len(chosen) > 1 else 1.0
    width = width if width > 0 else 1.0
    values, vectors = np.linalg.eigh(np.exp(-apart / width))
    kept = values > 1e-6 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    return rescale(np.exp(-squared_distances(X, landmarks) / width) @ root)


def squared_distances(A: FloatArray, B: FloatArray) -> FloatArray:
    """(n, m): between all rows of the one and all of the other."""
    squares = np.square(A).sum(1)[:, None] + np.square(B).sum(1) - 2 * A @ B.T
    return np.asarray(np.maximum(squares, 0))


def label_features(Y: FloatArray) -> tuple[FloatArray, np.ndarray[Any, np.dtype[np.intp]]]:
    r"""Noisy labels as features, standardised, 0 where not observed; and the place of each label among them, or -1.

    Flips are independent given the true labels, so that for every label

    .. math:: P(\tilde y_j = 1 \mid x, \tilde y_{others}) = \rho_{neg} + r\, P(y_j = 1 \mid x, \tilde y_{others}) :

    the other noisy labels sharpen the posterior at no price (section 17). Where every row has equally many labels
    (classes, one a row) they give the label away, flips are not independent, and there are no such features.
    """
    observed = ~np.isnan(Y)
    if Y.shape[1] > 1 and np.ptp(np.nansum(Y, 1)) == 0:
        return np.empty((len(Y), 0)), np.full(Y.shape[1], -1, dtype=np.intp)
    many = np.maximum(observed.sum(0), 1)
    mean = np.nansum(Y, 0) / many
    centred = np.where(observed, Y - mean, 0.0)
    deviation = np.sqrt(np.square(centred).sum(0) / many)
    varied = np.flatnonzero(deviation > 0)
    kept = np.sort(varied[np.argsort(-deviation[varied], kind="stable")[:MOST_LABELS]])
    place = np.full(Y.shape[1], -1, dtype=np.intp)
    place[kept] = np.arange(kept.size)
    return centred[:, kept] / deviation[kept], place
