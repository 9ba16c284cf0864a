"""Content of a row that a report shows: a picture, a text, or the most informative features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._pictures import to_pixels
from ccmn._validation import FloatArray
from ccmn.app.evidence import feature_evidence
from ccmn.data.preprocessing import cell_text

MAX_CHARACTERS = 280
"""Texts are cut after this number of characters."""

MAX_PIXELS = 160
"""Pictures of files are reduced to this height and width."""

MAX_FEATURES = 5
"""Number of features that are shown of a row."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Picture of 8-bit pixels, (height, width) gray or (height, width, 3) RGB."""

    kind: ClassVar[str] = "picture"
    pixels: NDArray[np.uint8]


@dataclass(frozen=True)
class Snippet:
    """Beginning of a text."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True)
class Feature:
    """Value of a feature or cell of a column, and its evidence for a label (negative: against the label)."""

    name: str
    value: float | str
    evidence: float


@dataclass(frozen=True)
class Features:
    """Most informative features of a row for one label."""

    kind: ClassVar[str] = "features"
    features: tuple[Feature, ...]


Instance = Picture | Snippet | Features
Show = Callable[[int, int], Instance]
"""Function of (row, label) that returns what is shown of the row."""


def pictures(X: Any, shape: Sequence[int]) -> Show:
    """Show rows as pictures; the minimum of X is black, the maximum white."""
    size = int(np.prod(shape))
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or X.shape[1] != size:
        expected = " x ".join(map(str, shape))
        raise ValueError(
            f"rows of {X.shape[1]} features are no pictures of {expected} pixels: expected height x width = "
            f"{X.shape[1]}, or height x width x 3 = {X.shape[1]} for color pictures"
        )
    low, high = float(X.min()), float(X.max())

    def show(row: int, label: int) -> Picture:
        values = X[[row]].toarray() if is_sparse(X) else X[[row]]
        return Picture(to_pixels(values.reshape(shape), low, high))

    return show


def image_files(names: Sequence[str], folder: Path) -> Show:
    """Show rows as small copies of picture files in a folder, or as the name of the file if it cannot be read."""
    root = folder.resolve()

    def show(row: int, label: int) -> Picture | Snippet:
        try:
            from PIL import Image

            path = (root / names[row].strip()).resolve()
            if not path.is_relative_to(root) or not path.is_file():  # a pipe would block
                return Snippet(names[row])
            with Image.open(path) as image:
                small = image.convert("RGB")
                small.thumbnail((MAX_PIXELS, MAX_PIXELS))
                return Picture(np.asarray(small, dtype=np.uint8))
        except MemoryError:
            raise
        except Exception:  # pillow is missing; damaged or hostile content can make the decoder fail in any way
            return Snippet(names[row])

    return show


def snippets(texts: Sequence[str]) -> Show:
    """Show rows as texts."""

    def show(row: int, label: int) -> Snippet:
        text = " ".join(texts[row].split())
        return Snippet(text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…")

    return show


def informative_features(X: Any, Y: FloatArray, names: Sequence[str] | None) -> Show:
    """Show the features of a row with the strongest evidence for or against a label."""
    values_and_evidence = feature_evidence(X, Y)

    def show(row: int, label: int) -> Features:
        values, evidence = values_and_evidence(row, label)
        strongest = np.argsort(-np.abs(evidence), kind="stable")[:MAX_FEATURES]
        features = (
            Feature(f"x{j}" if names is None else names[j], float(values[j]), float(evidence[j])) for j in strongest
        )
        return Features(tuple(features))

    return show


def informative_columns(X: Any, Y: FloatArray, cells: Any, columns: Sequence[str]) -> Show:
    """Show the cells of a row with the strongest evidence for or against a label.

    The evidence of a column is the sum over its features, as in :func:`informative_features`: a category has one
    feature per value, a date one per part.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Features.
    Y : array of shape (n, q)
        Noisy labels.
    cells : DataFrame of shape (n, columns)
        Columns of the table as they are in the file.
    columns : sequence of str, length d
        Column of each feature.
    """
    values_and_evidence = feature_evidence(X, Y)
    names = list(dict.fromkeys(columns))
    place = np.array([names.index(column) for column in columns])

    def show(row: int, label: int) -> Features:
        evidence = np.bincount(place, values_and_evidence(row, label)[1], len(names))
        strongest = np.argsort(-np.abs(evidence), kind="stable")[:MAX_FEATURES]
        cell = cells.iloc[row]
        return Features(tuple(Feature(names[j], cell_text(cell[names[j]]), float(evidence[j])) for j in strongest))

    return show
