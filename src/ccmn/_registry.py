"""Catalogue: name -> object, with an error that lists the names it knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class Catalogue(Mapping[str, T]):
    """A read-only table of named members, such as the surrogates or the metrics.

    >>> colours = Catalogue("colour", {"red": 1, "green": 2})
    >>> colours["red"]
    1
    >>> colours["grene"]
    Traceback (most recent call last):
    ValueError: unknown colour 'grene'; did you mean 'green'? Known: red, green
    """

    def __init__(self, kind: str, members: Mapping[str, T]) -> None:
        self._kind = kind
        self._members = dict(members)

    def __getitem__(self, name: str) -> T:
        try:
            return self._members[name]
        except (KeyError, TypeError):
            raise ValueError(self._unknown(name)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"Catalogue({self._kind}: {', '.join(self._members)})"

    def _unknown(self, name: object) -> str:
        near = difflib.get_close_matches(name, self._members, n=1) if isinstance(name, str) else []
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return f"unknown {self._kind} {name!r}{hint} Known: {', '.join(self._members)}"
