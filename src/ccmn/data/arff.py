"""ARFF files, dense and sparse: Mulan files with their XML file, and Meka files with ``-C`` in the relation.

The header consists of ``@relation``, ``@attribute`` and ``@data`` lines. Rows follow, one per line: ``0.5,1,0``, or
sparse ``{0 0.5, 1 1}`` with attributes numbered from 0. ``?`` is a missing value and ``%`` starts a comment.

This reader is written by hand because there is no maintained reader of sparse ARFF: ``scipy.io.arff`` reads dense files
only, and the ``liac-arff`` package is no longer maintained.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse

from ccmn._containers import is_sparse
from ccmn._files import PathLike, check_file, check_unpacked_size, data_name, prefix_errors, text_lines, unpacked_limit
from ccmn.data.column_roles import LabelSpec, check_column_names, check_width, label_columns
from ccmn.data.dataset import Matrix, MultiLabelData, first_infinite

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


def read_arff(path: PathLike, labels: LabelSpec | None = None) -> MultiLabelData:
    """Read an ARFF file, compressed (``.gz``) or not, as float32 features, sparse if the rows are, and dense labels.

    The attributes are numeric, or nominal with numbers as values, such as {0,1}. Mulan files need ``labels``, usually
    the XML file next to them. Meka files need none: ``-C 6`` in the relation declares the first 6 attributes as labels,
    ``-C -6`` the last 6. Labels keep the order of the attributes, which may differ from the order in the XML file.
    """
    path = check_file(path)
    lines = enumerate(text_lines(path), start=1)
    relation, attributes = _read_header(lines, path)
    names = [attribute.name for attribute in attributes]
    with prefix_errors(path):
        check_column_names(names)
        columns = label_columns(_label_spec(labels, relation, path), names)
    values, rows = _read_rows(lines, attributes, path)
    by_column = values.tocsc() if is_sparse(values) else values  # columns are selected without reading the whole
    declared: dict[tuple[float, ...], list[int]] = {}
    for column, attribute in enumerate(attributes):
        if attribute.values is not None:
            declared.setdefault(attribute.values, []).append(column)
    checks = [
        (allowed, members, f"its values are declared as {{{','.join(f'{value:g}' for value in allowed)}}}")
        for allowed, members in declared.items()
    ]
    for allowed, members, rule in [*checks, ((0.0, 1.0), columns, "a label must be 0, 1 or missing")]:
        wrong = _first_other(by_column[:, members], allowed)
        if wrong is not None:
            row, place, value = wrong
            raise ValueError(f"{path}, line {rows[row]}: {value:g} in column {names[members[place]]!r}; {rule}")
    features = np.setdiff1d(np.arange(len(names)), columns)
    X, Y = values[:, features], values[:, columns]
    infinite = first_infinite(X)
    if infinite is not None:
        name = names[features[infinite[1]]]
        raise ValueError(f"{path}, line {rows[infinite[0]]}: infinite (or too large) value in column {name!r}")
    if is_sparse(Y):
        with prefix_errors(path):
            check_unpacked_size(Y.shape[0] * Y.shape[1] * Y.dtype.itemsize, unpacked_limit(path))
        Y = Y.toarray()
    feature_names, label_names = ([names[j] for j in chosen] for chosen in (features, columns))
    return MultiLabelData(X, Y, feature_names=feature_names, label_names=label_names, name=data_name(path))


def _first_other(values: Matrix, allowed: Sequence[float]) -> tuple[int, int, float] | None:
    """Return row, column and value of the first value that is neither allowed nor NaN, or None.

    An omitted value of a sparse row is 0; ``_check_omitted_values`` checks that 0 is allowed.
    """
    stored = values.data if is_sparse(values) else values
    wrong = ~(np.isin(stored, np.array(allowed, dtype=np.float32)) | np.isnan(stored))
    if not wrong.any():
        return None
    rows, places = values.tocoo().coords if is_sparse(values) else np.indices(values.shape)
    first = np.argmin(rows[wrong])
    return rows[wrong][first], places[wrong][first], stored[wrong][first]


def _label_spec(labels: LabelSpec | None, relation: str, path: Path) -> LabelSpec:
    """Return the given selection of labels, or that of the relation of a Meka file."""
    if labels is not None:
        return labels
    count = _LABEL_COUNT.search(relation)
    if count:
        return int(count[1])
    beside = path.with_name(f"{data_name(path)}.xml")
    hint = f"; the file {beside} may list them" if beside.exists() else ""
    raise ValueError(
        "specify which attributes are labels (parameter labels): the XML file of a Mulan file, names, a pattern or a "
        f"count (-14: the last 14). The relation has no '-C n' as in a Meka file{hint}."
    )


def _read_header(lines: Lines, path: Path) -> tuple[str, list[Attribute]]:
    """Return the relation and the attributes above ``@data``."""
    relation = ""
    attributes: list[Attribute] = []
    for number, line in lines:
        text = line.strip()
        if text.lower().split("%")[0].strip() == "@data":
            return relation, attributes
        if not text or text.startswith("%"):
            continue
        with prefix_errors(f"{path}, line {number}"):
            if found := _RELATION.match(text):
                relation = _unquote(found[1].strip())
            elif found := _ATTRIBUTE.match(text):
                name = _unquote(found[1])
                attributes.append(Attribute(name, number, _declared_values(name, found[2])))
            else:
                raise ValueError(f"expected @relation, @attribute NAME TYPE or @data; got {text[:60]!r}")
    raise ValueError(f"{path} has no @data line: it is incomplete, or is not ARFF")


def _declared_values(name: str, declared: str) -> tuple[float, ...] | None:
    """Return None for a numeric type and the numbers of a nominal type; other types are rejected."""
    nominal = re.match(r"\{([^}]*)\}", declared)
    if nominal:
        try:
            return tuple(_number(_unquote(value.strip())) for value in nominal[1].split(","))
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


def _read_rows(lines: Lines, attributes: Sequence[Attribute], path: Path) -> tuple[Matrix, Sequence[int]]:
    """Return the rows below ``@data`` and their lines; the first row determines whether they are sparse."""
    names, places = [attribute.name for attribute in attributes], array("q")
    columns, values, ends = array("q"), array("f"), array("q", [0])
    sparse = False
    for number, line in lines:
        text = _bare(line.split("%")[0].strip())
        if not text:
            continue
        if not places and text.startswith("{"):
            sparse = True
            _check_omitted_values(attributes, path)
        with prefix_errors(f"{path}, line {number}"):
            if sparse:
                row = _parse_pairs(text, names)
                columns.extend(row)
                values.extend(row.values())
            else:
                values.extend(_parse_cells(text, names))
        places.append(number)
        ends.append(len(values))
    if not places:
        raise ValueError(f"{path} has no rows after @data: it is incomplete or empty")
    shape, numbers = (len(places), len(names)), np.array(values, dtype=np.float32)
    if not sparse:
        return numbers.reshape(shape), places
    matrix = scipy.sparse.csr_array((numbers, np.array(columns, np.int32), np.array(ends)), shape=shape)
    matrix.sort_indices()
    return matrix, places


def _check_omitted_values(attributes: Sequence[Attribute], path: Path) -> None:
    """Reject nominal attributes whose first value is not 0: Weka omits the first one, whichever it is."""
    for attribute in attributes:
        if attribute.values is not None and attribute.values[0] != 0:
            raise ValueError(
                f"{path}, line {attribute.line}: in a sparse file an omitted value is the first declared value, here "
                f"{attribute.values[0]:g} for {attribute.name!r}; declare 0 first, {{0,1}}, and write the file again"
            )


def _parse_cells(text: str, names: list[str]) -> list[float]:
    """Return the values of a dense row."""
    if text.startswith("{"):
        raise ValueError("a sparse row, in braces, among dense rows; write all rows in the same form")
    cells = text.split(",")
    check_width(cells, len(names))
    try:
        return [_number(cell) for cell in cells]
    except ValueError:
        return [_cell(cell, name) for cell, name in zip(cells, names)]


def _parse_pairs(text: str, names: list[str]) -> dict[int, float]:
    """Return the values of a sparse row by the number of the attribute."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("a row of a sparse file must be in braces, {0 1, 7 1}; is the file incomplete?")
    row: dict[int, float] = {}
    for pair in text[1:-1].split(",") if text[1:-1].strip() else ():
        place, *rest = pair.split() or [""]
        if not place.isdecimal() or len(rest) != 1 or "_" in rest[0]:
            raise ValueError(f"{' '.join(pair.split())[:40]!r} is not an attribute number and a value, such as '7 1'")
        column = int(place[:20])
        if column >= len(names):
            raise ValueError(f"attribute {column} is out of range: there are {len(names)}, numbered from 0")
        if column in row:
            raise ValueError(f"column {column} (from 0) is given twice in one row")
        row[column] = _cell(rest[0], names[column])
    return row


def _number(text: str) -> float:
    return float("not a number" if "_" in text else text)


def _cell(text: str, name: str) -> float:
    """Return the number in a cell, NaN for a missing value."""
    try:
        return math.nan if text.strip() == "?" else _number(text)
    except ValueError:
        raise ValueError(
            f"{text[:40]!r} in column {name!r} is not a number. Features must be numbers and labels 0 or 1 ('?' if "
            "missing)."
        ) from None


def _bare(text: str) -> str:
    return text.replace("'", "").replace('"', "") if "'" in text or '"' in text else text


def _unquote(text: str) -> str:
    r"""Return text without surrounding quotes and escapes.

    >>> _unquote(r"'it\'s'")
    "it's"
    """
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
