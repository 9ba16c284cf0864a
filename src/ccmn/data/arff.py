"""ARFF files, dense and sparse: Mulan files with their XML file, and Meka files with ``-C`` in the relation.

The header consists of ``@relation``, ``@attribute`` and ``@data`` lines. Rows follow, one per line: ``0.5,1,0``, or
sparse ``{0 0.5, 1 1}`` with attributes numbered from 0. ``?`` is a missing value and ``%`` starts a comment.

This reader is written by hand because there is no maintained reader of sparse ARFF: ``scipy.io.arff`` reads dense files
only, and the ``liac-arff`` package is no longer maintained.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccmn._files import PathLike, check_file, data_name, prefix_errors, text_lines
from ccmn.data.dataset import MultiLabelData
from ccmn.data.tables import (
    DenseRows,
    LabelSpec,
    SparseRows,
    Table,
    check_column_names,
    label_columns,
    parse_cell,
    parse_cells,
    parse_number,
)

Lines = Iterator[tuple[int, str]]

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_RELATION = re.compile(rf"@relation\s+({_QUOTED}|[^%]*)", re.IGNORECASE)
_ATTRIBUTE = re.compile(rf"""@attribute\s+({_QUOTED}|(?!['"])[^\s{{]+)\s*(.*)""", re.IGNORECASE)
_LABEL_COUNT = re.compile(r"(?:^|[\s:])-C\s+(-?\d+)(?=\s|$)")
_NUMERIC = ("numeric", "real", "integer")


class Attribute(NamedTuple):
    """Declaration of a column."""

    name: str
    line: int
    values: tuple[float, ...] | None
    """Declared values of a nominal attribute; None if any number is allowed."""


@dataclass
class Header:
    """Declarations above ``@data``."""

    relation: str = ""
    attributes: list[Attribute] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of the attributes."""
        return [attribute.name for attribute in self.attributes]


def read_arff(path: PathLike, labels: LabelSpec | None = None) -> MultiLabelData:
    """Read an ARFF file, compressed (``.gz``) or not.

    Parameters
    ----------
    path : str or path
        File whose attributes are numeric, or nominal with numbers as values, such as {0,1}.
    labels : path, list of str, str or int, default=None
        Label attributes: for Mulan files the XML file next to them, or names, a pattern such as "label_*", or a count
        from the start (14) or the end (-14). Meka files need none: ``-C 6`` in the relation declares the first 6
        attributes as labels, ``-C -6`` the last 6. Labels keep the order of the attributes, which may differ from
        the order in the XML file.

    Returns
    -------
    MultiLabelData
        Features in float32, sparse if the rows are sparse, and dense labels.

    Raises
    ------
    ValueError
        If the file is malformed; the message names the file and the line.
    """
    path = check_file(path)
    lines = enumerate(text_lines(path), start=1)
    header = _read_header(lines, path)
    with prefix_errors(path):
        check_column_names(header.names)
        columns = label_columns(_label_spec(labels, header, path), header.names)
    table = _read_rows(lines, header, path)
    by_values: dict[tuple[float, ...], list[int]] = {}
    for column, attribute in enumerate(header.attributes):
        if attribute.values is not None:
            by_values.setdefault(attribute.values, []).append(column)
    by_column = table.by_column()
    for allowed, members in by_values.items():
        declared = ",".join(f"{value:g}" for value in allowed)
        by_column.require(np.array(members), allowed, f"its values are declared as {{{declared}}}")
    return table.split(columns)


def _label_spec(labels: LabelSpec | None, header: Header, path: Path) -> LabelSpec:
    """Return the given selection of labels, or that of the relation of a Meka file."""
    if labels is not None:
        return labels
    count = _LABEL_COUNT.search(header.relation)
    if count:
        return int(count[1])
    beside = path.with_name(f"{data_name(path)}.xml")
    hint = f"; the file {beside} may list them" if beside.exists() else ""
    raise ValueError(
        "specify which attributes are labels (parameter labels): the XML file of a Mulan file, names, a pattern or a "
        f"count (-14: the last 14). The relation has no '-C n' as in a Meka file{hint}."
    )


def _read_header(lines: Lines, path: Path) -> Header:
    """Return the declarations above ``@data``."""
    header = Header()
    for number, line in lines:
        text = line.strip()
        if text.lower().split("%")[0].strip() == "@data":
            return header
        if text and not text.startswith("%"):
            with prefix_errors(f"{path}, line {number}"):
                _read_declaration(text, number, header)
    raise ValueError(f"{path} has no @data line: it is incomplete, or is not ARFF")


def _read_declaration(text: str, number: int, header: Header) -> None:
    """Add one ``@relation`` or ``@attribute`` line to the header."""
    relation, attribute = _RELATION.match(text), _ATTRIBUTE.match(text)
    if relation:
        header.relation = _unquote(relation[1].strip())
    elif attribute:
        name = _unquote(attribute[1])
        header.attributes.append(Attribute(name, number, _declared_values(name, attribute[2])))
    else:
        raise ValueError(f"expected @relation, @attribute NAME TYPE or @data; got {text[:60]!r}")


def _declared_values(name: str, declared: str) -> tuple[float, ...] | None:
    """Return None for a numeric type and the numbers of a nominal type; other types are rejected."""
    nominal = re.match(r"\{([^}]*)\}", declared)
    if nominal:
        try:
            return tuple(parse_number(_unquote(value.strip())) for value in nominal[1].split(","))
        except ValueError:
            kind = f"one of {{{nominal[1][:40]}}}"
    else:
        kind = declared.split("%")[0].strip() or "nothing"
        if kind.lower().split()[0] in _NUMERIC:
            return None
    raise ValueError(
        f"attribute {name!r} is declared as {kind[:60]}, not as numbers. Features must be numbers and labels {{0,1}}. "
        "Encode the attribute as 0/1 attributes, one per value, or remove it."
    )


def _read_rows(lines: Lines, header: Header, path: Path) -> Table:
    """Return the rows below ``@data``; the first row determines whether they are sparse."""
    rows = _data_rows(lines)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{path} has no rows after @data: it is incomplete or empty")
    read = _read_sparse if first[1].startswith("{") else _read_dense
    return read(chain([first], rows), header, path)


def _data_rows(lines: Lines) -> Lines:
    """Yield line number and text of every row, without comments and blank lines."""
    for number, line in lines:
        text = (line.split("%")[0] if "%" in line else line).strip()
        if text:
            yield number, text


def _read_dense(rows: Lines, header: Header, path: Path) -> Table:
    """Return dense rows as a table."""
    names, numbers = header.names, array("q")
    values = DenseRows(len(names))
    for number, text in rows:
        with prefix_errors(f"{path}, line {number}"):
            if text.startswith("{"):
                raise ValueError("a sparse row, in braces, among dense rows; write all rows in the same form")
            values.append(parse_cells(_bare(text).split(","), names, missing="?"))
        numbers.append(number)
    return Table(path, names, values.to_array(), numbers)


def _read_sparse(rows: Lines, header: Header, path: Path) -> Table:
    """Return sparse rows as a table with a CSR matrix."""
    for attribute in header.attributes:
        # Weka omits the first declared value, whichever it is; only 0 can be omitted from a sparse matrix.
        if attribute.values is not None and attribute.values[0] != 0:
            raise ValueError(
                f"{path}, line {attribute.line}: in a sparse file an omitted value is the first declared value, here "
                f"{attribute.values[0]:g} for {attribute.name!r}; declare 0 first, {{0,1}}, and write the file again"
            )
    names, sparse, numbers = header.names, SparseRows(), array("q")
    for number, text in rows:
        with prefix_errors(f"{path}, line {number}"):
            sparse.append(*_parse_pairs(_bare(text), names))
        numbers.append(number)
    return Table(path, names, sparse.to_csr(len(names)), numbers)


def _parse_pairs(text: str, names: list[str]) -> tuple[list[int], list[float]]:
    """Return the columns and values of a sparse row."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("a row of a sparse file must be in braces, {0 1, 7 1}; is the file incomplete?")
    body = text[1:-1].strip()
    if "_" in body:  # Python reads 1_0 as 10
        wrong = next(pair.strip() for pair in body.split(",") if "_" in pair)
        raise ValueError(f"{wrong[:40]!r} is not an attribute number and a value, such as '7 1'")
    pairs = [pair.split() for pair in body.split(",")] if body else []
    columns = _parse_columns(pairs, len(names))
    try:
        return columns, [float(value) for _, value in pairs]
    except ValueError:
        return columns, [parse_cell(value, names[j], missing="?") for j, (_, value) in zip(columns, pairs)]


def _parse_columns(pairs: list[list[str]], total: int) -> list[int]:
    """Return the attribute numbers of a sparse row."""
    try:
        columns = [int(column) for column, _ in pairs]
    except ValueError:
        wrong = next((pair for pair in pairs if len(pair) != 2 or not pair[0].isdecimal()), pairs[0])
        raise ValueError(f"{' '.join(wrong)[:40]!r} is not an attribute number and a value, such as '7 1'") from None
    if columns and not 0 <= min(columns) <= max(columns) < total:
        outside = next(column for column in columns if not 0 <= column < total)
        raise ValueError(f"attribute {outside} is out of range: there are {total}, numbered from 0")
    return columns


def _bare(text: str) -> str:
    """Return a row without the quotes that some programs write around nominal values."""
    return text.replace("'", "").replace('"', "") if "'" in text or '"' in text else text


def _unquote(text: str) -> str:
    r"""Return text without surrounding quotes and escapes.

    >>> _unquote(r"'it\'s'")
    "it's"
    """
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
