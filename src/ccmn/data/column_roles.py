"""Roles of the columns of a table, and the check of their names before a table is read.

This module imports neither pandas nor scikit-learn: a misspelled column is reported at once.
"""

from __future__ import annotations

import csv
import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccmn._files import PathLike, check_file, prefix_errors, text_lines

if TYPE_CHECKING:
    from ccmn.data.tables import LabelSpec

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
        given = {name: value for name, value in vars(self).items() if value not in (None, ())}
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
        partial(_check, source, require_columns, names, "--items", [roles.id or votes[0]] if items else []),
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
        from ccmn.data.tables import label_columns

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
