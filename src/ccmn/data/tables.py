"""Tables of named columns, and the selection of label columns: what CSV, Parquet and ARFF readers share."""

from __future__ import annotations

import difflib
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ccmn._containers import is_sparse
from ccmn._files import PathLike, check_file, check_unpacked_size, data_name, prefix_errors, text_lines, unpacked_limit
from ccmn.data.dataset import Matrix, MultiLabelData, first_infinite

LabelSpec = int | PathLike | Sequence[str]
"""Selection of the label columns of a file:

- a list of names, ``["sea", "sky"]``; the empty list selects none (rows to predict);
- a pattern with ``*``, ``"label_*"``; a string without ``*`` is a single name;
- a number of columns from the start, ``14``, or from the end, ``-14``;
- a file with the names: a Mulan ``.xml`` file, or a ``.txt`` file with one name per line.

Labels keep the order of the columns in the file, whatever the order of the selection.
"""


_ROWS_PER_BLOCK = 10_000
"""Dense rows are collected in blocks of this size."""


@dataclass(frozen=True)
class Table:
    """Table of numbers with named columns, before features and labels are separated."""

    path: Path
    names: Sequence[str]
    values: Matrix
    lines: Sequence[int]
    """Line (or row) number in the file of every row, for error messages."""
    unit: str = "line"

    def split(self, label_columns: NDArray[np.intp]) -> MultiLabelData:
        """Return the table as a dataset; features and labels keep the order of the columns."""
        if not len(self.lines):
            raise ValueError(f"{self.path} has no rows of data")
        features = np.setdiff1d(np.arange(len(self.names)), label_columns)
        self.require(label_columns, (0, 1), "a label must be 0, 1 or missing")
        X = self.values[:, features]
        place = first_infinite(X)
        if place is not None:
            name = self.names[features[place[1]]]
            raise ValueError(f"{self._place(place[0])}: infinite (or too large) value in column {name!r}")
        Y = self.values[:, label_columns]
        if is_sparse(Y):
            with prefix_errors(self.path):
                check_unpacked_size(Y.shape[0] * Y.shape[1] * Y.dtype.itemsize, unpacked_limit(self.path))
            Y = Y.toarray()
        return MultiLabelData(
            X=X,
            Y=Y,
            feature_names=[self.names[j] for j in features],
            label_names=[self.names[j] for j in label_columns],
            name=data_name(self.path),
        )

    def require(self, columns: NDArray[np.intp], allowed: Sequence[float], rule: str) -> None:
        """Reject values other than the allowed ones and NaN in some columns; the error names the first."""
        part = self.values[:, columns]
        # An omitted value of a sparse row is 0; the ARFF reader checks that 0 is allowed.
        values = part.data if is_sparse(part) else part
        wrong = ~(np.isin(values, np.array(allowed, dtype=np.float32)) | np.isnan(values))
        if wrong.any():
            rows, places = part.tocoo().coords if is_sparse(part) else np.indices(part.shape)
            first = np.argmin(rows[wrong])
            row, column, value = rows[wrong][first], columns[places[wrong][first]], values[wrong][first]
            raise ValueError(f"{self._place(row)}: {value:g} in column {self.names[column]!r}; {rule}")

    def by_column(self) -> Table:
        """Return the same table with columns that can be selected without reading the whole of it."""
        return replace(self, values=self.values.tocsc()) if is_sparse(self.values) else self

    def _place(self, row: int) -> str:
        return f"{self.path}, {self.unit} {self.lines[row]}"


