"""Names and roles of the columns of a table, the selection of label columns, and their check before a table is read.

This module imports no large library: a misspelled column is reported at once.
"""

from __future__ import annotations

import csv
import difflib
import itertools
import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, SupportsIndex
from xml.parsers import expat

from ccmn._files import PathLike, check_file, prefix_errors, text_lines

LabelSpec = int | PathLike | Sequence[str]
"""Selection of the label columns of a file:

- a list of names, ``["sea", "sky"]``; the empty list selects none (rows to predict);
- a pattern with ``*``, ``"label_*"``; a string without ``*`` is a single name;
- a number of columns from the start, ``14``, or from the end, ``-14``;
- a file with the names: a Mulan ``.xml`` file, or a ``.txt`` file with one name per line.

Labels keep the order of the columns in the file, whatever the order of the selection.
"""

DEFAULT_SEPARATOR = ";"
"""Separator of the tags in a cell."""
SEPARATORS = (",", ";", "\t")
"""Separators of columns; spreadsheets of many countries write semicolons."""
MAX_NAMES = 5
"""Number of names in an error message."""


@dataclass(frozen=True)
class ColumnRoles:
    """Columns of a table that are not plain features.

    ``labels`` selects label columns with 0, 1 or nothing: names, a pattern, a count, or a file of names. ``tags`` is a
    column that lists the labels of a row, as "a;b" or as a list, ``image`` one of names of picture files, ``id`` one of
    identifiers; ``text`` and ``ignore`` are several columns.
    """

    labels: LabelSpec | None = None
    tags: str | None = None
    separator: str = DEFAULT_SEPARATOR
    text: tuple[str, ...] = ()
    image: str | None = None
    id: str | None = None
    ignore: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether only label columns are selected."""
        return not (self.tags or self.text or self.image or self.id or self.ignore)

    def over(self, defaults: ColumnRoles) -> ColumnRoles:
        """Return these roles, completed with those that a file or a model declares."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        given = {name: value for name, value in given.items() if name == "labels" or value != ()}
        if "labels" in given and "tags" not in given:
            defaults = replace(defaults, tags=None)
        if "tags" not in given and self.separator == DEFAULT_SEPARATOR:
            given.pop("separator")
        return replace(defaults, **given)

    def to_dict(self) -> dict[str, Any]:
        """Return the roles that a model stores; its labels are stored apart."""
        return {
            "tags": self.tags,
            "separator": self.separator,
            "text": list(self.text),
            "image": self.image,
            "id": self.id,
        }

    @classmethod
    def from_dict(cls, d: Any) -> ColumnRoles:
        """Return the roles described by ``to_dict``."""
        try:
            one: dict[str, Any] = {name: None if d[name] is None else str(d[name]) for name in ("tags", "image", "id")}
            return cls(separator=str(d["separator"]), text=tuple(str(name) for name in d["text"]), **one)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a description of columns: {error}") from None


def table_checks(path: PathLike, roles: ColumnRoles) -> list[Callable[[], None]]:
    """Return checks of the columns that the roles name, if the format is a CSV or Parquet file."""
    names = _column_names(check_file(path))
    return [partial(_check, path, check, names, roles) for check in (check_columns, _check_labels)]


def vote_checks(
    path: PathLike, votes: Sequence[str], roles: ColumnRoles, items: PathLike | None = None
) -> list[Callable[[], None]]:
    """Return checks of the columns of a table of votes, and of the table of its items."""
    source = path if items is None else items
    names = _column_names(check_file(source))
    return [
        partial(_check, path, require_columns, _column_names(check_file(path)), "--votes", votes),
        partial(_check, source, require_columns, names, "--items", [votes[0]] if items and not roles.id else []),
        partial(_check, source, check_columns, names, roles),
    ]


def _check(path: PathLike, check: Callable[..., None], *arguments: Any) -> None:
    with prefix_errors(path):
        check(*arguments)


def check_columns(names: Sequence[str] | None, roles: ColumnRoles) -> None:
    """Reject roles of columns that a table does not have."""
    if roles.tags is not None and roles.labels is not None:
        raise ValueError("Expected either label columns or a column of tags, not both (--labels and --tags)")
    for option, name in (("--tags", roles.tags), ("--image", roles.image), ("--id", roles.id)):
        require_columns(names, option, () if name is None else (name,))
    require_columns(names, "--text", roles.text)
    require_columns(names, "--ignore", roles.ignore)


def _check_labels(names: Sequence[str] | None, roles: ColumnRoles) -> None:
    if names is not None and roles.labels is not None and roles.tags is None:
        label_columns(roles.labels, names)


def require_columns(names: Sequence[str] | None, option: str, wanted: Sequence[str]) -> None:
    """Reject columns that a table does not have; without ``names``, they are not known yet."""
    for column in wanted:
        if names is not None and column not in names:
            raise ValueError(f"there is no column {column!r} ({option}); {name_hint(column, names)}")


