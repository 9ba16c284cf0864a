"""What a row of the data is, for people: a picture, a text, or the features that tell most about a label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray

MOST_CHARACTERS = 280
"""Of a text that is shown."""

MOST_FEATURES = 5


@dataclass(frozen=True, eq=False)
class Picture:
    """Pixels of 8 bits: (height, width) grey, or (height, width, 3) colours."""

    pixels: NDArray[np.uint8]


@dataclass(frozen=True)
class Snippet:
    """The beginning of a text."""

    text: str


@dataclass(frozen=True)
class Feature:
    """A feature's value in a row, and how strongly it speaks for a label (below 0: against it)."""

    name: str
    value: float
    tells: float


@dataclass(frozen=True)
class Features:
    """The features that tell most about a label of a row."""

    features: tuple[Feature, ...]


Instance = Picture | Snippet | Features
Show = Callable[[int, int], Instance]
"""(row, label) -> what to show of the row."""


def pictures(X: Any, shape: Sequence[int]) -> Show:
    """Rows are pictures of this shape, their smallest value black and the largest white, over all rows."""
    size = int(np.prod(shape))
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or X.shape[1] != size:
        wanted = " x ".join(map(str, shape))
        raise ValueError(
            f"rows of {X.shape[1]} features are no pictures of {wanted} pixels: height x width must make "
            f"{X.shape[1]}, or height x width x 3 with colours"
        )
    low, high = float(X.min()), float(X.max())

    def show(row: int, label: int) -> Picture:
        values = X[[row]].toarray() if is_sparse(X) else X[[row]]
        grey = (values.reshape(shape) - low) / max(high - low, np.finfo(np.float32).tiny) * 255
        return Picture(np.rint(grey).astype(np.uint8))

    return show


def snippets(texts: Sequence[str]) -> Show:
    """Rows are texts."""

    def show(row: int, label: int) -> Snippet:
        text = " ".join(texts[row].split())
        return Snippet(text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…")

    return show


def telling_features(X: Any, Y: FloatArray, names: Sequence[str] | None) -> Show:
    r"""Rows are features, of which the most telling are shown: how unusual a value is, times what it says of the label.

    .. math:: t_{ij} = z_{ij}\, r_{jk}, \qquad z_{ij} = (x_{ij} - \bar x_j) / s_j

    with r_jk the correlation of feature j with label k as it is given. Noise shrinks the correlations with a label by
    one factor, so that the order is that of the true label.
    """
    mean = np.asarray(X.mean(0), dtype=np.float64).ravel()
    squares = X.multiply(X).mean(0) if is_sparse(X) else (np.asarray(X, dtype=np.float64) ** 2).mean(0)
    deviation = np.sqrt(np.maximum(np.asarray(squares).ravel() - mean**2, 0))
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 1e-12)
    correlations: dict[int, FloatArray] = {}

    def show(row: int, label: int) -> Features:
        if label not in correlations:
            correlations[label] = _standardised(Y[:, label]) @ X * scale / len(Y)
        values = np.asarray(X[[row]].toarray() if is_sparse(X) else X[[row]], dtype=np.float64).ravel()
        tells = (values - mean) * scale * correlations[label]
        most = np.argsort(-np.abs(tells), kind="stable")[:MOST_FEATURES]
        named = ((f"x{j}" if names is None else names[j], float(values[j]), float(tells[j])) for j in most)
        return Features(tuple(Feature(*feature) for feature in named))

    return show


def _standardised(y: FloatArray) -> FloatArray:
    """Mean 0 and deviation 1 over what was observed, 0 elsewhere; so centred, features need not be."""
    centred = np.nan_to_num(y - np.nanmean(y)) if (~np.isnan(y)).any() else np.zeros_like(y)
    deviation = np.sqrt((centred**2).mean())
    return np.asarray(centred / deviation if deviation > 0 else centred)
