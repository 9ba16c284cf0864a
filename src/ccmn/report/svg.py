"""Small drawings as SVG text: no library, no script, in the colours of the page they stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ccmn.experiments.statistics import Friedman

Points = Sequence[tuple[float, float]]

_HUES = (210, 25, 140, 280, 50, 340, 175, 95, 255, 0, 120, 310)


def colour(number: int) -> str:
    """A colour of its own for each of a dozen lines, readable on light and on dark."""
    return f"hsl({_HUES[number % len(_HUES)]} 65% 50%)"


def critical_difference(test: Friedman, control: str, label: str) -> str:
    """Average ranks on a line, best on the right; what the bar of the control does not reach differs from it."""
    k, width, margin = len(test.methods), 640, 190
    low, high = 1.0, float(k)

    def x(rank: float) -> float:
        return margin + (high - rank) / (high - low) * (width - 2 * margin)

    order = sorted(zip(test.ranks, test.methods), reverse=True)
    half = (k + 1) // 2
    height = 60 + 18 * half
    parts = [f'<line x1="{x(high):.1f}" y1="30" x2="{x(low):.1f}" y2="30" class="axis"/>']
    for tick in range(1, k + 1):
        parts.append(f'<line x1="{x(tick):.1f}" y1="25" x2="{x(tick):.1f}" y2="30" class="axis"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="20" text-anchor="middle">{tick}</text>')
    for i, (rank, method) in enumerate(order):
        left = i < half
        y = 52 + 18 * (i if left else k - 1 - i)
        end, anchor = (margin - 8, "end") if left else (width - margin + 8, "start")
        style = ' class="control"' if method == control else ""
        parts.append(f'<polyline points="{x(rank):.1f},30 {x(rank):.1f},{y - 4} {end},{y - 4}" class="line"/>')
        parts.append(
            f'<text x="{end + (-4 if left else 4)}" y="{y}" text-anchor="{anchor}"{style}>'
            f"{escape(method)} {rank:.2f}</text>"
        )
    at = dict(zip(test.methods, test.ranks))[control]
    reach = (max(low, at - test.critical_difference), min(high, at + test.critical_difference))
    parts.append(f'<line x1="{x(reach[1]):.1f}" y1="36" x2="{x(reach[0]):.1f}" y2="36" class="bar"/>')
    return _svg(width, height, parts, label)


def lines(series: Mapping[str, Points], title: str, label: str, numbers: Mapping[str, int]) -> str:
    """Curves over epochs, one colour each (``numbers``: which), with the range of values at the side."""
    width, height, left, bottom = 300, 190, 44, 24
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    (x0, x1), (y0, y1) = (min(xs), max(xs)), (min(ys), max(ys))
    wide, high = max(x1 - x0, 1e-9), max(y1 - y0, 1e-9)

    def place(point: tuple[float, float]) -> str:
        x = left + (point[0] - x0) / wide * (width - left - 8)
        y = 26 + (y1 - point[1]) / high * (height - 26 - bottom)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<text x="{left}" y="14" class="title">{escape(title)}</text>',
        f'<line x1="{left}" y1="26" x2="{left}" y2="{height - bottom}" class="axis"/>',
        f'<line x1="{left}" y1="{height - bottom}" x2="{width - 8}" y2="{height - bottom}" class="axis"/>',
        f'<text x="{left - 4}" y="32" text-anchor="end">{y1:.3f}</text>',
        f'<text x="{left - 4}" y="{height - bottom}" text-anchor="end">{y0:.3f}</text>',
        f'<text x="{left}" y="{height - 8}">{x0:g}</text>',
        f'<text x="{width - 8}" y="{height - 8}" text-anchor="end">epoch {x1:g}</text>',
    ]
    for name, points in series.items():
        drawn = " ".join(place(point) for point in points)
        parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour(numbers[name])}" stroke-width="1.5">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return _svg(width, height, parts, label)


def _svg(width: int, height: int, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )
