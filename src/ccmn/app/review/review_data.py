"""Data under review: features and given labels for the model, and how a row is displayed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccmn._containers import is_sparse, to_dense_array
from ccmn._files import PathLike
from ccmn._pictures import encode_png
from ccmn._validation import FloatArray
from ccmn.app.evidence import mean_and_deviation
from ccmn.app.pictures import feature_pixels, picture_file
from ccmn.data.cells import cell_text
from ccmn.data.columns import Columns
from ccmn.data.csv_format import read_cells
from ccmn.data.dataset import Matrix, MultiLabelData
from ccmn.data.formats import format_suffix, is_table, read_table

MAX_FEATURES = 30
"""Maximum number of features shown per row; with more features, the most unusual ones are shown."""

MAX_OTHER_COLUMNS = 12
"""Cells of a table are displayed below a text or a picture if they have at most this number of columns."""

MIN_DEVIATION = 1e-4
"""Smallest standard deviation of a feature by which its values are divided."""

MAX_EXCERPT = 240
"""Number of characters of a row in the list of rows."""

MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""Supported picture files. SVG is excluded because it can contain scripts."""


Picture = tuple[bytes, str]
"""Content and media type of a picture."""


def pixel_pictures(X: Matrix, shape: tuple[int, ...]) -> Callable[[int], Picture]:
    """Return a function of a row that returns a picture whose pixels are its features."""
    pixels = feature_pixels(X, shape)
    return lambda row: (encode_png(pixels(row)), "image/png")


def file_pictures(names: Sequence[str], folder: Path) -> Callable[[int], Picture | None]:
    """Return a function of a row that returns its picture file in a folder; None if there is no such picture."""
    if not folder.is_dir():
        raise FileNotFoundError(f"Picture folder {folder} does not exist")

    def picture(row: int) -> Picture | None:
        path = picture_file(folder, names[row])
        with suppress(OSError):  # not readable
            if path is not None and path.suffix.lower() in MEDIA_TYPES:
                return path.read_bytes(), MEDIA_TYPES[path.suffix.lower()]
        return None

    return picture


class DisplayedFeature(NamedTuple):
    """Feature of a row: name, value, and distance from the mean in standard deviations; None for cells of a table."""

    name: str
    value: str
    z_score: float | None = None


