"""A folder of Parquet shards that may be larger than memory: what is in it, and its rows a piece at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._validation import check_count, check_label_values
from ccmn.data.files import PathLike, blame
from ccmn.data.labels import LabelSpec, label_columns
from ccmn.data.tables import check_column_names

_PAGE = 1 << 16
"""Bytes of a column that are read ahead: a row group is never in memory as a whole."""


@dataclass(frozen=True)
class RowGroup:
    """Rows that are read one after another: the unit in which shards are shuffled."""

    file: int
    number: int
    rows: int


@dataclass(frozen=True)
class _Column:
    name: str
    width: int
    """Of a vector; 1 for a number."""
    kind: str
    """"number", "vector" (a fixed-size list), or "numbers" (a list of label numbers)."""


class ShardedData:
    """A multi-label data set in a folder of Parquet files; nothing but their footers is read here.

    Features are columns of numbers or vectors (fixed-size lists, by far quicker to read), labels are columns of 0
    and 1, one vector of them, or one column of lists that name the row's labels by number: then they are sparse.

    Parameters
    ----------
    folder : path
        Its ``*.parquet`` files, in the order of their names, are the shards; all have the same columns. Names that
        begin with a dot or an underscore, as those of unfinished files do, and folders within it are left alone.
    labels : list of names, pattern, count or file
        Which columns are labels; see :data:`ccmn.data.labels.LabelSpec`.
    n_labels : int, optional
        How many labels there are, where a column lists them by number (from 0).
    """

    def __init__(self, folder: PathLike, labels: LabelSpec | None = None, *, n_labels: int | None = None) -> None:
        self.folder = Path(folder)
        self.files = _shards(self.folder)
        schema = _open(self.files[0]).schema_arrow
        with blame(self.files[0]):
            names = [str(name) for name in schema.names]
            check_column_names(names)
            chosen = set(label_columns(labels, names).tolist())
            columns = [_column(schema.field(j)) for j in range(len(names))]
            self._labels = [column for j, column in enumerate(columns) if j in chosen]
            self._features = [column for j, column in enumerate(columns) if j not in chosen]
            self._check_kinds()
        self.sparse = self._labels[0].kind == "numbers"
        if self.sparse and n_labels is None:
            raise ValueError(
                f"column {self._labels[0].name!r} lists labels by number: say how many there are, n_labels=..."
            )
        self.d = sum(column.width for column in self._features)
        self.q = check_count(n_labels, "n_labels") if self.sparse else sum(column.width for column in self._labels)
        self.feature_names = _names(self._features)
        self.label_names = None if self.sparse else _names(self._labels)
        self.groups = self._find_groups(schema)

    def _check_kinds(self) -> None:
        if not self._features:
            raise ValueError("every column is a label: there are no features to learn from")
        listed = [column.name for column in self._features if column.kind == "numbers"]
        if listed:
            raise ValueError(f"column {listed[0]!r} holds lists of varying length, which are no features")
        if len(self._labels) > 1 and any(column.kind == "numbers" for column in self._labels):
            raise ValueError("labels must be columns of 0 and 1, or one column that lists label numbers; not both")

    def _find_groups(self, schema: Any) -> list[RowGroup]:
        found = []
        for number, path in enumerate(self.files):
            file = _open(path)
            other = _difference(schema, file.schema_arrow)
            if other:
                raise ValueError(f"{path} has other columns than {self.files[0].name} ({other}); all shards must agree")
            found += [RowGroup(number, g, rows) for g, rows in enumerate(_sizes(file)) if rows]
        if not found:
            raise ValueError(f"the Parquet files in {self.folder} have no rows")
        return found

    @property
    def n(self) -> int:
        """Number of rows, by the footers."""
        return sum(group.rows for group in self.groups)

    @property
    def row_bytes(self) -> int:
        """Memory of a row: features and, unless they are sparse, labels, in float32."""
        return 4 * (self.d + (0 if self.sparse else self.q)) + 64

    def read(self, group: RowGroup, at_once: int) -> Iterator[tuple[NDArray[np.float32], Any]]:
        """Features (m, d) and labels (m, q), an array with NaN for null or CSR, of ``at_once`` rows at a time."""
        path = self.files[group.file]
        wanted = [column.name for column in (*self._features, *self._labels)]
        file = _open(path)
        if [group.rows] != _sizes(file)[group.number : group.number + 1]:
            raise ValueError(
                f"{path} has changed since the folder was looked through: leave shards alone while they are read"
            )
        batches = file.iter_batches(at_once, row_groups=[group.number], columns=wanted, use_threads=False)
        with blame(path):
            for batch in _whole(batches):
                X = _matrix(batch, self._features, self.d)
                if not np.isfinite(X).all():
                    raise ValueError("a feature is missing or infinite; fill or remove such rows first")
                yield X, self._read_labels(batch)

    def footers(self) -> Iterator[bytes]:
        """The footer of every shard: which columns it has, and where, how large and (if the writer says so) between
        which values their parts are."""
        for path in self.files:
            with path.open("rb") as file:
                # A Parquet file ends with the footer, its size in four bytes, and a mark of four.
                file.seek(-8, os.SEEK_END)
                size = int.from_bytes(file.read(4), "little")
                file.seek(-8 - size, os.SEEK_END)
                yield file.read(size)

    def _read_labels(self, batch: Any) -> Any:
        if not self.sparse:
            Y = _matrix(batch, self._labels, self.q)
            check_label_values(Y, "a label")
            return Y
        lists = batch.column(self._labels[0].name)
        numbers, ends = lists.flatten().to_numpy(), np.cumsum(lists.value_lengths().fill_null(0).to_numpy())
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < self.q):
            raise ValueError(f"label numbers must be between 0 and {self.q - 1}; {numbers.max()} is not")
        starts = np.concatenate((np.zeros(1, dtype=np.int64), ends))
        ones = np.ones(numbers.size, dtype=np.float32)
        return _without_repeats(scipy.sparse.csr_matrix((ones, numbers, starts), shape=(len(batch), self.q)))

    def __repr__(self) -> str:
        shape = f"n={self.n}, d={self.d}, q={self.q}"
        return f"ShardedData({self.folder.name}: {len(self.files)} files, {len(self.groups)} row groups, {shape})"


def _without_repeats(Y: Any) -> Any:
    """A label that is named twice is named."""
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


def _shards(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    files = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        raise FileNotFoundError(f"there are no *.parquet files in {folder} (folders within it are not looked into)")
    return files


def _sizes(file: Any) -> list[int]:
    """Rows of every row group, by the footer."""
    return [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]


def _difference(schema: Any, other: Any) -> str:
    """The first column that is not in both, or not of one type; the order of columns is free."""
    here, there = ({field.name: field.type for field in fields} for fields in (schema, other))
    for name in (*here, *there):
        if here.get(name) != there.get(name):
            given, expected = (str(types.get(name, "absent")) for types in (there, here))
            return f"{name!r} is {given}, not {expected}" if name in here else f"{name!r} is new"
    return ""


def _whole(batches: Iterator[Any]) -> Iterator[Any]:
    """Batches of a file, as long as it can be read."""
    try:
        yield from batches
    except OSError as error:
        raise ValueError(f"the file is damaged: {str(error).splitlines()[0]}") from None


def _open(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("reading Parquet needs pyarrow: pip install 'ccmn[parquet]'") from None
    try:
        return pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=_PAGE)
    except (FileNotFoundError, PermissionError):
        raise  # pyarrow names the file
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a whole Parquet file: {error}") from None


def _column(field: Any) -> _Column:
    import pyarrow.types as types

    kind = field.type
    inner = kind.value_type if types.is_fixed_size_list(kind) or types.is_list(kind) else kind
    if not (types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)):
        raise ValueError(f"column {field.name!r} holds {kind}, not numbers: encode it as numbers, or remove it")
    if types.is_fixed_size_list(kind):
        return _Column(field.name, int(kind.list_size), "vector")
    return _Column(field.name, 1, "numbers" if types.is_list(kind) else "number")


def _names(columns: Sequence[_Column]) -> tuple[str, ...] | None:
    """Names of single columns; the entries of vectors have none."""
    return None if any(column.kind != "number" for column in columns) else tuple(c.name for c in columns)


def _matrix(batch: Any, columns: Sequence[_Column], width: int) -> NDArray[np.float32]:
    """Columns side by side as float32, NaN for null."""
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
