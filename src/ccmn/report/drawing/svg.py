"""What drawings share: SVG text without library or script, in the colours of the page they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_HUES = (210, 25, 140, 280, 50, 340, 175, 95, 255, 0, 120, 310)


def colour(number: int) -> str:
    """A colour of its own for each of a dozen lines, readable on light and on dark."""
    return f"hsl({_HUES[number % len(_HUES)]} 65% 50%)"


def svg(width: int, height: int, parts: Sequence[str], label: str) -> str:
    """The drawing, with a label for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def shortened(name: str, most: int = 16) -> str:
    """A name, escaped, cut where there is no room for more of it.

    >>> shortened("a <very> long name of a label"), shortened("sea")
    ('a &lt;very&gt; long n…', 'sea')
    """
    return escape(name if len(name) <= most else name[: most - 1] + "…")