def name_hint(name: str, names: Sequence[str]) -> str:
    """Return a question that names a similar column, or else some columns."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the columns are {name_some(names)}"


def name_some(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(repr(name) for name in names[:MAX_NAMES])
    return shown + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def _column_names(path: Path) -> list[str] | None:
    """Return the names in the header of a CSV or Parquet file; None for other formats."""
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind in (".parquet", ".pq"):
        with suppress(Exception):  # a missing package or a damaged file is reported when the file is read
            import pyarrow.parquet

            return [str(name) for name in pyarrow.parquet.read_schema(path).names]
    if kind != ".csv":
        return None
    _, names = next(csv_records(path), (0, []))
    return [name.strip() for name in names]


def csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of every record; blank lines are skipped."""
    lines = text_lines(path)
    first = next((line for line in lines if line.strip()), "")
    reader = csv.reader(itertools.chain([first], lines), delimiter=csv_separator(first), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        remedy = (
            ". Close its quotation marks; longer texts can be read from Parquet files" if "limit" in str(error) else ""
        )
        raise ValueError(f"{path}, line {reader.line_num}: not a valid CSV row ({error}{remedy})") from None


def csv_separator(header: str) -> str:
    """Return the separator of the columns: a semicolon or tab if the line of names has no comma.

    >>> csv_separator("sea;sky"), csv_separator("sea,sky;sun"), csv_separator("sea")
    (';', ',', ',')
    """
    outside = re.sub(r'"[^"]*"', "", header)
    return next((separator for separator in SEPARATORS if separator in outside), ",")


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


def label_columns(labels: LabelSpec | None, names: Sequence[str]) -> list[int]:
    """Return the ascending indices of the label columns.

    >>> label_columns("label_*", ["age", "label_sea", "label_sky"])
    [1, 2]
    >>> label_columns(-1, ["age", "sea"])
    [1]
    """
    if labels is None:
        raise ValueError(
            "specify which columns are labels (parameter labels): column names, a pattern such as 'label_*', a count "
            "(-14: the last 14), or a file with the names (.xml or .txt)"
        )
    if isinstance(labels, SupportsIndex):
        count = operator.index(labels)
        if isinstance(labels, bool) or count == 0 or abs(count) > len(names):
            raise ValueError(
                f"labels={labels!r} must count columns from the start (14) or from the end (-14); there are "
                f"{len(names)} columns"
            )
        return list(range(len(names))[:count] if count > 0 else range(len(names))[count:])
    if isinstance(labels, str) and Path(labels).suffix.lower() not in _NAME_READERS:
        if "*" not in labels:
            return _named_columns([labels], names)
        matching = [place for place, name in enumerate(names) if fnmatchcase(name, labels)]
        if not matching:
            raise ValueError(f"no column matches labels={labels!r}; the columns are {name_some(names)}")
        return matching
    return _named_columns(label_names(labels), names)


def label_names(labels: PathLike | Sequence[str]) -> list[str]:
    """Return label names given as a list, or as a file with the names."""
    if isinstance(labels, (str, os.PathLike)):
        reader = _NAME_READERS.get(Path(labels).suffix.lower())
        if reader is None:
            raise ValueError(f"a file of label names ends in .xml (Mulan) or .txt (one name per line); got {labels}")
        names, place = reader(check_file(labels)), str(labels)
    elif isinstance(labels, Iterable):
        names, place = [str(name) for name in labels], "labels"
    else:
        raise ValueError(f"labels must be names, a pattern, a count or a file; got {labels!r}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{place}: {name_some(repeated)} occurs more than once; label names must be unique")
    return names


def _read_list(path: Path) -> list[str]:
    names = [name.strip() for name in "".join(text_lines(path)).rstrip().split("\n")]
    if "" in names:
        raise ValueError(f"{path}, line {names.index('') + 1} is blank; expected one label name per line")
    return names


def _read_xml(path: Path) -> list[str]:
    """Return the names in a Mulan XML file, ``<labels><label name="sea"/>...</labels>``, including nested labels.

    A document type declaration is rejected, so that no entity is expanded and no other file is opened.
    """
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
    except (expat.ExpatError, LookupError) as error:
        raise ValueError(f"{path}, line {getattr(error, 'lineno', 1)}: not valid XML ({error})") from None
    if not names:
        raise ValueError(f'{path} contains no label name; expected <labels><label name="..."/>...</labels>')
    return names


_NAME_READERS = {".xml": _read_xml, ".txt": _read_list}


def _named_columns(wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the ascending indices of the columns with these names."""
    known, chosen = set(names), set(wanted)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        found = "there is no label column" if len(unknown) == 1 else "there are no label columns"
        raise ValueError(f"{found} {name_some(unknown)}; {name_hint(unknown[0], names)}")
    return [place for place, name in enumerate(names) if name in chosen]
