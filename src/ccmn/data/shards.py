"""Folders of Parquet shards that may be larger than memory, read in pieces."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._files import PathLike, check_file, check_unpacked_size, prefix_errors, unpacked_limit
from ccmn._pictures import IMAGE_SUFFIXES
from ccmn._validation import check_count, check_label_values
from ccmn.data.column_roles import LabelSpec, check_column_names, label_columns
from ccmn.data.parquet import first_line, open_parquet


@dataclass(frozen=True)
class RowGroup:
    """Row group of a shard: the unit in which shards are shuffled."""

    file: int
    number: int
    rows: int


@dataclass(frozen=True)
class _Column:
    """Column of a shard."""

    name: str
    width: int
    """Number of values per row."""
    kind: str
    """One of "number", "vector" (a fixed-size list) and "numbers" (a list of label numbers)."""


class ShardedData:
    """Multi-label dataset in a folder of Parquet files that may be larger than memory.

    Features are columns of numbers, or vectors (fixed-size lists), which are much faster to read. Labels are columns
    of 0 and 1, one vector column of 0 and 1, or one column of lists of label numbers (sparse labels).
    The constructor reads only the footers of the files.

    Parameters
    ----------
    folder : str or path
        Folder whose ``*.parquet`` files, in the order of their names, are the shards. All have the same columns.
        Subfolders and files whose names begin with a dot or an underscore are ignored.
    labels : list of str, str, int or path, default=None
        Label columns: names, a pattern such as "label_*", a count from the start (14) or the end (-14), or a file
        with the names (``.xml`` or ``.txt``).
    n_labels : int, default=None
        Number of labels; required if a column lists them by number (from 0).

    Attributes
    ----------
    n, d, q : int
        Number of rows, features and labels.
    feature_names, label_names : tuple of str or None
        Names of the columns; None if a column contains vectors or label numbers.
    sparse : bool
        Whether labels are read as sparse matrices.
    files : list of Path
        The shards.
    groups : list of RowGroup
        The row groups of all shards.
    """

    def __init__(self, folder: PathLike, labels: LabelSpec | None = None, *, n_labels: int | None = None) -> None:
        self.folder = Path(folder)
        self.files = _shards(self.folder)
        schema = _open(self.files[0]).schema_arrow
        with prefix_errors(self.files[0]):
            names = [str(name) for name in schema.names]
            check_column_names(names)
            chosen = set(label_columns(labels, names))
            columns = [_column(schema.field(j)) for j in range(len(names))]
            self._labels = [column for j, column in enumerate(columns) if j in chosen]
            self._features = [column for j, column in enumerate(columns) if j not in chosen]
            self._check_kinds()
        self.sparse = self._labels[0].kind == "numbers"
        if self.sparse and n_labels is None:
            raise ValueError(
                f"column {self._labels[0].name!r} lists labels by number: pass the number of labels, n_labels=..."
            )
        self.d = sum(column.width for column in self._features)
        self.q = check_count(n_labels, "n_labels") if self.sparse else sum(column.width for column in self._labels)
        self.feature_names = _names(self._features)
        self.label_names = None if self.sparse else _names(self._labels)
        self.groups = self._find_groups(schema)

    def _check_kinds(self) -> None:
        """Reject combinations of columns that are not features and labels."""
        if not self._features:
            raise ValueError("every column is a label: there are no features")
        listed = [column.name for column in self._features if column.kind == "numbers"]
        if listed:
            raise ValueError(f"column {listed[0]!r} contains lists of varying length, which cannot be features")
        if len(self._labels) > 1 and any(column.kind == "numbers" for column in self._labels):
            raise ValueError("labels must be columns of 0 and 1, or one column that lists label numbers; not both")

    def _find_groups(self, schema: Any) -> list[RowGroup]:
        """Return the row groups of all shards, which must have the same columns."""
        groups = []
        for number, path in enumerate(self.files):
            file = _open(path)
            difference = _difference(schema, file.schema_arrow)
            if difference:
                raise ValueError(
                    f"{path} has other columns than {self.files[0].name} ({difference}); all shards must agree"
                )
            with prefix_errors(path):
                self._check_size(file, unpacked_limit(path))
            groups += [RowGroup(number, g, rows) for g, rows in enumerate(_sizes(file)) if rows]
        if not groups:
            raise ValueError(f"the Parquet files in {self.folder} have no rows")
        return groups

    def _check_size(self, file: Any, limit: int) -> None:
        """Reject a row, or the lists of label numbers of a row group, that take too much memory."""
        check_unpacked_size(self.row_bytes, limit)
        if self.sparse:
            leaf = next(i for i, name in enumerate(_leaves(file)) if name == self._labels[0].name)
            groups = (file.metadata.row_group(g) for g in range(file.metadata.num_row_groups))
            check_unpacked_size(8 * max((group.column(leaf).num_values for group in groups), default=0), limit)

    @property
    def n(self) -> int:
        """Number of rows, according to the footers."""
        return sum(group.rows for group in self.groups)

    @property
    def row_bytes(self) -> int:
        """Bytes per row in memory: features and dense labels in float32."""
        return 4 * (self.d + (0 if self.sparse else self.q)) + 64

    def read(self, group: RowGroup, at_once: int) -> Iterator[tuple[NDArray[np.float32], Any]]:
        """Yield features (m, d) and labels (m, q) of a row group, ``at_once`` rows at a time.

        Labels are an array with NaN for null, or a CSR matrix.
        """
        path = self.files[group.file]
        wanted = [column.name for column in (*self._features, *self._labels)]
        file = _open(path)
        if [group.rows] != _sizes(file)[group.number : group.number + 1]:
            raise ValueError(
                f"{path} has changed since the folder was opened: do not modify shards while they are read"
            )
        batches = file.iter_batches(at_once, row_groups=[group.number], columns=wanted, use_threads=False)
        with prefix_errors(path):
            try:
                for batch in batches:
                    X = _matrix(batch, self._features, self.d)
                    if not np.isfinite(X).all():
                        raise ValueError("a feature is missing or infinite; fill or remove such rows first")
                    yield X, self._read_labels(batch)
            except OSError as error:
                raise ValueError(f"the file is damaged: {first_line(error)}") from None

    def footers(self) -> Iterator[str]:
        """Yield the footer of every shard: columns, offsets, sizes and, if the writer stored them, value ranges."""
        for path in self.files:
            yield repr(_open(path).metadata.to_dict())

    def _read_labels(self, batch: Any) -> Any:
        """Return the labels of a record batch."""
        if not self.sparse:
            dense = _matrix(batch, self._labels, self.q)
            check_label_values(dense, "a label")
            return dense
        lists = batch.column(self._labels[0].name)
        numbers, ends = lists.flatten().to_numpy(), np.cumsum(lists.value_lengths().fill_null(0).to_numpy())
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < self.q):
            raise ValueError(f"label numbers must be between 0 and {self.q - 1}; got {numbers.max()}")
        starts = np.concatenate((np.zeros(1, dtype=np.int64), ends))
        ones = np.ones(numbers.size, dtype=np.float32)
        Y: Any = scipy.sparse.csr_matrix((ones, numbers, starts), shape=(len(batch), self.q))
        Y.sum_duplicates()
        Y.data[:] = 1  # a label that is listed twice counts once
        return Y

    def __repr__(self) -> str:
        """Return folder name and shape."""
        shape = f"n={self.n}, d={self.d}, q={self.q}"
        return f"ShardedData({self.folder.name}: {len(self.files)} files, {len(self.groups)} row groups, {shape})"


def _shards(folder: Path) -> list[Path]:
    """Return the shards in a folder, sorted by name."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    files = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        hint = ""
        if any(path.suffix.lower() in IMAGE_SUFFIXES for path in folder.rglob("*")):
            command = f"ccmn embed {shlex.quote(str(folder))} --encoder ENCODER --out FILE.parquet"
            hint = f". Encode its pictures first: {command}"
        raise FileNotFoundError(f"there are no *.parquet files in {folder} (subfolders are not searched){hint}")
    return files


