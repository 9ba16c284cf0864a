"""Content of a row that a report shows: a picture, a text, or the most informative features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import to_dense_array
from ccmn._validation import FloatArray
from ccmn.app.evidence import feature_evidence
from ccmn.app.pictures import feature_pixels, picture_file
from ccmn.app.report.html import shorten
from ccmn.data.cells import cell_text

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.data.fitted_table import FittedTable

MAX_CHARACTERS = 280
"""Texts are cut after this number of characters."""
MAX_PIXELS = 160
"""Pictures of files are reduced to this height and width."""
MAX_FEATURES = 5
"""Number of features that are shown of a row."""


class Instance(NamedTuple):
    """Content of a row; one field is not empty."""

    pixels: NDArray[np.uint8] | None = None
    """Picture, (height, width) gray or (height, width, 3) RGB."""
    text: str = ""
    features: tuple[tuple[str, str, float], ...] = ()
    """Most informative features for a label: name, value, and evidence (negative: against the label)."""


Show = Callable[[int, int], Instance]
"""Function of (row, label) that returns what is shown of the row."""


def row_display(
    data: MultiLabelData, Y: Any, size: tuple[int, ...] | None, folder: Path, table: FittedTable | None
) -> Show:
    """Return how a report shows a row: as a picture, as the start of its text, or by its informative columns.

    Picture files are searched in ``folder``. ``table`` is the preprocessing of the columns, if there is any.
    """
    if size is not None:
        pixels = feature_pixels(data.X, size)
        return lambda row, label: Instance(pixels(row))
    if data.images is not None:
        names = list(data.images)
        return lambda row, label: _small_picture(folder, names[row])
    if data.texts is not None:
        texts = [" ".join(text.split()) for text in data.texts]
        return lambda row, label: Instance(text=shorten(texts[row], MAX_CHARACTERS))
    labels = to_dense_array(Y).astype(np.float64)
    if data.cells is not None and table is not None:
        columns = [step.column for step in table.steps_ for _ in step.names]
        return informative_features(data.X, labels, columns, data.cells)
    return informative_features(data.X, labels, data.feature_names or [f"x{j}" for j in range(data.d)])


def _small_picture(folder: Path, name: str) -> Instance:
    """Return a small copy of a picture file, or its name if it cannot be read."""
    try:
        from PIL import Image

        with Image.open(picture_file(folder, name) or "") as image:
            small = image.convert("RGB")
            small.thumbnail((MAX_PIXELS, MAX_PIXELS))
            return Instance(np.asarray(small, dtype=np.uint8))
    except MemoryError:
        raise
    except Exception:  # pillow is missing; damaged or hostile content can make the decoder fail in any way
        return Instance(text=name)


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
    number = {name: j for j, name in enumerate(dict.fromkeys(columns))}
    names, place = list(number), [number[column] for column in columns]

    def show(row: int, label: int) -> Instance:
        values, of_features = values_and_evidence(row, label)
        evidence = np.bincount(place, of_features, len(names))
        strongest = np.argsort(-np.abs(evidence), kind="stable")[:MAX_FEATURES].tolist()
        texts = {j: f"{values[j]:.4g}" if cells is None else cell_text(cells.iloc[row][names[j]]) for j in strongest}
        return Instance(features=tuple((str(names[j]), texts[j], float(evidence[j])) for j in strongest))

    return show
