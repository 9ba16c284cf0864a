"""Read-only registries of named members: surrogates, metrics, estimators, file formats."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Read-only mapping from names to members.

    An unknown name raises a ``ValueError`` that lists the known names. ``kind``, the singular noun for the members, is
    used in its message.

    >>> colors = Registry("color", {"red": 1, "green": 2})
    >>> colors["red"]
    1
    >>> colors["grene"]
    Traceback (most recent call last):
    ValueError: unknown color 'grene'; did you mean 'green'? Known: red, green
    """

    def __init__(self, kind: str, members: Mapping[str, T]) -> None:
        self._kind = kind
        self._members = dict(members)

    def __getitem__(self, name: str) -> T:
        try:
            return self._members[name]
        except (KeyError, TypeError):
            near = difflib.get_close_matches(name, self._members, n=1) if isinstance(name, str) else []
            hint = f"; did you mean {near[0]!r}?" if near else "."
            known = ", ".join(self._members)
            raise ValueError(f"unknown {self._kind} {repr(name)[:60]}{hint} Known: {known}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"Registry({self._kind}: {', '.join(self._members)})"
