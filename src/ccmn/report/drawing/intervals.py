"""Values with their intervals, one a line, on one scale from 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def scale_of(values: Iterable[Interval]) -> float:
    """A round number up to 1 that none of the values lies beyond.

    >>> scale_of([Interval("sea", 0.2, 0.1, 0.35)])
    0.5
    """
    largest = max((max(value.high, value.value, value.true or 0.0) for value in values), default=1.0)
    return next((end for end in (0.1, 0.2, 0.5) if largest <= end), 1.0)


def intervals(values: Sequence[Interval], end: float, title: str, label: str) -> str:
    """A dot for the value, a bar for the interval, a cross-line for the truth, from 0 to ``end``."""
    left = 16 + room((value.name for value in values), _MOST_CHARACTERS)
    height = _TOP + _STEP * len(values) + 26
    parts = [f'<text x="{left:.1f}" y="14" class="title">{escape(title)}</text>']
    for tick in range(6):
        x = left + _SCALE * tick / 5
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - 22}" class="grid"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick / 5 * end:.2g}</text>')
    for i, value in enumerate(values):
        parts += _line(value, left, _TOP + _STEP * i + 4, end)
    return svg(round(left) + _SCALE + _RIGHT, height, parts, label)


def _line(value: Interval, left: float, y: int, end: float) -> list[str]:
    def x(share: float) -> str:
        return f"{left + share / end * _SCALE:.1f}"

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
