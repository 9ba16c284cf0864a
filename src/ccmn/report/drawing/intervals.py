"""Values with their intervals, one a line, on the scale from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ccmn.report.drawing.svg import cut, room, svg

_SCALE, _RIGHT, _TOP, _STEP, _MOST_CHARACTERS = 240, 12, 30, 20, 20


class Interval(NamedTuple):
    """A value between two ends, and where it should be, if that is known."""

    name: str
    value: float
    low: float
    high: float
    true: float | None = None


def intervals(values: Sequence[Interval], title: str, label: str) -> str:
    """A dot for the value, a bar for the interval, a cross-line for the truth."""
    left = 16 + room((value.name for value in values), _MOST_CHARACTERS)
    height = _TOP + _STEP * len(values) + 26
    parts = [f'<text x="{left:.1f}" y="14" class="title">{escape(title)}</text>']
    for tick in range(0, 11, 2):
        x = left + _SCALE * tick / 10
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - 22}" class="grid"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick / 10:g}</text>')
    for i, value in enumerate(values):
        parts += _line(value, left, _TOP + _STEP * i + 4)
    return svg(round(left) + _SCALE + _RIGHT, height, parts, label)


def _line(value: Interval, left: float, y: int) -> list[str]:
    def x(share: float) -> str:
        return f"{left + min(max(share, 0.0), 1.0) * _SCALE:.1f}"

    name = escape(cut(value.name, _MOST_CHARACTERS))
    parts = [
        f'<text x="{left - 10:.1f}" y="{y + 4}" text-anchor="end">{name}</text>',
        f'<line x1="{x(value.low)}" y1="{y}" x2="{x(value.high)}" y2="{y}" class="reach"/>',
        f'<circle cx="{x(value.value)}" cy="{y}" r="4" class="dot"/>',
    ]
    if value.true is not None:
        at = x(value.true)
        parts.append(f'<line x1="{at}" y1="{y - 7}" x2="{at}" y2="{y + 7}" class="truth"/>')
    return parts
