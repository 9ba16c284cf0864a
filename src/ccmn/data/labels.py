"""Which columns of a file are labels: names, a pattern, a count, or a file that lists them."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from ccmn.data.files import PathLike, blame, check_file, text_lines

LabelSpec = int | PathLike | Sequence[str]
"""Which columns are labels:

- a list of names: ``["sea", "sky"]``; the empty list: none (rows to predict on);
- a pattern with ``*``: ``"label_*"``; a string without one is a single name;
- a count from the start, ``14``, or from the end, ``-14``;
- a file that lists the names: a Mulan ``.xml``, or a ``.txt`` with a name per line.

Labels come in the order of the file's columns, whatever the order in which they are named here.
"""


def label_columns(labels: LabelSpec | None, names: Sequence[str]) -> NDArray[np.intp]:
    """The numbers of the label columns, ascending.

    >>> label_columns("label_*", ["age", "label_sea", "label_sky"])
    array([1, 2])
    >>> label_columns(-1, ["age", "sea"])
    array([1])
    """
    if labels is None:
        raise ValueError(
            "say which columns are labels: labels=['sea', 'sky'], a pattern 'label_*', a count (-14: the last 14), "
            "or a file that lists the names (.xml or .txt)"
        )
    if isinstance(labels, (int, np.integer)):
        return _counted(labels, len(names))
    if isinstance(labels, str) and Path(labels).suffix.lower() not in _READERS:
        return _matching(labels, names) if "*" in labels else _named([labels], names)
    return _named(label_names(labels), names)


def text_column(name: str, names: Sequence[str]) -> int:
    """The number of the column whose cells are texts, such as ``--text review``."""
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the columns are {_some(names)}"
        raise ValueError(f"there is no text column {name!r}; {hint}")
    return names.index(name)


def label_names(labels: PathLike | Sequence[str]) -> list[str]:
    """The names in a list, or in a file that lists them."""
    if isinstance(labels, (str, os.PathLike)):
        reader = _READERS.get(Path(labels).suffix.lower())
        if reader is None:
            raise ValueError(f"a file of label names ends in .xml (Mulan) or .txt (a name per line); got {labels}")
        return reader(labels)
    if not isinstance(labels, Iterable):
        raise ValueError(f"labels must be names, a pattern, a count or a file; got {labels!r}")
    given = [str(name) for name in labels]
    _check_distinct(given, "labels")
    return given


def read_label_list(path: PathLike) -> list[str]:
    """The names in a text file, one per line; blank lines at the end do not count."""
    path = check_file(path)
    names = "".join(text_lines(path)).rstrip().split("\n")
    names = [name.strip() for name in names]
    if "" in names:
        raise ValueError(f"{path}, line {names.index('') + 1} is blank: one label name per line is expected")
    _check_distinct(names, path)
    return names


def read_label_xml(path: PathLike) -> list[str]:
    """The names in a Mulan XML file, ``<labels><label name="sea"/>...</labels>``, nested ones included.

    A document type is refused unread: nothing outside the file is ever opened, and no entity expands.
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
        raise ValueError(f'{path} names no label; expected <labels><label name="..."/>...</labels>')
    _check_distinct(names, path)
    return names


_READERS = {".xml": read_label_xml, ".txt": read_label_list}


def _counted(count: int, total: int) -> NDArray[np.intp]:
    if isinstance(count, bool) or count == 0 or abs(count) > total:
        raise ValueError(
            f"labels={count!r} must count columns from the start (14) or from the end (-14); there are {total}"
        )
    return np.arange(count) if count > 0 else np.arange(total + count, total)


def _matching(pattern: str, names: Sequence[str]) -> NDArray[np.intp]:
    found = np.flatnonzero([fnmatchcase(name, pattern) for name in names])
    if not found.size:
        raise ValueError(f"no column matches labels={pattern!r}; the columns are {_some(names)}")
    return found


def _named(wanted: Sequence[str], names: Sequence[str]) -> NDArray[np.intp]:
    places = {name: place for place, name in enumerate(names)}
    unknown = [name for name in wanted if name not in places]
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the columns are {_some(names)}"
        raise ValueError(f"there is no label column {_some(unknown)}; {hint}")
    return np.array(sorted(places[name] for name in wanted), dtype=np.intp)


def _check_distinct(names: Iterable[str], place: object) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    with blame(place):
        if twice:
            raise ValueError(f"{_some(twice)} stands there more than once; every label must have its own name")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
