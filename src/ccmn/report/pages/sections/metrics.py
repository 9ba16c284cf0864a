"""How good the predictions are."""

from __future__ import annotations

import math

from ccmn.metrics import METRICS
from ccmn.report.drawing.bars import Bar, bars
from ccmn.report.facts.metrics import Figure, MetricFacts, MetricLine
from ccmn.report.pages.frame import numbers, paragraph, section


def metrics_section(facts: MetricFacts) -> str:
    """A drawing per metric, a bar per line; everything in one table."""
    names = list(facts.lines[0].figures)
    drawn = "".join(_drawing(facts, name) for name in names)
    rows = [(line.name, *(_cell(line.figures[name]) for name in names)) for line in facts.lines]
    table = numbers(("", *(_title(name) for name in names)), rows)
    return section("metrics", "How good", paragraph(facts.note), f'<div class="figures">{drawn}</div>', table)


def _drawing(facts: MetricFacts, name: str) -> str:
    values = [_bar(line, line.figures[name]) for line in facts.lines if math.isfinite(line.figures[name].value)]
    return bars(values, _title(name), name.replace("_", " ")) if values else ""


def _bar(line: MetricLine, figure: Figure) -> Bar:
    # Of a single row there is no standard error.
    se = figure.se if figure.se is not None and math.isfinite(figure.se) else 0.0
    return Bar(line.name, figure.value, se, line.colour)


def _title(name: str) -> str:
    return f"{name.replace('_', ' ')} {'↑' if METRICS[name].greater_is_better else '↓'}"


def _cell(figure: Figure) -> str:
    if figure.se is None:
        return f"{figure.value:.4f}"
    return f"{figure.value:.4f} ± {figure.se:.4f}, {figure.status}"
