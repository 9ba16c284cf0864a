"""Content of a row that a report shows: a picture, a text, or the most informative features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse, to_dense_array
from ccmn._pictures import to_pixels
from ccmn._validation import FloatArray
from ccmn.app.evidence import feature_evidence
from ccmn.data.cells import cell_text

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.table_preprocessor import TablePreprocessor

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
class Features:
    """Most informative features of a row for a label: name, value, and evidence (negative: against the label)."""

    kind: ClassVar[str] = "features"
    features: tuple[tuple[str, str, float], ...]


Instance = Picture | Snippet | Features
Show = Callable[[int, int], Instance]
"""Function of (row, label) that returns what is shown of the row."""


def row_display(
    data: MultiLabelData, Y: Any, size: tuple[int, ...] | None, folder: Path, table: TablePreprocessor | None
) -> Show:
    """Return how a report shows a row: as a picture, as the start of its text, or by its informative columns.

    Picture files are searched in ``folder``. ``table`` is the preprocessing of the columns, if there is any.
    """
    if size is not None:
        return pictures(data.X, size)
    if data.images is not None:
        return image_files(list(data.images), folder)
    if data.texts is not None:
        return snippets(list(data.texts))
    labels = to_dense_array(Y).astype(np.float64)
    if data.cells is not None and table is not None:
        columns = [step.column for step in table.steps_ for _ in step.names]
        return informative_features(data.X, labels, columns, data.cells)
    return informative_features(data.X, labels, data.feature_names or [f"x{j}" for j in range(data.d)])


def pictures(X: Any, shape: Sequence[int]) -> Show:
    """Show rows as pictures; the minimum of X is black, the maximum white."""
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or X.shape[1] != int(np.prod(shape)):
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


def informative_features(X: Any, Y: FloatArray, columns: Sequence[str], cells: Any = None) -> Show:
    """Show the columns of a row with the strongest evidence for or against a label.

    The evidence of a column is the sum over its features: a category has one feature per value, a date one per part.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Features.
    Y : array of shape (n, q)
        Noisy labels.
    columns : sequence of str, length d
        Column of each feature; without ``cells``, its name.
    cells : DataFrame of shape (n, columns), optional
        Columns of the table as they are in the file.
    """
    values_and_evidence = feature_evidence(X, Y)
    names = list(columns) if cells is None else list(dict.fromkeys(columns))
    place = np.arange(len(names)) if cells is None else np.array([names.index(column) for column in columns])

    def show(row: int, label: int) -> Features:
        values, of_features = values_and_evidence(row, label)
        evidence = np.bincount(place, of_features, len(names))
        strongest = np.argsort(-np.abs(evidence), kind="stable")[:MAX_FEATURES].tolist()
        texts = {j: f"{values[j]:.4g}" if cells is None else cell_text(cells.iloc[row][names[j]]) for j in strongest}
        return Features(tuple((str(names[j]), texts[j], float(evidence[j])) for j in strongest))

    return show
