"""A square matrix of shares as shades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ccmn.report.drawing.svg import shortened, svg
from ccmn.validation import FloatArray

_LEFT = 96


def heatmap(names: Sequence[str], shares: FloatArray, title: str, label: str) -> str:
    """The darker, the larger; names at the rows, and turned by a quarter at the columns. NaN is left empty."""
    step = max(9, min(26, 300 // len(names)))
    size = step * len(names)
    parts = [f'<text x="0" y="14" class="title">{escape(title)}</text>', '<g class="cells">']
    for j, row in enumerate(shares.tolist()):
        for k, share in enumerate(row):
            if math.isfinite(share) and round(share, 2) > 0:
                parts.append(
                    f'<rect x="{_LEFT + step * k}" y="{_LEFT + step * j}" width="{step - 1}" height="{step - 1}" '
                    f'opacity="{share:.2g}"/>'
                )
    parts.append("</g>")
    for j, name in enumerate(names):
        at = _LEFT + step * j + step // 2 + 3
        text = shortened(name, 14)
        parts.append(f'<text x="{_LEFT - 5}" y="{at}" text-anchor="end">{text}</text>')
        parts.append(f'<text transform="translate({at},{_LEFT - 5}) rotate(-90)">{text}</text>')
    return svg(_LEFT + size + 4, _LEFT + size + 4, parts, label)
