"""Charts as SVG elements: small, in the colors of the page, with a text alternative.

They are drawn by hand because matplotlib's SVG files are 20 to 50 kB each and cannot follow the reader's light or dark
setting. All text is escaped by markupsafe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from ccmn._validation import FloatArray

if TYPE_CHECKING:
    from ccmn.paper.summary import Friedman

Points = Sequence[tuple[float, float]]

_HUES = (210, 25, 140, 280, 50, 340, 175, 95, 255, 0, 120, 310)

MAX_SCALE = 1.2
"""Charts are enlarged up to this factor to fill the columns of a page."""

_CHARACTER_WIDTH = 6.4
"""Approximate width of a character in pixels; fonts differ."""


class Bar(NamedTuple):
    """Bar of a chart: a name and a value of at least 0."""

    name: str
    value: float


class Dot(NamedTuple):
    """Value in a chart that compares models, with its confidence interval (NaN if it is not known).

    Value and interval are clipped to [0, ``upper``]; ``mark`` follows the number. ``group`` is the heading of
    consecutive dots.
    """

    name: str
    value: float
    low: float
    high: float
    color: int
    group: str = ""
    upper: float = math.inf
    mark: str = ""

    def clip(self, value: float) -> float:
        """Return a value clipped to [0, ``upper``]."""
        return max(min(value, self.upper), 0.0)

    @property
    def reach(self) -> float:
        """Right end of what is drawn; 0 if the value is NaN."""
        ends = [self.clip(end) for end in (self.value, self.high) if math.isfinite(end)]
        return max(ends, default=0.0)


class Interval(NamedTuple):
    """Estimate with its confidence interval, and the true value if it is known."""

    name: str
    value: float
    low: float
    high: float
    true: float | None = None


def color(number: int) -> str:
    """Return the CSS color of a series; colors are readable on light and dark pages and repeat after twelve."""
    return f"hsl({_HUES[number % len(_HUES)]} 65% 50%)"


def truncate(name: str, max_characters: int) -> str:
    """Shorten a name to at most ``max_characters`` characters.

    >>> truncate("a long name", 7), truncate("sea", 7)
    ('a long…', 'sea')
    """
    return name if len(name) <= max_characters else name[: max_characters - 1] + "…"


def bar_chart(bars: Sequence[Bar], title: str, label: str) -> Markup:
    """Draw horizontal bars from 0."""
    width, right, top, step, max_characters = 340, 46, 30, 20, 26
    longest = max((bar.value for bar in bars), default=1.0)
    left = 8 + _text_width((bar.name for bar in bars), max_characters)
    scale = (width - left - right) / max(longest, 1e-9)
    parts = [_text(0, 14, title, class_="title")]
    for i, bar in enumerate(bars):
        y, length = top + step * i, bar.value * scale
        parts += [
            _text(f"{left - 6:.1f}", y + 8, truncate(bar.name, max_characters), text_anchor="end"),
            _tag("rect", x=f"{left:.1f}", y=y - 3, width=f"{length:.1f}", height=14, rx=2, fill=color(0)),
            _text(f"{left + length + 5:.1f}", y + 8, f"{bar.value:.3f}"),
        ]
    return _svg(width, top + step * len(bars), parts, label)


def dot_chart(dots: Sequence[Dot], title: str, label: str, *, end: float | None = None) -> Markup:
    """Draw one line per model on an axis from 0: the value (dot and number) and its confidence interval (bar).

    The axis ends at ``end``, by default at the first of 1, 2, 5 times a power of ten that contains all values.
    """
    width, right, y, step, max_characters = 340, 54, 24, 20, 26
    end = end or _round_up(max((dot.reach for dot in dots), default=1.0))
    left = 14 + _text_width((dot.name for dot in dots), max_characters)
    scale = (width - left - right) / end
    parts = [_text(0, 14, title, class_="title")]
    group = ""
    for dot in dots:
        if dot.group != group:
            group, y = dot.group, y + step
            parts.append(_text(0, y, group, class_="group"))
        y += step
        parts.append(_text(f"{left - 12:.1f}", y, truncate(dot.name, max_characters), text_anchor="end"))
        parts.append(_line(f"{left:.1f}", y - 4, width - right, y - 4, "grid"))
        if not math.isfinite(dot.value):
            parts.append(_text(width - right + 8, y, "none"))
            continue
        at, fill = left + dot.clip(dot.value) * scale, color(dot.color)
        if math.isfinite(dot.low) and math.isfinite(dot.high):
            ends = [f"{left + dot.clip(end) * scale:.1f}" for end in (dot.low, dot.high)]
            parts.append(
                _tag("line", x1=ends[0], y1=y - 4, x2=ends[1], y2=y - 4, stroke=fill, stroke_width=6, opacity=0.4)
            )
        parts.append(_tag("circle", cx=f"{at:.1f}", cy=y - 4, r=4, fill=fill))
        parts.append(_text(width - right + 8, y, f"{dot.value:.3f}{dot.mark}"))
    y += 14
    parts += [_text(f"{left:.1f}", y, "0", class_="tick"), _text(width - right, y, f"{end:g}", class_="tick")]
    return _svg(width, y + 6, parts, label)


def _round_up(value: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below a value; 1 for 0.

    >>> _round_up(0.19), _round_up(0.5), _round_up(7.0), _round_up(0.0)
    (0.2, 0.5, 10.0, 1.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((float(f"{factor * power:.1g}") for factor in (1, 2, 5) if value <= factor * power), 10 * power)


def axis_end(values: Iterable[Interval]) -> float:
    """Return the end of an axis from 0 (0.1, 0.2, 0.5 or 1) that contains all values.

    >>> axis_end([Interval("sea", 0.2, 0.1, 0.35)])
    0.5
    """
    largest = max((max(value.high, value.value, value.true or 0.0) for value in values), default=1.0)
    return next((end for end in (0.1, 0.2, 0.5) if largest <= end), 1.0)


def interval_chart(values: Sequence[Interval], end: float, title: str, label: str) -> Markup:
    """Draw estimates (dots), intervals (bars) and true values (vertical lines) on an axis from 0 to ``end``."""
    scale, right, top, step, max_characters = 240, 12, 30, 20, 20
    left = 16 + _text_width((value.name for value in values), max_characters)
    height = top + step * len(values) + 26

    def x(value: float) -> str:
        return f"{left + value / end * scale:.1f}"

    parts = [_text(f"{left:.1f}", 14, title, class_="title")]
    for tick in range(6):
        at = f"{left + scale * tick / 5:.1f}"
        parts.append(_line(at, top - 8, at, height - 22, "grid"))
        parts.append(_text(at, height - 8, f"{tick / 5 * end:.2g}", text_anchor="middle"))
    for i, value in enumerate(values):
        y = top + step * i + 4
        parts += [
            _text(f"{left - 10:.1f}", y + 4, truncate(value.name, max_characters), text_anchor="end"),
            _line(x(value.low), y, x(value.high), y, "reach"),
            _tag("circle", cx=x(value.value), cy=y, r=4, class_="dot"),
        ]
        if value.true is not None:
            parts.append(_line(x(value.true), y - 7, x(value.true), y + 7, "truth"))
    return _svg(round(left) + scale + right, height, parts, label)


def line_chart(
    series: Mapping[str, Points],
    title: str,
    label: str,
    colors: Mapping[str, int],
    *,
    x_name: str = "epoch",
    y_range: tuple[float, float] | None = None,
) -> Markup:
    """Draw curves; ``y_range`` overrides the range of the vertical axis, which is that of the data by default."""
    width, height, left, top = 270, 180, 44, 26
    bottom, right = height - 24, width - 8
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    (x0, x1), (y0, y1) = (min(xs), max(xs)), y_range or (min(ys), max(ys))
    x_span, y_span = max(x1 - x0, 1e-9), max(y1 - y0, 1e-9)

    def place(point: tuple[float, float]) -> str:
        x = left + (point[0] - x0) / x_span * (right - left)
        y = top + (y1 - point[1]) / y_span * (bottom - top)
        return f"{x:.1f},{y:.1f}"

    parts = [
        _text(left, 14, title, class_="title"),
        _line(left, top, left, bottom, "axis"),
        _line(left, bottom, right, bottom, "axis"),
        _text(left - 4, top + 6, f"{y1:.3f}", text_anchor="end"),
        _text(left - 4, bottom, f"{y0:.3f}", text_anchor="end"),
        _text(left, height - 8, f"{x0:.3g}"),
        _text(right, height - 8, f"{x_name} = {x1:.3g}", text_anchor="end"),
    ]
    for name, points in series.items():
        drawn = " ".join(place(point) for point in points)
        name_on_hover = _tag("title", name)
        parts.append(
            _tag("polyline", name_on_hover, points=drawn, fill="none", stroke=color(colors[name]), stroke_width="1.5")
        )
    return _svg(width, height, parts, label)


def heatmap(names: Sequence[str], shares: FloatArray, title: str, label: str) -> Markup:
    """Draw a square matrix of shares in [0, 1]; larger shares are darker, NaN is empty."""
    max_characters = 16
    step = max(9, min(26, 300 // max(len(names), 1)))
    left = 12 + round(_text_width(names, max_characters))
    top = left + 20
    cells = [
        _tag("rect", x=left + step * k, y=top + step * j, width=step - 1, height=step - 1, opacity=f"{share:.2g}")
        for j, row in enumerate(shares.tolist())
        for k, share in enumerate(row)
        if math.isfinite(share) and round(share, 2) > 0
    ]
    parts = [_text(0, 14, title, class_="title"), _tag("g", Markup("").join(cells), class_="cells")]
    for j, name in enumerate(names):
        at, shown = step * j + step // 2 + 3, truncate(name, max_characters)
        parts.append(_text(left - 5, top + at, shown, text_anchor="end"))
        parts.append(_tag("text", shown, transform=f"translate({left + at},{top - 5}) rotate(-90)"))
    size = step * len(names) + 4
    return _svg(left + size, top + size, parts, label)


def rank_chart(test: Friedman, control: str, label: str) -> Markup:
    """Draw a critical difference diagram: average ranks with the best at the right, and a bar around the control.

    Methods outside the bar differ significantly from the control.
    """
    max_characters = 36
    # The name of the control is bold, hence a little wider than _text_width assumes.
    names = (f"{method} 00.00" for method in test.methods)
    k, margin = len(test.methods), 30 + 1.15 * _text_width(names, max_characters)
    width = round(260 + 2 * margin)
    low, high = 1.0, float(k)

    def x(rank: float) -> str:
        return f"{margin + (high - rank) / (high - low) * (width - 2 * margin):.1f}"

    half = (k + 1) // 2
    parts = [_line(x(high), 30, x(low), 30, "axis")]
    for tick in range(1, k + 1):
        parts.append(_line(x(tick), 25, x(tick), 30, "axis"))
        parts.append(_text(x(tick), 20, str(tick), text_anchor="middle"))
    for i, (rank, method) in enumerate(sorted(zip(test.ranks, test.methods), reverse=True)):
        at_left = i < half
        y = 52 + 18 * (i if at_left else k - 1 - i)
        end, anchor = (round(margin - 8), "end") if at_left else (round(width - margin + 8), "start")
        style = {"class_": "control"} if method == control else {}
        name = f"{truncate(method, max_characters - 6)} {rank:.2f}"
        parts.append(_tag("polyline", points=f"{x(rank)},30 {x(rank)},{y - 4} {end},{y - 4}", class_="line"))
        parts.append(_text(end + (-4 if at_left else 4), y, name, text_anchor=anchor, **style))
    center = dict(zip(test.methods, test.ranks))[control]
    first, last = max(low, center - test.critical_difference), min(high, center + test.critical_difference)
    parts.append(_line(x(last), 36, x(first), 36, "bar"))
    return _svg(width, 60 + 18 * half, parts, label)


def _text_width(names: Iterable[str], max_characters: int) -> float:
    """Return the approximate width in pixels of the longest name after truncation."""
    return _CHARACTER_WIDTH * min(max_characters, max((len(name) for name in names), default=0))


def _svg(width: int, height: int, parts: Iterable[Markup], label: str) -> Markup:
    """Return the whole chart with a label for screen readers."""
    size = f'width="{width}" height="{height}" style="max-width: {round(MAX_SCALE * width)}px"'
    return Markup('<svg viewBox="0 0 {} {}" {} role="img" aria-label="{}">{}</svg>').format(
        width, height, Markup(size), label, Markup("").join(parts)
    )


def _text(x: Any, y: Any, content: str, **attributes: Any) -> Markup:
    return _tag("text", content, x=x, y=y, **attributes)


def _line(x1: Any, y1: Any, x2: Any, y2: Any, css_class: str) -> Markup:
    return _tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=css_class)


def _tag(element: str, content: str | None = None, **attributes: Any) -> Markup:
    """Return an element; content and attribute values are escaped, ``_`` in attribute names stands for ``-``."""
    shown = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
    inside = "/>" if content is None else f">{escape(content)}</{element}>"
    return Markup(f"<{element}{shown}{inside}")
