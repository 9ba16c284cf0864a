"""A few values as bars, with the reach of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ccmn.report.drawing.svg import colour, cut, room, svg

_WIDTH, _RIGHT, _TOP, _STEP = 340, 46, 30, 20
_MOST_CHARACTERS = 26


class Bar(NamedTuple):
    """A value, its standard error where it is an estimate, and the number of its colour."""

    name: str
    value: float
    se: float
    colour: int


def bars(values: Sequence[Bar], title: str, label: str) -> str:
    """Bars from 0, the longest as wide as there is room; what is below 0 has none."""
    longest = max((max(bar.value, 0) + bar.se for bar in values), default=1.0)
    left = 8 + room((bar.name for bar in values), _MOST_CHARACTERS)
    scale = (_WIDTH - left - _RIGHT) / max(longest, 1e-9)
    parts = [f'<text x="0" y="14" class="title">{escape(title)}</text>']
    for i, bar in enumerate(values):
        parts += _bar(bar, left, _TOP + _STEP * i, scale)
    return svg(_WIDTH, _TOP + _STEP * len(values), parts, label)


def _bar(bar: Bar, left: float, y: int, scale: float) -> list[str]:
    length = max(bar.value, 0) * scale
    end = left + length
    parts = [
        f'<text x="{left - 6:.1f}" y="{y + 8}" text-anchor="end">{escape(cut(bar.name, _MOST_CHARACTERS))}</text>',
        f'<rect x="{left:.1f}" y="{y - 3}" width="{length:.1f}" height="14" rx="2" fill="{colour(bar.colour)}"/>',
        f'<text x="{end + bar.se * scale + 5:.1f}" y="{y + 8}">{bar.value:.3f}</text>',
    ]
    if bar.se:
        low, high = max(end - bar.se * scale, left), end + bar.se * scale
        parts.append(f'<line x1="{low:.1f}" y1="{y + 4}" x2="{high:.1f}" y2="{y + 4}" class="axis"/>')
    return parts