def _leaves(file: Any) -> list[str]:
    return [file.schema.column(i).path.partition(".")[0] for i in range(file.metadata.num_columns)]


def _sizes(file: Any) -> list[int]:
    return [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]


def _difference(schema: Any, other: Any) -> str:
    """Return the first difference between the columns of two shards; their order may differ."""
    here, there = ({field.name: field.type for field in fields} for fields in (schema, other))
    for name in (*here, *there):
        if here.get(name) != there.get(name):
            given, expected = (str(types.get(name, "absent")) for types in (there, here))
            return f"{name!r} is {given}, not {expected}" if name in here else f"{name!r} is new"
    return ""


def _open(path: Path) -> Any:
    if path.exists():
        check_file(path)
    return open_parquet(path, pre_buffer=False, buffer_size=1 << 16)


def _column(field: Any) -> _Column:
    """Return the description of a column; columns of other types than numbers are rejected."""
    import pyarrow.types as types

    kind = field.type
    inner = kind.value_type if types.is_fixed_size_list(kind) or types.is_list(kind) else kind
    if not (types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)):
        raise ValueError(f"column {field.name!r} contains {kind}, not numbers; encode it as numbers, or remove it")
    if types.is_fixed_size_list(kind):
        return _Column(field.name, int(kind.list_size), "vector")
    return _Column(field.name, 1, "numbers" if types.is_list(kind) else "number")


def _names(columns: Sequence[_Column]) -> tuple[str, ...] | None:
    return None if any(column.kind != "number" for column in columns) else tuple(c.name for c in columns)


def _matrix(batch: Any, columns: Sequence[_Column], width: int) -> NDArray[np.float32]:
    """Return columns side by side in float32, NaN for null."""
    out = np.empty((len(batch), width), dtype=np.float32)
    at = 0
    for column in columns:
        values = batch.column(column.name)
        if column.kind == "vector":
            if values.null_count:
                raise ValueError(f"a vector in column {column.name!r} is missing")
            flat = values.flatten().cast("float32", safe=False).to_numpy(zero_copy_only=False)
            out[:, at : at + column.width] = flat.reshape(-1, column.width)
        else:
            out[:, at] = values.cast("float32", safe=False).to_numpy(zero_copy_only=False)
        at += column.width
    return out
