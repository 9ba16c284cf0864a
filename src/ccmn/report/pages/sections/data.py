"""The data: their size, and how often each label is given."""

from __future__ import annotations

from ccmn.report.drawing.bars import Bar, bars
from ccmn.report.facts.data import DataFacts
from ccmn.report.pages.frame import numbers, section, tiles

_MOST_DRAWN = 60


def data_section(facts: DataFacts) -> str:
    """Tiles with the size, bars for the labels."""
    size = {
        "rows": f"{facts.n:,}",
        "features": f"{facts.d:,}",
        "labels": str(facts.q),
        "labels per row": f"{facts.cardinality:.2f}",
        "rows without a label": f"{facts.rows_without_labels:,}",
    }
    if facts.observed < 1:
        size["of the labels observed"] = f"{facts.observed:.1%}"
    commonest = sorted(facts.labels, key=lambda label: -label.share)[:_MOST_DRAWN]
    title = "share of rows given the label" + (f", the {_MOST_DRAWN} commonest" if facts.q > _MOST_DRAWN else "")
    drawn = bars([Bar(label.name, label.share, 0.0, 0) for label in commonest], title, title)
    rows = ((c.name, str(c.given), str(c.observed), f"{c.share:.4f}") for c in facts.labels)
    table = numbers(("label", "given", "observed", "share"), rows)
    return section("data", "The data", tiles(size), f'<div class="figures">{drawn}</div>', table)
