"""Charts as SVG elements: small, in the colors of the page, with a text alternative.

They are drawn by hand because matplotlib's SVG files are 20 to 50 kB each and cannot follow the reader's light or dark
setting. All text is escaped by markupsafe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

_HUES = (210, 25, 140, 280, 50, 340, 175, 95, 255, 0, 120, 310)
MAX_CHARACTERS = 28
"""Names in charts are shortened to this number of characters."""
CHARACTER_WIDTH = 6.4
"""Approximate width of a character in pixels; fonts differ."""


class Mark(NamedTuple):
    """Line of a chart: a value with its interval (NaN if it is not known), and the true value if it is known."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    true: float | None = None
    color: int = 0
    suffix: str = ""
    """Text after the number."""


def color(number: int) -> str:
    """Return the CSS color of a series; colors are readable on light and dark pages and repeat after twelve."""
    return f"hsl({_HUES[number % len(_HUES)]} 65% 50%)"


def shorten(name: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Shorten a name to at most ``max_characters`` characters.

    >>> shorten("a long name", 7), shorten("sea", 7)
    ('a long…', 'sea')
    """
    return name if len(name) <= max_characters else name[: max_characters - 1] + "…"


def axis_end(marks: Iterable[Mark]) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below any value; 1 without values.

    >>> axis_end([Mark("sea", 0.2, 0.1, 0.35)]), axis_end([Mark("", 7.0)])
    (0.5, 10.0)
    """
    ends = [end for mark in marks for end in (mark.value, mark.high, mark.true or 0.0) if math.isfinite(end)]
    largest = max(ends, default=0.0)
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next((float(f"{factor * power:.1g}") for factor in (1, 2, 5) if largest <= factor * power), 10 * power)


def row_chart(marks: Sequence[Mark], title: str, end: float | None = None) -> Markup:
    """Draw one line per value on an axis from 0 to ``end``: a dot, its interval (bar) and the true value (vertical).

    Values outside the axis are drawn at its ends. Values that are NaN keep their line.
    """
    width, right, step = 340, 54, 20
    end = end or axis_end(marks)
    left = 14 + CHARACTER_WIDTH * max((len(shorten(mark.name)) for mark in marks), default=0)
    scale, y = (width - left - right) / end, 14

    def x(value: float) -> str:
        return f"{left + min(max(value, 0.0), end) * scale:.1f}"

    parts = [_text(0, y, title, class_="title")]
    for mark in marks:
        y += step
        fill, known = color(mark.color), math.isfinite(mark.value)
        shown = f"{mark.value:.3f}{mark.suffix}" if known else "none"
        parts.append(_text(f"{left - 10:.1f}", y, shorten(mark.name), text_anchor="end"))
        parts.append(_line(x(0), y - 4, x(end), y - 4, class_="grid"))
        parts.append(_text(width - right + 8, y, shown))
        if math.isfinite(mark.low) and math.isfinite(mark.high):
            parts.append(_line(x(mark.low), y - 4, x(mark.high), y - 4, class_="reach", stroke=fill))
        if known:
            parts.append(_tag("circle", cx=x(mark.value), cy=y - 4, r=4, fill=fill))
        if mark.true is not None:
            parts.append(_line(x(mark.true), y - 11, x(mark.true), y + 3, class_="truth"))
    y += 14
    parts += [_text(x(0), y, "0", class_="tick"), _text(x(end), y, f"{end:g}", class_="tick")]
    return _svg(width, y + 6, parts, title)


def _svg(width: int, height: int, parts: Iterable[Markup], label: str) -> Markup:
    """Return the whole chart with a label for screen readers; it fills up to 1.2 times its width."""
    size = f'width="{width}" height="{height}" style="max-width: {round(1.2 * width)}px"'
    return Markup('<svg viewBox="0 0 {} {}" {} role="img" aria-label="{}">{}</svg>').format(
        width, height, Markup(size), label, Markup("").join(parts)
    )


def _text(x: Any, y: Any, content: str, **attributes: Any) -> Markup:
    return _tag("text", content, x=x, y=y, **attributes)


def _line(x1: Any, y1: Any, x2: Any, y2: Any, **attributes: Any) -> Markup:
    return _tag("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def _tag(element: str, content: str | None = None, **attributes: Any) -> Markup:
    """Return an element; content and attribute values are escaped, ``_`` in attribute names stands for ``-``."""
    shown = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
    inside = "/>" if content is None else f">{escape(content)}</{element}>"
    return Markup(f"<{element}{shown}{inside}")
