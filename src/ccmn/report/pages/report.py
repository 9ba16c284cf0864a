"""The report of an audit, an evaluation or the demonstration: everything that is known, on one page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccmn.report.facts.report import Report
from ccmn.report.pages.frame import page, paragraph
from ccmn.report.pages.sections.cooccurrence import cooccurrence_section
from ccmn.report.pages.sections.curves import curves_section
from ccmn.report.pages.sections.data import data_section
from ccmn.report.pages.sections.metrics import metrics_section
from ccmn.report.pages.sections.precision_recall import precision_recall_section
from ccmn.report.pages.sections.rates import rates_section
from ccmn.report.pages.sections.suspects import suspects_section

_SECTIONS: dict[str, tuple[str, str, Callable[[Any], str]]] = {
    "data": ("data", "data", data_section),
    "rates": ("rates", "noise rates", rates_section),
    "metrics": ("metrics", "how good", metrics_section),
    "suspects": ("suspicious", "suspicious labels", suspects_section),
    "precision_recall": ("precision", "precision and recall", precision_recall_section),
    "cooccurrence": ("together", "labels together", cooccurrence_section),
    "curves": ("learning", "learning curves", curves_section),
}
"""By field of the report: the heading to link to, its short name, and what draws it."""


def report_page(report: Report) -> str:
    """The whole page as HTML."""
    there = {field: row for field, row in _SECTIONS.items() if getattr(report, field) is not None}
    links = "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name, _ in there.values())
    lead = "".join(paragraph(sentence) for sentence in report.lead)
    body = (draw(getattr(report, field)) for field, (_, _, draw) in there.items())
    return page(report.title, report.title, (f"<nav>{links}</nav>{lead}", *body))
