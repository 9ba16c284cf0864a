"""Data under review: features and given labels for the model, and how a row is displayed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._files import PathLike
from ccmn._pictures import encode_png, parse_size, to_pixels
from ccmn.data.cells import cell_text
from ccmn.data.column_roles import ColumnRoles
from ccmn.data.columns import Columns
from ccmn.data.csv_format import read_cells
from ccmn.data.dataset import Matrix, MultiLabelData
from ccmn.data.formats import format_suffix, is_table, read_table

MAX_FEATURES = 30
"""Maximum number of features shown per row; with more features, the most unusual ones are shown."""

MAX_OTHER_COLUMNS = 12
"""Cells of a table are displayed below a text or a picture if they have at most this number of columns."""

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


class Picture(NamedTuple):
    """Content and media type of a picture."""

    content: bytes
    media_type: str


class FeaturePictures:
    """Pictures whose pixels are the features of a row; the minimum of all features is black, the maximum white.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Features.
    shape : tuple of int
        ``(height, width)`` of gray pictures or ``(height, width, 3)`` of color pictures.
    """

    def __init__(self, X: Matrix, shape: tuple[int, ...]) -> None:
        size = int(np.prod(shape))
        if size != X.shape[1]:
            raise ValueError(
                f"Expected {size} features for pictures of size {'x'.join(map(str, shape))}; got {X.shape[1]} features"
            )
        self._X, self._shape = X, shape
        self._low, self._high = float(X.min()), float(X.max())

    def __call__(self, row: int) -> Picture:
        """Return the picture of a row."""
        values = self._X[[row]]
        pixels = np.asarray(values.toarray() if hasattr(values, "toarray") else values).reshape(self._shape)
        return Picture(encode_png(to_pixels(pixels, self._low, self._high)), "image/png")


class FilePictures:
    """Picture files in one folder. Files outside the folder are never read.

    Parameters
    ----------
    names : list of str
        File name of each row, relative to the folder.
    folder : Path
        Folder of the files.
    """

    def __init__(self, names: list[str], folder: Path) -> None:
        if not folder.is_dir():
            raise FileNotFoundError(f"Picture folder {folder} does not exist")
        self._folder, self._names = folder.resolve(), names

    def __call__(self, row: int) -> Picture | None:
        """Return the picture of a row; None if there is no such picture in the folder."""
        try:
            path = (self._folder / self._names[row].strip()).resolve()
            media_type = MEDIA_TYPES.get(path.suffix.lower())
            if media_type is None or not path.is_relative_to(self._folder) or not path.is_file():
                return None
            return Picture(path.read_bytes(), media_type)
        except (OSError, ValueError, RuntimeError):  # unreadable file, NUL in the name, loop of symbolic links
            return None


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
    texts : sequence of str, optional
        Text of each row.
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
    ids : sequence of str, optional
        Identifier of each row.
    """

    data: MultiLabelData
    texts: Sequence[str] | None = None
    picture: Callable[[int], Picture | None] | None = None
    test: tuple[Any, Any] | None = None
    table: Callable[[], Any] | None = None
    tags: tuple[str, str] | None = None
    ids: Sequence[str] | None = None

    @cached_property
    def given(self) -> NDArray[np.float32]:
        """Given labels as a dense array of shape (n, q); NaN if not observed."""
        Y = self.data.Y
        return np.asarray(Y.toarray() if is_sparse(Y) else Y, dtype=np.float32)

    def name(self, row: int) -> str:
        """Return the identifier or the picture file of a row; empty if it has none."""
        names = self.data.images if self.ids is None else self.ids
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
        if self.data.label_names is None:
            return Y
        import pandas as pd

        return pd.DataFrame(Y, columns=list(self.data.label_names))

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
        mean, deviation = self._mean_and_deviation
        z_scores = (values - mean[columns]) / deviation[columns]
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
        if self.texts is not None:
            return shorten(" ".join(self.texts[row].split()))
        n_columns = self.data.d if self.data.cells is None else self.data.cells.shape[1]
        shown = self.features(row) if self.picture is None and n_columns <= MAX_OTHER_COLUMNS else []
        cells = [f"{cell.name}: {cell.value}" for cell in shown if cell.value != cell_text(None)]
        return shorten(", ".join(cells))

    def _cells(self, row: int) -> list[DisplayedFeature]:
        cells = self.data.cells.iloc[row]
        return [DisplayedFeature(str(name), cell_text(cells[name])) for name in self.data.cells.columns]

    @cached_property
    def _mean_and_deviation(self) -> tuple[NDArray[Any], NDArray[Any]]:
        X = self.data.X
        if is_sparse(X):
            mean = np.asarray(X.mean(axis=0)).ravel()
            variance = np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2
        else:
            mean, variance = np.nanmean(X, axis=0), np.nanvar(X, axis=0)
        return mean, np.sqrt(np.maximum(variance, np.finfo(np.float32).eps))


