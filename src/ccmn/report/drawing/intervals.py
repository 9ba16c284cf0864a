"""Values with their intervals, one a line, on the scale from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ccmn.report.drawing.svg import shortened, svg

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP = 360, 110, 12, 30, 20


class Interval(NamedTuple):
    """A value between two ends, and where it should be, if that is known."""

    name: str
    value: float
    low: float
    high: float
    true: float | None = None


def intervals(values: Sequence[Interval], title: str, label: str) -> str:
    """A dot for the value, a bar for the interval, a cross-line for the truth."""
    height = _TOP + _STEP * len(values) + 26
    bottom = height - 22
    parts = [f'<text x="{_LEFT}" y="14" class="title">{escape(title)}</text>']
    for tick in range(0, 11, 2):
        x = _x(tick / 10)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{bottom}" class="grid"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick / 10:g}</text>')
    for i, value in enumerate(values):
        parts += _line(value, _TOP + _STEP * i + 4)
    return svg(_WIDTH, height, parts, label)


def _line(value: Interval, y: int) -> list[str]:
    parts = [
        f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{shortened(value.name)}</text>',
        f'<line x1="{_x(value.low):.1f}" y1="{y}" x2="{_x(value.high):.1f}" y2="{y}" class="reach"/>',
        f'<circle cx="{_x(value.value):.1f}" cy="{y}" r="4" class="dot"/>',
    ]
    if value.true is not None:
        x = _x(value.true)
        parts.append(f'<line x1="{x:.1f}" y1="{y - 7}" x2="{x:.1f}" y2="{y + 7}" class="truth"/>')
    return parts


def _x(value: float) -> float:
    return _LEFT + min(max(value, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT)
