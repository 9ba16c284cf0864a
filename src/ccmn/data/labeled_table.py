"""Tables with labels as 0/1 columns or as lists of tags, identifiers, texts, pictures and columns of any kind."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ccmn._files import check_unpacked_size, data_name, prefix_errors, unpacked_limit
from ccmn.data.cells import category_name, to_numbers, with_decimal_points, without_gap_words
from ccmn.data.column_roles import DEFAULT_SEPARATOR, ColumnRoles, check_columns, label_columns, name_some
from ccmn.data.dataset import MultiLabelData

if TYPE_CHECKING:
    from ccmn.data.fitted_table import FittedTable

TAG_SEPARATORS = (DEFAULT_SEPARATOR, "|", ",", "#")
"""Separators that are recognized in error messages."""
MAX_LIST_CHARACTERS = 200
"""Longer cells are texts and not lists of tags."""
MAX_DISPLAYED_COLUMNS = 100
"""Cells of larger tables are not kept for display: a person cannot read them, and they would need much memory."""


@dataclass(frozen=True, eq=False)
class RawTable:
    """Table as read from a file, before its columns are told apart.

    ``frame`` has None or NaN where a value is missing. ``places`` are the lines of the rows of a text file, for error
    messages, ``roles`` those that the format of the file declares, ``tag_names`` the names of numbered tags, ``votes``
    a VoteTable, and ``trusted`` the verified tags of every row, None where not verified.
    """

    path: Path
    frame: Any
    places: Sequence[int] | None = None
    roles: ColumnRoles = field(default_factory=ColumnRoles)
    tag_names: Sequence[str] | None = None
    votes: Any = None
    trusted: Sequence[Any] | None = None
    decimal_comma: bool = False

    def typed(self, texts: Sequence[str | None] = (), names: Sequence[str | None] = ()) -> RawTable:
        """Return the table with None for the words that mean a missing value in a CSV file, and with decimal points.

        ``texts`` are columns that stay as they are, and ``names`` columns without numbers.
        """
        if self.places is None or not self.frame.dtypes.eq(object).any():  # the cells have types
            return self
        words = self.frame[[name for name in self.frame.columns if name not in texts]]
        columns = without_gap_words(words)
        if self.decimal_comma:
            words = words.assign(**columns)
            columns |= with_decimal_points(words[[name for name in words.columns if name not in names]])
        return replace(self, frame=self.frame.assign(**columns))

    def numbers(self, names: Sequence[str]) -> Any:
        """Return columns side by side in float32, NaN where missing; an error names any other value."""
        columns = [to_numbers(self.frame[name], self.place).astype(np.float32) for name in names]
        return np.column_stack(columns) if columns else np.empty((len(self.frame), 0), np.float32)

    def place(self, row: int) -> str:
        """Return the position of a row, for error messages."""
        return f"{self.path}, row {row + 1}" if self.places is None else f"{self.path}, line {self.places[row]}"


@dataclass(frozen=True, eq=False)
class LabeledTable:
    """Table whose columns have roles: features of any kind, labels, identifiers, texts and pictures.

    ``Y`` (n, q) is NaN where a label was not observed.
    """

    raw: RawTable
    roles: ColumnRoles
    Y: Any
    label_names: Sequence[str]

    @classmethod
    def read(
        cls, raw: RawTable, roles: ColumnRoles, known: Sequence[str] | None = None, *, labeled: bool = True
    ) -> LabeledTable:
        """Return the table with its labels.

        With ``known``, these are the labels, in this order; other tags are ignored. Without ``labeled``, labels are
        not read.
        """
        roles = roles.over(raw.roles)
        raw = raw.typed((roles.tags, *roles.text), (roles.id, roles.image))
        with prefix_errors(raw.path):
            check_columns([str(name) for name in raw.frame.columns], roles)
        if not len(raw.frame):
            raise ValueError(f"{raw.path} has no rows of data")
        if not labeled:
            return cls(raw, roles, np.empty((len(raw.frame), 0)), [])
        if roles.tags is not None:
            names = list(known) if known is not None else _tag_names(raw, roles)
            return cls(raw, roles, tag_matrix(raw, raw.frame[roles.tags], roles, names), names)
        with prefix_errors(raw.path):
            names = [str(name) for name in raw.frame.columns if name not in roles.text]
            if roles.labels is None and known is None:
                raise ValueError(_labels_wanted(raw, roles))
            spec = roles.labels if roles.labels is not None or known is None else list(known)
            chosen = [names[j] for j in label_columns(spec, names)]
        return cls(raw, roles, _labels(raw, chosen), chosen)

    @property
    def features(self) -> Any:
        """Columns that are features, including texts."""
        roles = self.roles
        other = {roles.tags, roles.image, roles.id, *roles.ignore, *(() if roles.tags else self.label_names)}
        return self.raw.frame[[name for name in self.raw.frame.columns if name not in other]]

    def data(self, X: Any, feature_names: Sequence[str] | None) -> MultiLabelData:
        """Return the data with these features, and with the identifiers, texts and pictures of the table."""
        frame, roles, votes, Y = self.raw.frame, self.roles, self.raw.votes, self.Y
        trusted = None
        if self.raw.trusted is not None and self.label_names:
            import pandas as pd

            trusted = tag_matrix(self.raw, pd.Series(self.raw.trusted, dtype=object), roles, self.label_names)
        if votes is not None and (not self.label_names or tuple(votes.label_names) != tuple(self.label_names)):
            votes = None
        shown = [name for name in self.features.columns if name not in roles.text]
        return MultiLabelData(
            X,
            Y,
            feature_names=feature_names,
            label_names=list(self.label_names) or None,
            name=data_name(self.raw.path),
            votes=votes,
            ids=None if roles.id is None else _strings(frame[roles.id]),
            texts=None if not roles.text else _joined(frame, roles.text),
            images=None if roles.image is None else _strings(frame[roles.image]),
            trusted=trusted,
            cells=frame[shown] if 0 < len(shown) <= MAX_DISPLAYED_COLUMNS else None,
        )

    def numeric(self) -> MultiLabelData:
        """Return the data if all features are numbers, with NaN where missing."""
        names = list(self.features.columns)
        X = self.raw.numbers(names)
        return MultiLabelData(X, self.Y, None, names, list(self.label_names), name=data_name(self.raw.path))

    def fit(self) -> tuple[FittedTable, MultiLabelData]:
        """Learn the preprocessing of the features; return it and the data."""
        from ccmn.data.table_preprocessor import TablePreprocessor

        with prefix_errors(self.raw.path):
            features = self.features
            if not features.shape[1]:
                image = self.roles.image
                command = None if image is None else shlex.join(["ccmn", "embed", str(self.raw.path), "--image", image])
                hint = f" Encode the pictures first: {command} --encoder ENCODER --out FILE.parquet" if command else ""
                raise ValueError(f"there are no features in these data.{hint}")
            preprocessor = TablePreprocessor(self.roles.text).fit(features)
            return preprocessor, self.data(preprocessor.transform(features), preprocessor.feature_names_out_)


def tag_matrix(raw: RawTable, cells: Any, roles: ColumnRoles, names: Sequence[str]) -> Any:
    """Return tags as a 0/1 matrix of these labels; a row without a list of tags is not observed (NaN)."""
    with prefix_errors(raw.path):
        check_unpacked_size(4 * len(cells) * max(1, len(names)), unpacked_limit(raw.path))
    place = {name: j for j, name in enumerate(names)}
    Y = np.zeros((len(cells), len(names)), dtype=np.float32)
    for row, cell in enumerate(cells):
        tags = split_tags(cell, roles.separator, raw.tag_names)
        if tags is None:
            Y[row] = np.nan
            continue
        for tag in tags:
            if tag in place:
                Y[row, place[tag]] = 1
    return Y


def split_tags(cell: Any, separator: str, names: Sequence[str] | None = None) -> list[str] | None:
    """Return the tags in a cell, "a;b" or a list; None if there is no list.

    >>> split_tags(" billing; urgent;", ";"), split_tags("", ";"), split_tags(None, ";")
    (['billing', 'urgent'], [], None)
    """
    if cell is None or (isinstance(cell, (float, np.floating)) and np.isnan(cell)):
        return None
    if isinstance(cell, str):
        return [tag for part in cell.split(separator) if (tag := part.strip())]
    if not isinstance(cell, (list, tuple, set, frozenset, np.ndarray)):
        return [category_name(cell)]
    if names is None:
        return [category_name(tag) for tag in cell]
    return [names[int(tag)] if 0 <= int(tag) < len(names) else str(tag) for tag in cell]


def _tag_names(raw: RawTable, roles: ColumnRoles) -> list[str]:
    """Return the names of all tags of a table in sorted order, numbers by size."""
    if raw.tag_names is not None:
        return list(raw.tag_names)
    cells = raw.frame[roles.tags]
    found = {tag for cell in cells for tag in split_tags(cell, roles.separator) or ()}
    if not found:
        raise ValueError(f"{raw.path}: the column of tags {roles.tags!r} contains no tag")
    single = not any(roles.separator in cell for cell in cells if isinstance(cell, str))
    if single and any(isinstance(cell, str) for cell in cells):
        other = next((s for s in ";,|#\t" if s != roles.separator and any(s in tag for tag in found)), None)
        if other is not None:
            raise ValueError(
                f"{raw.path}: no tag in column {roles.tags!r} is separated by {roles.separator!r}, but some contain "
                f"{other!r}; use --sep {other!r}"
            )
    return sorted(found, key=lambda tag: (not tag.isdecimal(), int(tag) if tag.isdecimal() else 0, tag))


def _labels_wanted(raw: RawTable, roles: ColumnRoles) -> str:
    """Return an error message for a table whose labels were not selected, with the likely columns."""
    names = [str(name) for name in raw.frame.columns]
    lists = [
        name
        for name in names
        if name not in roles.text and raw.frame[name].map(lambda cell: _is_list(cell, roles.separator)).any()
    ]
    hint = f" (perhaps --tags {shlex.quote(lists[0])})" if lists else ""
    return (
        "specify which columns are labels: --labels a,b for columns of 0 and 1, or --tags COLUMN for a column of lists "
        f"such as a{roles.separator}b{hint}; the columns are {name_some(names)}"
    )


def _is_list(cell: Any, separator: str) -> bool:
    if isinstance(cell, str):
        return separator in cell and len(cell) < MAX_LIST_CHARACTERS and "\n" not in cell
    return isinstance(cell, (list, tuple, set, frozenset, np.ndarray))


def _labels(raw: RawTable, names: Sequence[str]) -> Any:
    """Return label columns as 0, 1 and NaN."""
    Y = np.hstack([np.empty((len(raw.frame), 0), np.float32), *(_label(raw, name) for name in names)])
    wrong = ~(np.isin(Y, (0, 1)) | np.isnan(Y))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{raw.place(row)}: {Y[row, column]:g} in column {names[column]!r}; a label must be 0, 1 or missing. If a "
            "third value means uncertain, use ccmn.estimation.resolve_uncertain in Python first."
        )
    return Y


def _label(raw: RawTable, name: str) -> Any:
    """Return one label column as numbers; the error for a column of lists names the option for it."""
    try:
        return raw.numbers([name])
    except ValueError as error:
        marks = [mark for mark in TAG_SEPARATORS if any(_is_list(cell, mark) for cell in raw.frame[name])]
        if not marks:
            raise
        option = "" if marks[0] == DEFAULT_SEPARATOR else f" --sep {shlex.quote(marks[0])}"
        raise ValueError(
            f"{error}. If the column lists the labels of a row, use --tags {shlex.quote(name)}{option} instead of "
            f"--labels; if it is text, use --text {shlex.quote(name)}."
        ) from None


def _strings(values: Any) -> list[str]:
    return ["" if missing else category_name(value) for value, missing in zip(values, values.isna())]


def _joined(frame: Any, columns: Sequence[str]) -> list[str]:
    parts = [_strings(frame[name]) for name in columns]
    return ["\n\n".join(part for part in row if part) for row in zip(*parts)]