def check_column_names(names: Sequence[str]) -> None:
    """Reject duplicate names, empty names and the index column of a DataFrame."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    index = [name for name in names if name == "" or name.startswith(("Unnamed: ", "__index_level_"))]
    if index:
        raise ValueError(
            f"column {names.index(index[0]) + 1} is named {index[0]!r}: it has no name, or it is the index of a "
            "DataFrame and not a feature. Name it or remove it (pandas: write with index=False)."
        )
    if repeated:
        others = f" (and {len(repeated) - 1} others)" if len(repeated) > 1 else ""
        raise ValueError(
            f"the column name {repeated[0]!r} occurs more than once{others}; column names must be unique "
            "(is the header line missing?)"
        )


def check_width(cells: Sequence[str], width: int) -> None:
    """Reject a row that does not have one value per column."""
    if len(cells) != width:
        raise ValueError(f"{len(cells)} values, but there are {width} columns")


NO_WORDS: Mapping[str, float] = {}
"""The default of ``words``: only numbers are accepted."""


def parse_cells(
    cells: Sequence[str], names: Sequence[str], missing: str, words: Mapping[str, float] = NO_WORDS
) -> NDArray[np.float32]:
    """Return a dense row of numbers.

    ``missing`` is the text of a missing value and ``words`` maps accepted words to numbers.
    """
    check_width(cells, len(names))
    with np.errstate(over="ignore"):  # values beyond float32 become infinite; Table.split rejects them
        try:
            if "_" in "".join(cells):
                raise ValueError("not a plain number")  # see parse_number
            return np.fromiter(map(float, cells), np.float32, len(cells))
        except ValueError:
            parsed = (parse_cell(cell, name, missing, words) for cell, name in zip(cells, names))
            return np.fromiter(parsed, np.float32, len(cells))


def parse_cell(cell: str, name: str, missing: str, words: Mapping[str, float] = NO_WORDS) -> float:
    """Return one number, or NaN for a missing value."""
    bare = cell.strip()
    if bare == missing:
        return np.nan
    if bare.lower() in words:
        return words[bare.lower()]
    try:
        return parse_number(cell)
    except ValueError:
        absent = f"{missing!r} if missing" if missing else "empty if missing"
        known = "".join(f", {word}" for word in words)
        raise ValueError(
            f"{cell[:40]!r} in column {name!r} is not a number. Features must be numbers and labels 0 or 1{known} "
            f"({absent}). The commands of ccmn and, in Python, ccmn.data.TablePreprocessor convert tables with other "
            "columns: texts, categories, dates and identifiers."
        ) from None


def parse_number(text: str) -> float:
    """Return the number in a text; ``1_000``, which Python accepts, is rejected.

    >>> parse_number("1_0")
    Traceback (most recent call last):
    ValueError: could not convert string to float: '1_0'
    """
    if "_" in text:
        raise ValueError(f"could not convert string to float: {text[:40]!r}")
    return float(text)


class DenseRows:
    """Compact list of dense rows, converted to an array at the end."""

    def __init__(self, width: int) -> None:
        self._blocks = [np.empty((0, width), np.float32)]
        self._rows: list[NDArray[np.float32]] = []

    def append(self, row: NDArray[np.float32]) -> None:
        """Add a row; full blocks are stored as one array, which takes much less memory than its rows."""
        self._rows.append(row)
        if len(self._rows) == _ROWS_PER_BLOCK:
            self._blocks.append(np.stack(self._rows))
            self._rows.clear()

    def to_array(self) -> NDArray[np.float32]:
        """Return the rows as one array."""
        return np.concatenate([*self._blocks, np.stack(self._rows)] if self._rows else self._blocks)


class SparseRows:
    """Compact list of sparse rows, converted to a CSR matrix at the end."""

    def __init__(self) -> None:
        self._columns = array("q")
        self._values = array("d")
        self._ends = array("q", [0])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._ends) - 1

    def append(self, columns: Sequence[int], values: Sequence[float]) -> None:
        """Add a row; its columns may have any order but must be distinct."""
        if len(set(columns)) < len(columns):
            repeated = next(column for column, count in Counter(columns).items() if count > 1)
            raise ValueError(f"column {repeated} (from 0) is given twice in one row")
        self._columns.extend(columns)
        self._values.extend(values)
        self._ends.append(len(self._columns))

    def to_csr(self, width: int) -> Any:
        """Return the rows as a float32 CSR array with ``width`` columns."""
        with np.errstate(over="ignore"):
            values = np.array(self._values, dtype=np.float32)
        columns, ends = np.array(self._columns, dtype=np.int32), np.array(self._ends, dtype=np.int64)
        matrix = scipy.sparse.csr_array((values, columns, ends), shape=(len(self), width))
        matrix.sort_indices()
        return matrix


def label_columns(labels: LabelSpec | None, names: Sequence[str]) -> NDArray[np.intp]:
    """Return the ascending indices of the label columns.

    >>> label_columns("label_*", ["age", "label_sea", "label_sky"])
    array([1, 2])
    >>> label_columns(-1, ["age", "sea"])
    array([1])
    """
    if labels is None:
        raise ValueError(
            "specify which columns are labels (parameter labels): column names, a pattern such as 'label_*', a count "
            "(-14: the last 14), or a file with the names (.xml or .txt)"
        )
    if isinstance(labels, (int, np.integer)):
        if isinstance(labels, bool) or labels == 0 or abs(labels) > len(names):
            raise ValueError(
                f"labels={labels!r} must count columns from the start (14) or from the end (-14); there are "
                f"{len(names)} columns"
            )
        return np.arange(labels) if labels > 0 else np.arange(len(names) + labels, len(names))
    if isinstance(labels, str) and Path(labels).suffix.lower() not in _NAME_READERS:
        if "*" not in labels:
            return _named_columns([labels], names)
        matching = np.flatnonzero([fnmatchcase(name, labels) for name in names])
        if not matching.size:
            raise ValueError(f"no column matches labels={labels!r}; the columns are {_name_some(names)}")
        return matching
    return _named_columns(label_names(labels), names)


def text_column(name: str, names: Sequence[str]) -> int:
    """Return the index of the text column ``name``."""
    if name not in names:
        raise ValueError(f"there is no text column {name!r}; {_name_hint(name, names)}")
    return names.index(name)


def label_names(labels: PathLike | Sequence[str]) -> list[str]:
    """Return label names given as a list, or as a file with the names."""
    if isinstance(labels, (str, os.PathLike)):
        reader = _NAME_READERS.get(Path(labels).suffix.lower())
        if reader is None:
            raise ValueError(f"a file of label names ends in .xml (Mulan) or .txt (one name per line); got {labels}")
        return reader(labels)
    if not isinstance(labels, Iterable):
        raise ValueError(f"labels must be names, a pattern, a count or a file; got {labels!r}")
    given = [str(name) for name in labels]
    _check_unique(given, "labels")
    return given


def read_label_list(path: PathLike) -> list[str]:
    """Return the names in a text file with one name per line; blank lines at the end are ignored."""
    path = check_file(path)
    names = [name.strip() for name in "".join(text_lines(path)).rstrip().split("\n")]
    if "" in names:
        raise ValueError(f"{path}, line {names.index('') + 1} is blank; expected one label name per line")
    _check_unique(names, path)
    return names


def read_label_xml(path: PathLike) -> list[str]:
    """Return the names in a Mulan XML file, ``<labels><label name="sea"/>...</labels>``, including nested labels.

    A document type declaration is rejected, so that no entity is expanded and no other file is opened.
    """
    path = check_file(path)
    names: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def on_element(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition(" ")[2] == "label":
            if not attributes.get("name"):
                raise ValueError(f"{path}, line {parser.CurrentLineNumber}: this label has no name")
            names.append(attributes["name"])

    def on_doctype(*_: object) -> None:
        raise ValueError(f"{path} declares a document type, which a list of labels does not need; remove it")

    parser.StartElementHandler = on_element
    parser.StartDoctypeDeclHandler = on_doctype
    try:
        parser.Parse(path.read_bytes(), True)
    except expat.ExpatError as error:
        raise ValueError(f"{path}, line {error.lineno}: not valid XML ({expat.ErrorString(error.code)})") from None
    except LookupError as error:
        raise ValueError(f"{path}, line 1: not valid XML ({error})") from None
    if not names:
        raise ValueError(f'{path} contains no label name; expected <labels><label name="..."/>...</labels>')
    _check_unique(names, path)
    return names


_NAME_READERS = {".xml": read_label_xml, ".txt": read_label_list}


def _named_columns(wanted: Sequence[str], names: Sequence[str]) -> NDArray[np.intp]:
    """Return the ascending indices of the columns with these names."""
    places = {name: place for place, name in enumerate(names)}
    unknown = [name for name in wanted if name not in places]
    if unknown:
        found = "there is no label column" if len(unknown) == 1 else "there are no label columns"
        raise ValueError(f"{found} {_name_some(unknown)}; {_name_hint(unknown[0], names)}")
    return np.array(sorted(places[name] for name in wanted), dtype=np.intp)


def _check_unique(names: Iterable[str], place: object) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{place}: {_name_some(repeated)} occurs more than once; label names must be unique")


def _name_hint(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the columns are {_name_some(names)}"


def _name_some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