def shorten(text: str) -> str:
    """Return the beginning of a text; a word is never cut without an ellipsis.

    >>> shorten("a " * 200)[-5:]
    'a a …'
    """
    return text if len(text) <= MAX_EXCERPT else text[:MAX_EXCERPT].rpartition(" ")[0].rstrip() + " …"


def read_review_data(
    source: PathLike,
    roles: ColumnRoles,
    votes: Sequence[str] | None = None,
    items: PathLike | None = None,
    data_dir: PathLike | None = None,
    *,
    picture: str | None = None,
    image_dir: Path | None = None,
) -> tuple[ReviewDataset, Columns]:
    """Read data to review from a file.

    Parameters
    ----------
    source : path or str
        Data file, or name of a dataset.
    roles : ColumnRoles
        Columns of labels, tags, texts, pictures and identifiers. Texts and pictures are displayed; without them and
        without ``picture``, a row is displayed as a table of its features.
    votes : sequence of str, optional
        Columns of item, annotator, label and (optional) value of a long table of votes.
    items : path, optional
        Table of the items of the votes.
    data_dir : path, optional
        Folder of the dataset catalog.
    picture : str, optional
        Picture size HEIGHTxWIDTH or HEIGHTxWIDTHx3. The features are displayed as pixels.
    image_dir : Path, optional
        Folder of the picture files. The default is the folder of ``source``.

    Returns
    -------
    ReviewDataset
        The data.
    Columns
        Columns of the file that a model of these data takes.

    Raises
    ------
    ValueError
        If more than one display is requested, or if the file lacks features or labels.
    """
    if sum(map(bool, (roles.text, picture, roles.image))) > 1:
        raise ValueError("Expected at most one of text, picture and image; got more than one")
    columns, data = Columns.from_training_data(source, roles=roles, data_dir=data_dir, votes=votes, items=items)
    if not data.d:
        raise ValueError(f"{source}: there are no features in these data; describe the items with --items FILE")
    shown: Callable[[int], Picture | None] | None = None
    if picture is not None:
        shown = FeaturePictures(data.X, parse_size(picture))
    elif data.images is not None:
        folder = Path(source if items is None else items).parent
        shown = FilePictures(list(data.images), folder if image_dir is None else image_dir)
    tags = None if columns.roles.tags is None else (columns.roles.tags, columns.roles.separator)
    table = None if votes is not None else _table_reader(source)
    return ReviewDataset(data, data.texts, shown, table=table, tags=tags, ids=data.ids), columns


def _table_reader(source: PathLike) -> Callable[[], Any] | None:
    """Return a function that reads all columns of a CSV, Parquet or JSON file; None for other files."""
    path = Path(source)
    if not is_table(path):
        return None

    def read() -> Any:
        try:
            return read_cells(path) if format_suffix(path) == ".csv" else read_table(path).frame
        except ValueError as error:
            raise OSError(f"{path} has changed since the review started: {error}") from None

    return read
