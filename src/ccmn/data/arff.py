"""ARFF: Mulan files with their XML, and Meka files with ``-C`` in the relation; dense and sparse.

A header of ``@relation``, ``@attribute`` and ``@data`` lines, then a row per line: ``0.5,1,0``, or sparse
``{0 0.5, 1 1}`` with attributes numbered from 0. ``?`` is a missing value, ``%`` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccmn.data.files import PathLike, blame, check_file, data_name, text_lines
from ccmn.data.labels import LabelSpec, label_columns
from ccmn.data.multilabel import MultiLabelData
from ccmn.data.tables import SparseRows, Table, check_column_names, parse_cell, parse_cells

Lines = Iterator[tuple[int, str]]

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_RELATION = re.compile(rf"@relation\s+({_QUOTED}|[^%]*)", re.IGNORECASE)
_ATTRIBUTE = re.compile(rf"""@attribute\s+({_QUOTED}|(?!['"])[^\s{{]+)\s*(.*)""", re.IGNORECASE)
_LABEL_COUNT = re.compile(r"(?:^|[\s:])-C\s+(-?\d+)(?=\s|$)")
_NUMERIC = ("numeric", "real", "integer")


class Attribute(NamedTuple):
    """A column: its name, the line that declares it, and the numbers it may take (None: any)."""

    name: str
    line: int
    values: tuple[float, ...] | None


@dataclass
class Header:
    """What stands before ``@data``."""

    relation: str = ""
    attributes: list[Attribute] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of the attributes."""
        return [attribute.name for attribute in self.attributes]


def read_arff(path: PathLike, labels: LabelSpec | None = None) -> MultiLabelData:
    """Read an ARFF file, compressed (.gz) or not; sparse rows give a sparse ``X``.

    Parameters
    ----------
    path : path
        Attributes are numeric, or nominal with numbers for values, such as {0,1}.
    labels : file, list of names, pattern or count, optional
        Which attributes are labels, see :data:`ccmn.data.labels.LabelSpec`: for Mulan files the XML beside them.
        Meka files say it themselves: ``-C 6`` in the relation, the first 6 attributes, ``-C -6``, the last 6.
        The labels keep the order of the attributes, which is not always that of the XML.
    """
    path = check_file(path)
    lines = enumerate(text_lines(path), start=1)
    header = _read_header(lines, path)
    with blame(path):
        check_column_names(header.names)
        columns = label_columns(_choose(labels, header, path), header.names)
    table = _read_rows(lines, header, path)
    for allowed in {attribute.values for attribute in header.attributes}:
        if allowed is not None:
            members = np.flatnonzero([attribute.values == allowed for attribute in header.attributes])
            table.require(members, allowed, f"its values are declared as {_braces(allowed)}")
    return table.split(columns)


def _choose(labels: LabelSpec | None, header: Header, path: Path) -> LabelSpec:
    if labels is not None:
        return labels
    count = _LABEL_COUNT.search(header.relation)
    if count:
        return int(count[1])
    beside = path.with_name(f"{data_name(path)}.xml")
    hint = f"; {beside} lies beside it" if beside.exists() else ""
    raise ValueError(
        "say which attributes are labels: labels='its.xml' for a Mulan file, or a list of names, a pattern or a "
        f"count (-14: the last 14). The relation has no '-C n', as a Meka file would{hint}."
    )


def _read_header(lines: Lines, path: Path) -> Header:
    header = Header()
    for number, line in lines:
        text = line.strip()
        if text.lower().split("%")[0].strip() == "@data":
            return header
        if text and not text.startswith("%"):
            with blame(f"{path}, line {number}"):
                _read_declaration(text, number, header)
    raise ValueError(f"{path} has no @data line: it is cut off, or is not ARFF")


def _read_declaration(text: str, number: int, header: Header) -> None:
    relation, attribute = _RELATION.match(text), _ATTRIBUTE.match(text)
    if relation:
        header.relation = _unquote(relation[1].strip())
    elif attribute:
        name = _unquote(attribute[1])
        header.attributes.append(Attribute(name, number, _declared_values(name, attribute[2])))
    else:
        raise ValueError(f"expected @relation, @attribute NAME TYPE or @data; got {text[:60]!r}")


def _declared_values(name: str, declared: str) -> tuple[float, ...] | None:
    """None for a numeric type; the numbers of a nominal one; everything else is refused."""
    nominal = re.match(r"\{([^}]*)\}", declared)
    if nominal:
        try:
            return tuple(float(_unquote(value.strip())) for value in nominal[1].split(","))
        except ValueError:
            kind = f"one of {{{nominal[1][:40]}}}"
    else:
        kind = declared.split("%")[0].strip() or "nothing"
        if kind.lower().split()[0] in _NUMERIC:
            return None
    raise ValueError(
        f"attribute {name!r} is declared as {kind[:60]}, not as numbers. Features must be numbers and labels {{0,1}}: "
        "encode the attribute as 0/1 attributes, one per value, or remove it."
    )


def _read_rows(lines: Lines, header: Header, path: Path) -> Table:
    rows = _data_rows(lines)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{path} has no rows after @data: it is cut off, or empty")
    read = _read_sparse if first[1].startswith("{") else _read_dense
    return read(chain([first], rows), header, path)


def _data_rows(lines: Lines) -> Lines:
    """Line number and text of every row, comments and blank lines left out."""
    for number, line in lines:
        text = (line.split("%")[0] if "%" in line else line).strip()
        if text:
            yield number, text


def _read_dense(rows: Lines, header: Header, path: Path) -> Table:
    names, values, numbers = header.names, [], []
    for number, text in rows:
        with blame(f"{path}, line {number}"):
            if text.startswith("{"):
                raise ValueError("a sparse row, in braces, among dense ones; write all rows in one way")
            values.append(parse_cells(_bare(text).split(","), names, missing="?"))
        numbers.append(number)
    return Table(path, names, np.stack(values), numbers)


def _read_sparse(rows: Lines, header: Header, path: Path) -> Table:
    for attribute in header.attributes:
        # Weka leaves out the value listed first, whichever it is; only 0 can be left out of a sparse matrix.
        if attribute.values is not None and attribute.values[0] != 0:
            raise ValueError(
                f"{path}, line {attribute.line}: in a sparse file an omitted value means the one listed first, here "
                f"{attribute.values[0]:g} for {attribute.name!r}; list 0 first, {{0,1}}, and write the file anew"
            )
    names, sparse, numbers = header.names, SparseRows(), []
    for number, text in rows:
        with blame(f"{path}, line {number}"):
            sparse.append(*_parse_pairs(_bare(text), names))
        numbers.append(number)
    return Table(path, names, sparse.to_csr(len(names)), numbers)


def _parse_pairs(text: str, names: list[str]) -> tuple[list[int], list[float]]:
    """The columns and values of a sparse row."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("a row of a sparse file stands in braces, {0 1, 7 1}; is the file cut off?")
    body = text[1:-1].strip()
    pairs = [pair.split() for pair in body.split(",")] if body else []
    columns = _parse_columns(pairs, len(names))
    try:
        return columns, [float(value) for _, value in pairs]
    except ValueError:
        return columns, [parse_cell(value, names[j], missing="?") for j, (_, value) in zip(columns, pairs)]


def _parse_columns(pairs: list[list[str]], total: int) -> list[int]:
    try:
        columns = [int(column) for column, _ in pairs]
    except ValueError:
        wrong = next((pair for pair in pairs if len(pair) != 2 or not pair[0].isdecimal()), pairs[0])
        raise ValueError(f"{' '.join(wrong)[:40]!r} is not an attribute's number and value, such as '7 1'") from None
    if columns and not 0 <= min(columns) <= max(columns) < total:
        outside = next(column for column in columns if not 0 <= column < total)
        raise ValueError(f"attribute {outside} is out of range: there are {total}, numbered from 0")
    return columns


def _bare(text: str) -> str:
    """A row without the quotes that some writers put around nominal values."""
    return text.replace("'", "").replace('"', "") if "'" in text or '"' in text else text


def _unquote(text: str) -> str:
    """
    >>> _unquote("'it\\\\'s'")
    "it's"
    """
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _braces(values: tuple[float, ...]) -> str:
    return "{" + ",".join(f"{value:g}" for value in values) + "}"
