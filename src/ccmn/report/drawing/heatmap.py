"""A square matrix of shares as shades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ccmn._validation import FloatArray
from ccmn.report.drawing.svg import cut, room, svg

_MOST_CHARACTERS = 16


def heatmap(names: Sequence[str], shares: FloatArray, title: str, label: str) -> str:
    """The darker, the larger; names at the rows, and turned by a quarter at the columns. NaN is left empty."""
    step = max(9, min(26, 300 // max(len(names), 1)))
    left = 12 + round(room(names, _MOST_CHARACTERS))
    top = left + 20
    parts = [f'<text x="0" y="14" class="title">{escape(title)}</text>', '<g class="cells">']
    for j, row in enumerate(shares.tolist()):
        parts += (_cell(left + step * k, top + step * j, step - 1, share) for k, share in enumerate(row))
    parts.append("</g>")
    for j, name in enumerate(names):
        at, text = step * j + step // 2 + 3, escape(cut(name, _MOST_CHARACTERS))
        parts.append(f'<text x="{left - 5}" y="{top + at}" text-anchor="end">{text}</text>')
        parts.append(f'<text transform="translate({left + at},{top - 5}) rotate(-90)">{text}</text>')
    size = step * len(names) + 4
    return svg(left + size, top + size, parts, label)


def _cell(x: int, y: int, size: int, share: float) -> str:
    if not math.isfinite(share) or round(share, 2) <= 0:
        return ""
    return f'<rect x="{x}" y="{y}" width="{size}" height="{size}" opacity="{share:.2g}"/>'
