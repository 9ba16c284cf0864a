"""What drawings share: SVG text without library or script, in the colours of the page they stand in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_HUES = (210, 25, 140, 280, 50, 340, 175, 95, 255, 0, 120, 310)
_CHARACTER = 6.4
"""Pixels that a character is wide, more or less: fonts differ."""


def colour(number: int) -> str:
    """A colour of its own for each of a dozen lines, readable on light and on dark."""
    return f"hsl({_HUES[number % len(_HUES)]} 65% 50%)"


def svg(width: int, height: int, parts: Sequence[str], label: str) -> str:
    """The drawing, with a label for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def cut(name: str, most: int) -> str:
    """A name, cut where there is no room for more of it.

    >>> cut("a long name", 7), cut("sea", 7)
    ('a long…', 'sea')
    """
    return name if len(name) <= most else name[: most - 1] + "…"


def room(names: Iterable[str], most: int) -> float:
    """How wide the longest of some names is, in pixels, cut at ``most`` characters."""
    return _CHARACTER * min(most, max((len(name) for name in names), default=0))
