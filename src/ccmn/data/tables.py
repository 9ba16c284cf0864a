"""Names of columns, and the selection of label columns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from ccmn._files import PathLike, check_file, text_lines
from ccmn.data.column_roles import name_hint, name_some

LabelSpec = int | PathLike | Sequence[str]
"""Selection of the label columns of a file:

- a list of names, ``["sea", "sky"]``; the empty list selects none (rows to predict);
- a pattern with ``*``, ``"label_*"``; a string without ``*`` is a single name;
- a number of columns from the start, ``14``, or from the end, ``-14``;
- a file with the names: a Mulan ``.xml`` file, or a ``.txt`` file with one name per line.

Labels keep the order of the columns in the file, whatever the order of the selection.
"""


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


def _named_columns(wanted: Sequence[str], names: Sequence[str]) -> NDArray[np.intp]:
    """Return the ascending indices of the columns with these names."""
    known, chosen = set(names), set(wanted)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        found = "there is no label column" if len(unknown) == 1 else "there are no label columns"
        raise ValueError(f"{found} {name_some(unknown)}; {name_hint(unknown[0], names)}")
    return np.flatnonzero([name in chosen for name in names])
