"""Columns of a fitted model, matched with the columns of data files.

Files of plain numbers are matrices of features and labels. Tables with other columns (categories, dates, gaps, tags,
identifiers, several texts) are converted by a :class:`ccmn.data.TablePreprocessor`, which is stored with the model.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ccmn._containers import is_sparse
from ccmn._files import PathLike, data_name, prefix_errors
from ccmn._messages import warn
from ccmn.data.catalog import load_dataset
from ccmn.data.column_roles import ColumnRoles, LabelSpec, name_some
from ccmn.data.dataset import Matrix, MultiLabelData
from ccmn.data.fitted_table import FittedTable
from ccmn.data.formats import FORMATS, format_suffix, is_table, read_table
from ccmn.data.labeled_table import LabeledTable
from ccmn.data.vote_files import majority, read_votes

MIN_ROWS_FOR_NUMBERS = 20
"""Fewer consecutive numbers can be a feature by chance."""


@dataclass(frozen=True)
class Columns:
    """Feature and label columns of the data that a model was fitted on.

    If names are known, columns of other files are matched by name in any order, else by position. ``table`` makes the
    features of a table with other columns than numbers: ``n_features`` counts them. ``roles`` are the columns of tags,
    texts, pictures and identifiers.
    """

    n_features: int
    n_labels: int
    feature_names: Sequence[str] | None = None
    label_names: Sequence[str] | None = None
    table: FittedTable | None = None
    roles: ColumnRoles = field(default_factory=ColumnRoles)

    @classmethod
    def from_training_data(
        cls,
        source: PathLike,
        *,
        roles: ColumnRoles | None = None,
        data_dir: PathLike | None = None,
        votes: Sequence[str] | None = None,
        items: PathLike | None = None,
    ) -> tuple[Columns, MultiLabelData]:
        """Read training data; return their columns, and the data with all columns converted to features.

        ``votes`` names the columns of a long table of votes, and ``items`` the file of their items, as in
        :func:`ccmn.data.vote_files.read_votes`. Votes may have no features.
        """
        roles = roles or ColumnRoles()
        if votes is not None:
            return cls._from_votes(source, roles, votes, items)
        data = _numeric(source, roles, data_dir)
        if data is None or (is_table(source) and np.isnan(data.X).any()):
            table = LabeledTable.read(read_table(source), roles)
            preprocessor, data = table.fit()
            columns = cls(data.d, data.q, None, data.label_names, table=preprocessor, roles=table.roles)
            _warn_of_row_numbers(source, table.features)
        else:
            columns = cls(data.d, data.q, data.feature_names, data.label_names)
            if data.feature_names is not None and not is_sparse(data.X):
                _warn_of_row_numbers(source, dict(zip(data.feature_names, data.X.T)))
        with prefix_errors(source):
            _check_no_missing(data.X, data.feature_names)
            if not (data.q and data.d):
                raise ValueError(f"there are no {'features' if data.q else 'labels'} in these data")
        return columns, data

    @classmethod
    def _from_votes(
        cls, source: PathLike, roles: ColumnRoles, votes: Sequence[str], items: PathLike | None
    ) -> tuple[Columns, MultiLabelData]:
        """Read a long table of votes and the features of its items, if there are any."""
        if roles.labels is not None or roles.tags is not None:
            raise ValueError("Expected either label columns or votes, not both (--labels and --votes)")
        voted, table = read_votes(source, votes, roles, items)
        preprocessor: FittedTable | None = None
        if table.features.shape[1]:
            preprocessor, data = table.fit()
        else:
            data = table.data(np.empty((voted.shape[0], 0), dtype=np.float32), [])
        data = replace(
            data,
            Y=majority(voted),
            label_names=voted.label_names,
            votes=voted,
            trusted=None,
            name=data_name(Path(source)),
        )
        roles = replace(table.roles, labels=None, tags=None)
        return cls(data.d, data.q, None, data.label_names, table=preprocessor, roles=roles), data

    def read_rows(
        self, source: PathLike, *, roles: ColumnRoles | None = None, data_dir: PathLike | None = None
    ) -> MultiLabelData:
        """Read rows to predict from a file or a dataset of the catalog; labels are ignored."""
        return self._read(source, roles or ColumnRoles(), data_dir, labeled=False)

    def read_labeled(
        self, source: PathLike, *, roles: ColumnRoles | None = None, data_dir: PathLike | None = None
    ) -> MultiLabelData:
        """Read features and labels; by default, the label columns have the names in the model."""
        return self._read(source, roles or ColumnRoles(), data_dir, labeled=True)

    def _read(
        self, source: PathLike, roles: ColumnRoles, data_dir: PathLike | None, *, labeled: bool
    ) -> MultiLabelData:
        """Read the columns of the model from a matrix of numbers, or from a table with any other columns."""
        plain = self.table is None and roles.is_plain
        if is_table(source):
            return self._read_table(source, roles, plain=plain, labeled=labeled)
        if not plain:
            raise ValueError(f"{source}: the model was fitted on a table; expected a CSV, Parquet or JSON file")
        data = load_dataset(source, labels=self._labels(source, roles.labels, labeled), data_dir=data_dir)
        if labeled:
            data = self._with_labels(data, source)
        else:
            data = replace(data, Y=np.empty((data.n, 0)), candidates=None, label_names=None, trusted=None)
        return self._with_features(data, source)

    def _read_table(self, source: PathLike, roles: ColumnRoles, *, plain: bool, labeled: bool) -> MultiLabelData:
        """Read the features of the model, and the labels with ``labeled``, from a table with any other columns."""
        raw = read_table(source, plain=plain)
        own = replace(self.roles, ignore=())
        if not labeled and own.tags is not None and own.tags not in raw.frame:
            own = replace(own, tags=None)
        missing: dict[str, Any] = {name: None for name in ("id", "image") if getattr(own, name) not in raw.frame}
        roles = replace(roles, ignore=(), text=()).over(replace(own, **missing))
        raw = replace(raw, roles=ColumnRoles()) if roles.tags or roles.labels or not labeled else raw
        table = LabeledTable.read(raw, roles, self.label_names, labeled=labeled)
        if self.table is not None:
            with prefix_errors(source):
                X = self.table.transform(table.raw.frame)
            return self._with_labels(table.data(X, self.table.feature_names_out_), source)
        known = self.feature_names
        names = [name for name in table.features.columns if known is None or name in known]
        data = table.data(table.raw.numbers(names), names)
        return self._with_features(self._with_labels(data, source) if labeled else data, source)

    def _labels(self, source: PathLike, labels: LabelSpec | None, labeled: bool) -> LabelSpec | None:
        """Return the selection of labels as given, or the labels of the model; without ``labeled``, none."""
        suffix = format_suffix(source)
        if labels is not None or suffix not in FORMATS or FORMATS[suffix].labels == "apart":
            return labels
        if not labeled:
            return [] if FORMATS[suffix].labels == "columns" else None
        if self.label_names is not None:
            return list(self.label_names)
        return self.n_labels if FORMATS[suffix].labels == "lines" else None

    def _with_features(self, data: MultiLabelData, source: PathLike) -> MultiLabelData:
        """Return the data with the features of the model, in its order."""
        with prefix_errors(source):
            if self.feature_names is not None and data.feature_names is not None:
                X = data.X[:, _places(self.feature_names, data.feature_names, "feature")]
            else:
                X = self._by_position(data, source)
            _check_no_missing(X, self.feature_names)
        return replace(data, X=X, feature_names=self.feature_names)

    def _by_position(self, data: MultiLabelData, source: PathLike) -> Matrix:
        """Return the features of a file that cannot be matched by name."""
        X, names = data.X, data.feature_names
        if names is not None and self.label_names is not None:
            X = X[:, np.flatnonzero(~np.isin(names, list(self.label_names)))]
        # LIBSVM text does not store the number of features: a part of a dataset may lack the last ones.
        suffix = format_suffix(source)
        if suffix in FORMATS and FORMATS[suffix].labels == "lines" and X.shape[1] < self.n_features:
            X = scipy.sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], self.n_features))
        if X.shape[1] != self.n_features:
            raise ValueError(f"the model was fitted on {self.n_features} features; got {X.shape[1]}")
        return X

    def _with_labels(self, data: MultiLabelData, source: PathLike) -> MultiLabelData:
        """Return the data with the labels of the model, in its order."""
        with prefix_errors(source):
            if self.label_names is not None and data.label_names is not None:
                places = _places(self.label_names, data.label_names, "label")
                candidates = None if data.candidates is None else data.candidates[:, places]
                return replace(data, Y=data.Y[:, places], candidates=candidates, label_names=self.label_names)
            if not data.q and self.table is not None:
                return data
            if data.q != self.n_labels:
                raise ValueError(f"the model was fitted on {self.n_labels} labels; got {data.q}")
        return replace(data, label_names=self.label_names)


def read_numbers(source: PathLike, roles: ColumnRoles, data_dir: PathLike | None) -> MultiLabelData:
    """Return data as they are if their features are numbers, with gaps; other tables are converted as for a fit."""
    data = _numeric(source, roles, data_dir)
    return Columns.from_training_data(source, roles=roles, data_dir=data_dir)[1] if data is None else data


def _numeric(source: PathLike, roles: ColumnRoles, data_dir: PathLike | None) -> MultiLabelData | None:
    """Return data whose features are numbers, perhaps with gaps; None for other tables."""
    if not is_table(source):
        if not roles.is_plain:
            raise ValueError(
                f"{source}: --tags, --text, --image, --id and --ignore require a table (CSV, Parquet, JSON)"
            )
        return load_dataset(source, labels=roles.labels, data_dir=data_dir)
    if not (roles.is_plain and FORMATS[format_suffix(source)].numeric):
        return None
    table = LabeledTable.read(read_table(source, plain=True), roles)
    try:
        return table.numeric() if table.roles.is_plain else None
    except ValueError:  # other features than numbers
        return None


def _warn_of_row_numbers(source: PathLike, columns: Any) -> None:
    """Warn of features that number the rows, which are usually identifiers; ``columns`` maps names to values."""
    for name, values in columns.items():
        if _numbers_rows(values):
            warn(
                f"{source}: column {name!r} numbers the rows and is used as a feature. Use --id or --ignore "
                f"{shlex.quote(str(name))} if it is not."
            )


def _numbers_rows(values: Any) -> bool:
    """Return whether a column contains consecutive numbers."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # words or gaps
        return False
    return len(numbers) >= MIN_ROWS_FOR_NUMBERS and bool((np.diff(numbers) == 1).all())


def _places(wanted: Sequence[str], names: Sequence[str], what: str) -> list[int]:
    """Return the positions of named columns."""
    places = {name: place for place, name in enumerate(names)}
    missing = [name for name in wanted if name not in places]
    if missing:
        raise ValueError(
            f"the model was fitted on {len(wanted)} {what}s, of which {len(missing)} are missing: {name_some(missing)}"
        )
    return [places[name] for name in wanted]


def _check_no_missing(X: Any, names: Sequence[str] | None) -> None:
    """Reject features (array or CSR) with missing values (NaN)."""
    coo = X.tocoo() if hasattr(X, "tocoo") else None
    rows, columns = np.nonzero(np.isnan(X)) if coo is None else (c[np.isnan(coo.data)] for c in coo.coords)
    if len(rows):
        name = repr(names[columns[0]]) if names else str(columns[0])
        raise ValueError(
            f"{len(rows)} feature values are missing, first in row {rows[0]} (from 0), column {name}: impute them "
            "(for example with the column mean), or remove these rows or columns"
        )
