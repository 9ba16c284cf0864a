"""Learning curves."""

from __future__ import annotations

from ccmn.report.drawing.lines import colour_key, lines
from ccmn.report.facts.curves import Chart, CurveFacts
from ccmn.report.pages.frame import numbers, paragraph, section


def curves_section(facts: CurveFacts) -> str:
    """A drawing per quantity; the numbers of each behind a click."""
    colours: dict[str, int] = {}
    for chart in facts.charts:
        for name in chart.series:
            colours.setdefault(name, len(colours))
    drawn = "".join(
        f"<div>{lines(chart.series, chart.title, chart.title, colours, x_name=chart.x_name)}{_numbers(chart)}</div>"
        for chart in facts.charts
    )
    figures = f'{colour_key(colours)}<div class="figures">{drawn}</div>'
    return section("learning", "Learning curves", paragraph(facts.note), figures)


def _numbers(chart: Chart) -> str:
    """A line per place, a column per curve."""
    places = sorted({x for points in chart.series.values() for x, _ in points})
    at = {name: dict(points) for name, points in chart.series.items()}
    rows = [(f"{x:.4g}", *(_cell(values.get(x)) for values in at.values())) for x in places]
    return numbers((chart.x_name.rstrip(","), *at), rows)


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