@dataclass(frozen=True, eq=False)
class ReviewDataset:
    """Data under review.

    Parameters
    ----------
    data : MultiLabelData
        Features and given labels, the input of the model.
    picture : callable, optional
        Function from a row number to its picture, or to None if the row has no picture.
    test : tuple (X, Y), optional
        Test set with true labels. If given, the effect of retraining is measured on it.
    table : callable, optional
        Function that returns the file as a data frame with all its columns, one row per row of ``data``. If given, an
        export writes it with corrected labels.
    tags : tuple (column, separator), optional
        Column of ``table`` that lists the labels of a row, and the separator of the labels. The default is one column
        with 0 or 1 per label.
    """

    data: MultiLabelData
    picture: Callable[[int], Picture | None] | None = None
    test: tuple[Any, Any] | None = None
    table: Callable[[], Any] | None = None
    tags: tuple[str, str] | None = None

    @cached_property
    def given(self) -> NDArray[np.float32]:
        """Given labels as a dense array of shape (n, q); NaN if not observed."""
        return to_dense_array(self.data.Y).astype(np.float32)

    def name(self, row: int) -> str:
        """Return the identifier or the picture file of a row; empty if it has none."""
        names = self.data.images if self.data.ids is None else self.data.ids
        return "" if names is None else names[row]

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels; "label 0", "label 1", ... if they have no names."""
        return tuple(self.data.label_names or (f"label {j}" for j in range(self.data.q)))

    @property
    def named_labels(self) -> Any:
        """Given labels as a data frame if they have names, else as an array."""
        return self.named(self.given)

    def named(self, Y: NDArray[Any]) -> Any:
        """Return labels as a data frame if they have names, else as an array."""
        return Y if self.data.label_names is None else pd.DataFrame(Y, columns=list(self.data.label_names))

    @cached_property
    def name_prefix(self) -> str:
        """Common beginning of all label names up to a separator, which a page need not repeat."""
        names = list(self.label_names)
        common = os.path.commonprefix(names) if len(names) > 1 else ""  # noqa: RUF071
        return re.sub(r"[^_\-:/. ]*$", "", common)

    def short_name(self, label: int) -> str:
        """Return the name of a label without the common beginning of all names."""
        return self.label_names[label].removeprefix(self.name_prefix) or self.label_names[label]

    @property
    def metadata(self) -> dict[str, Any]:
        """JSON description of rows and labels; the answers of a review belong to data with this description."""
        labels = np.nan_to_num(self.given, nan=2).astype(np.uint8)
        return {
            "rows": self.data.n,
            "labels": list(self.label_names),
            "sha256 of the labels": hashlib.sha256(labels.tobytes()).hexdigest(),
        }

    def features(self, row: int) -> list[DisplayedFeature]:
        """Return the cells of a row as they are in the file, or the most unusual features if there are no cells.

        Features are in column order. Of a sparse row, only stored features are returned.
        """
        if self.data.cells is not None:
            return self._cells(row)
        X = self.data.X
        if is_sparse(X):
            stored = slice(X.indptr[row], X.indptr[row + 1])
            columns, values = X.indices[stored], X.data[stored]
        else:
            columns, values = np.arange(self.data.d), X[row]
        mean, deviation = self._moments
        z_scores = (values - mean[columns]) / np.maximum(deviation[columns], MIN_DEVIATION)
        shown = np.sort(np.argsort(-np.abs(np.nan_to_num(z_scores)), kind="stable")[:MAX_FEATURES])
        names = self.data.feature_names
        return [
            DisplayedFeature(names[columns[k]] if names else f"x{columns[k]}", f"{values[k]:.4g}", float(z_scores[k]))
            for k in shown
        ]

    def other_columns(self, row: int) -> list[DisplayedFeature]:
        """Return the cells of a row that are displayed below its text or picture; none if there are too many."""
        cells = self.data.cells
        return [] if cells is None or cells.shape[1] > MAX_OTHER_COLUMNS else self._cells(row)

    def excerpt(self, row: int) -> str:
        """Return the beginning of the text of a row, or of its cells."""
        if self.data.texts is not None:
            return shorten(" ".join(self.data.texts[row].split()))
        n_columns = self.data.d if self.data.cells is None else self.data.cells.shape[1]
        shown = self.features(row) if self.picture is None and n_columns <= MAX_OTHER_COLUMNS else []
        cells = [f"{cell.name}: {cell.value}" for cell in shown if cell.value != cell_text(None)]
        return shorten(", ".join(cells))

    def _cells(self, row: int) -> list[DisplayedFeature]:
        cells = self.data.cells.iloc[row]
        return [DisplayedFeature(str(name), cell_text(cells[name])) for name in self.data.cells.columns]

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray]:
        return mean_and_deviation(self.data.X)


def shorten(text: str) -> str:
    """Return the beginning of a text; a word is never cut without an ellipsis.

    >>> shorten("a " * 200)[-5:]
    'a a …'
    """
    return text if len(text) <= MAX_EXCERPT else text[:MAX_EXCERPT].rpartition(" ")[0].rstrip() + " …"


def review_dataset(
    data: MultiLabelData, columns: Columns, source: PathLike | None, picture: tuple[int, ...] | None, image_dir: Path
) -> ReviewDataset:
    """Return data to review that were read from a file.

    Parameters
    ----------
    data : MultiLabelData
        Data with features. Texts and pictures are displayed; without them, a row is displayed as a table.
    columns : Columns
        Columns of the file.
    source : path, str or None
        Data file, or name of a dataset. An export writes it with corrected labels; None if it has a line per vote.
    picture : tuple of int or None
        Size of the pictures, (height, width) or (height, width, 3), if the features are displayed as pixels.
    image_dir : Path
        Folder of the picture files.
    """
    shown: Callable[[int], Picture | None] | None = None
    if picture is not None:
        shown = pixel_pictures(data.X, picture)
    elif data.images is not None:
        shown = file_pictures(data.images, image_dir)
    tags = None if columns.roles.tags is None else (columns.roles.tags, columns.roles.separator)
    table = partial(_read_original, Path(source)) if source is not None and is_table(source) else None
    return ReviewDataset(data, shown, table=table, tags=tags)


def _read_original(path: Path) -> Any:
    """Return all columns of a CSV, Parquet or JSON file."""
    try:
        return read_cells(path) if format_suffix(path) == ".csv" else read_table(path).frame
    except ValueError as error:
        raise OSError(f"{path} has changed since the review started: {error}") from None
