"""Average ranks of methods on a line, with the critical difference."""

from __future__ import annotations

from html import escape

from ccmn.experiments.statistics import Friedman
from ccmn.report.drawing.svg import cut, room, svg

_MOST_CHARACTERS = 36


def critical_difference(test: Friedman, control: str, label: str) -> str:
    """Average ranks on a line, best on the right; what the bar of the control does not reach differs from it."""
    # The control is set in bold, a little wider than what a name is reckoned at.
    k, margin = len(test.methods), 30 + 1.15 * room((f"{method} 00.00" for method in test.methods), _MOST_CHARACTERS)
    width = round(260 + 2 * margin)
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
        end, anchor = (round(margin - 8), "end") if left else (round(width - margin + 8), "start")
        style = ' class="control"' if method == control else ""
        parts.append(f'<polyline points="{x(rank):.1f},30 {x(rank):.1f},{y - 4} {end},{y - 4}" class="line"/>')
        parts.append(
            f'<text x="{end + (-4 if left else 4)}" y="{y}" text-anchor="{anchor}"{style}>'
            f"{escape(cut(method, _MOST_CHARACTERS - 6))} {rank:.2f}</text>"
        )
    at = dict(zip(test.methods, test.ranks))[control]
    reach = (max(low, at - test.critical_difference), min(high, at + test.critical_difference))
    parts.append(f'<line x1="{x(reach[1]):.1f}" y1="36" x2="{x(reach[0]):.1f}" y2="36" class="bar"/>')
    return svg(width, height, parts, label)
