"""Precision and recall, label by label."""

from __future__ import annotations

from ccmn.report.drawing.lines import colour_key, lines
from ccmn.report.drawing.svg import cut
from ccmn.report.facts.precision_recall import LEVELS, MOST_DRAWN, PrecisionRecallFacts
from ccmn.report.pages.frame import numbers, paragraph, section


def precision_recall_section(facts: PrecisionRecallFacts) -> str:
    """A small drawing per label, a curve per way; the numbers of all curves in one table."""
    colours = {way: number for number, way in enumerate(facts.ways)}
    drawn = []
    for name, curves in facts.labels[:MOST_DRAWN]:
        series = {way: list(zip(LEVELS, curve.precision)) for way, curve in curves.items()}
        if series:
            averages = ", ".join(f"{curves[way].average:.2f}" if way in curves else "–" for way in facts.ways)
            title = f"{cut(name, 20)} ({averages})"
            label = f"precision and recall of {name}"
            drawn.append(lines(series, title, label, colours, x_name="recall", y_range=(0.0, 1.0)))
    rows = [
        (name, way, f"{curve.average:.3f}", *(f"{p:.2f}" for p in curve.precision))
        for name, curves in facts.labels
        for way, curve in curves.items()
    ]
    table = numbers(("label", "", "average", *(f"{level:.0%}" for level in LEVELS)), rows)
    text = f"{facts.note} Precision upwards, recall to the right; behind the name, average precision."
    rest = len(facts.labels) - MOST_DRAWN
    text += f" Drawn for the first {MOST_DRAWN} labels; the other {rest} are in the table." if rest > 0 else ""
    figures = f'{colour_key(colours)}<div class="figures">{"".join(drawn)}</div>'
    return section("precision", "Precision and recall", paragraph(text), figures, table)
