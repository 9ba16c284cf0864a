"""Curves in a small frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ccmn.report.drawing.svg import colour, svg

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 270, 180, 44, 24


def lines(
    series: Mapping[str, Points],
    title: str,
    label: str,
    numbers: Mapping[str, int],
    *,
    x_name: str = "epoch",
    y_range: tuple[float, float] | None = None,
) -> str:
    """Curves of one colour each (``numbers``: which), with the range of values at the side.

    ``y_range``: the values at the bottom and the top, in place of the least and the largest.
    """
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    (x0, x1), (y0, y1) = (min(xs), max(xs)), y_range or (min(ys), max(ys))
    wide, high = max(x1 - x0, 1e-9), max(y1 - y0, 1e-9)

    def place(point: tuple[float, float]) -> str:
        x = _LEFT + (point[0] - x0) / wide * (_WIDTH - _LEFT - 8)
        y = 26 + (y1 - point[1]) / high * (_HEIGHT - 26 - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [*_frame((x0, x1), (y0, y1), title, x_name)]
    for name, points in series.items():
        drawn = " ".join(place(point) for point in points)
        parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour(numbers[name])}" stroke-width="1.5">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return svg(_WIDTH, _HEIGHT, parts, label)


def colour_key(numbers: Mapping[str, int]) -> str:
    """Which colour is what."""
    spans = (f'<span><i style="background:{colour(i)}"></i>{escape(name)}</span>' for name, i in numbers.items())
    return f'<p class="key">{"".join(spans)}</p>'


def _frame(x: tuple[float, float], y: tuple[float, float], title: str, x_name: str) -> tuple[str, ...]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - 8
    return (
        f'<text x="{_LEFT}" y="14" class="title">{escape(title)}</text>',
        f'<line x1="{_LEFT}" y1="26" x2="{_LEFT}" y2="{bottom}" class="axis"/>',
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" class="axis"/>',
        f'<text x="{_LEFT - 4}" y="32" text-anchor="end">{y[1]:.3f}</text>',
        f'<text x="{_LEFT - 4}" y="{bottom}" text-anchor="end">{y[0]:.3f}</text>',
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{x[0]:.3g}</text>',
        f'<text x="{right}" y="{_HEIGHT - 8}" text-anchor="end">{escape(x_name)} {x[1]:.3g}</text>',
    )
