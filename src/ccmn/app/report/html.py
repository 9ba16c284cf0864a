"""HTML pages, rendered with Jinja2: one file each, without external requests.

A script in the page sorts tables and filters label issues. The content security policy permits no other script.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from statistics import NormalDist
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from ccmn._pictures import encode_png
from ccmn._validation import FloatArray
from ccmn.app.report.console import metric_title
from ccmn.app.report.facts import (
    MAX_DRAWN_LABELS,
    RECALL_LEVELS,
    AnnotatorFacts,
    CooccurrenceFacts,
    DataFacts,
    IssueFacts,
    LabelRateFacts,
    MetricFacts,
    MetricRow,
    MetricValue,
    PrecisionRecallFacts,
    RateFact,
    RateFacts,
    Report,
    out_of_range_note,
)
from ccmn.app.report.svg import (
    Bar,
    Dot,
    Interval,
    axis_end,
    bar_chart,
    color,
    dot_chart,
    heatmap,
    interval_chart,
    line_chart,
    truncate,
)
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL
from ccmn.metrics import METRICS

_NORMAL_QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2)
"""Half of the width of a confidence interval in standard errors."""

_HIGHEST_PERCENTAGE = 0.999
"""Larger error probabilities are shown as "over 99.9%": an estimate is never certain."""


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """Return a picture as a PNG data URI.

    >>> data_uri(np.zeros((1, 2), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()


_ENVIRONMENT = Environment(
    loader=PackageLoader("ccmn.app.report"),
    autoescape=True,
    undefined=StrictUndefined,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["data_uri"] = data_uri
_ENVIRONMENT.globals["color"] = color
_ENVIRONMENT.tests["numeric"] = lambda text: re.match(r"[-+≤<]?\s*\.?\d|–$", text) is not None


def render_page(template: str, **context: Any) -> str:
    """Render a template that extends ``base.html``, with the style sheet in the page."""
    style, script = (files("ccmn.app.report").joinpath(name).read_text() for name in ("page.css", "page.js"))
    script_hash = f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    return _ENVIRONMENT.get_template(template).render(
        style=Markup(style), script=Markup(script), script_hash=script_hash, **context
    )


def report_page(report: Report) -> str:
    """Render the report of an audit, an evaluation or the demo."""
    order = sorted(_VIEWS, key=lambda name: name != report.first)
    sections = {name: _VIEWS[name](facts) for name in order if (facts := getattr(report, name)) is not None}
    return render_page("report.html", title=report.title, lead=report.lead, warnings=report.warnings, sections=sections)


def _data(facts: DataFacts) -> dict[str, Any]:
    shares = facts.shares
    most_frequent = sorted(range(facts.q), key=lambda j: -shares[j])[:MAX_DRAWN_LABELS]
    title = "share of rows with each label"
    title += f", {MAX_DRAWN_LABELS} most frequent" if facts.q > MAX_DRAWN_LABELS else ""
    chart = bar_chart([Bar(facts.labels[j], shares[j]) for j in most_frequent], title, title)
    columns = zip(facts.labels, facts.given.tolist(), facts.observed.tolist(), shares)
    rows = [(name, str(given), str(observed), f"{share:.3f}") for name, given, observed, share in columns]
    return {
        "facts": facts,
        "cardinality": facts.given.sum() / max(facts.n, 1),
        "observed": facts.observed.sum() / max(facts.n * facts.q, 1),
        "charts": [chart],
        "head": ("label", "given", "observed", "share"),
        "rows": rows,
    }


def _rates(facts: RateFacts) -> dict[str, Any]:
    drawn = facts.labels[:MAX_DRAWN_LABELS]
    charts = {
        "missing-label rate, rho_pos": [_interval(label.name, label.rho_pos) for label in drawn],
        "added-label rate, rho_neg": [_interval(label.name, label.rho_neg) for label in drawn],
    }
    end = axis_end(value for values in charts.values() for value in values)
    true = any(label.rho_pos.true is not None for label in facts.labels)
    columns = ("from", "to", "true") if true else ("from", "to")
    return {
        "facts": facts,
        "intervals": any(value.low < value.high for values in charts.values() for value in values),
        "true": true,
        "not_drawn": len(facts.labels) - len(drawn),
        "charts": [interval_chart(values, end, title, title) for title, values in charts.items()],
        "head": ("label", "missing", *columns, "added", *columns),
        "rows": [_rate_cells(label, true) for label in facts.labels],
    }


def _annotators(facts: AnnotatorFacts) -> dict[str, Any]:
    drawn = facts.annotators[:MAX_DRAWN_LABELS]
    charts = {
        "mean missing-label rate": [_interval(annotator.name, annotator.rho_pos) for annotator in drawn],
        "mean added-label rate": [_interval(annotator.name, annotator.rho_neg) for annotator in drawn],
    }
    end = axis_end(value for values in charts.values() for value in values)
    return {
        "facts": facts,
        "not_drawn": len(facts.annotators) - len(drawn),
        "charts": [interval_chart(values, end, title, title) for title, values in charts.items()],
    }


def _interval(name: str, rate: RateFact) -> Interval:
    return Interval(name, rate.value, rate.low, rate.high, rate.true)


def _rate_cells(label: LabelRateFacts, true: bool) -> tuple[str, ...]:
    numbers: list[float | None] = []
    for rate in (label.rho_pos, label.rho_neg):
        numbers += (rate.value, rate.low, rate.high, rate.true) if true else (rate.value, rate.low, rate.high)
    return (label.name, *("" if number is None else f"{number:.3f}" for number in numbers))


def _metrics(facts: MetricFacts) -> dict[str, Any]:
    names = list(facts.rows[0].values)
    titles = [f"{metric_title(name)} {'↑' if METRICS[name].greater_is_better else '↓'}" for name in names]
    charts = []
    for name, title in zip(names, titles):
        dots = [_metric_dot(row, row.values[name]) for row in facts.rows]
        if any(math.isfinite(dot.value) for dot in dots):
            # Metrics to be maximized are at most 1: an axis that ends before would make poor values look good.
            end = 1.0 if METRICS[name].greater_is_better else None
            charts.append(dot_chart(dots, title, metric_title(name), end=end))
    return {
        "facts": facts,
        "level": CONFIDENCE_LEVEL,
        "charts": charts,
        "notes": [out_of_range_note(bounds) for bounds in sorted(_exceeded_bounds(facts))],
        "head": ("", *(row.full_name for row in facts.rows)),
        "rows": [
            (title, *(_metric_cell(row.values[name]) for row in facts.rows)) for name, title in zip(names, titles)
        ],
    }


def _exceeded_bounds(facts: MetricFacts) -> set[tuple[float, float]]:
    return {metric.bounds for row in facts.rows for metric in row.values.values() if metric.out_of_range}


def _metric_dot(row: MetricRow, metric: MetricValue) -> Dot:
    # A single row has no standard error.
    half = _NORMAL_QUANTILE * (math.nan if metric.se is None else metric.se)
    low, high = metric.value - half, metric.value + half
    mark = "*" if metric.out_of_range else ""
    return Dot(row.name, metric.value, low, high, row.color, row.group, metric.bounds[1], mark)


def _metric_cell(metric: MetricValue) -> str:
    value = f"{metric.value:.4f}{'*' if metric.out_of_range else ''}"
    value += "" if metric.se is None or math.isnan(metric.se) else f" ± {metric.se:.4f}"
    return value if metric.status is None else f"{value}, {metric.status}"


def _issues(facts: IssueFacts) -> dict[str, Any]:
    return {"facts": facts, "known": facts.n_rows is not None, "highest": _HIGHEST_PERCENTAGE}


def _precision_recall(facts: PrecisionRecallFacts) -> dict[str, Any]:
    colors = {name: number for number, name in enumerate(facts.curve_names)}
    charts = []
    for name, curves in facts.labels[:MAX_DRAWN_LABELS]:
        if curves:
            averages = (f"{curves[curve].average:.2f}" if curve in curves else "–" for curve in facts.curve_names)
            charts.append(
                line_chart(
                    {curve: list(zip(RECALL_LEVELS, curves[curve].precision)) for curve in curves},
                    f"{truncate(name, 20)} ({', '.join(averages)})",
                    f"precision and recall of {name}",
                    colors,
                    x_name="recall",
                    y_range=(0.0, 1.0),
                )
            )
    rows = [
        (name, curve_name, f"{curve.average:.3f}", *(f"{p:.2f}" for p in curve.precision))
        for name, curves in facts.labels
        for curve_name, curve in curves.items()
    ]
    return {
        "facts": facts,
        "colors": colors,
        "drawn": MAX_DRAWN_LABELS,
        "not_drawn": len(facts.labels) - MAX_DRAWN_LABELS,
        "charts": charts,
        "head": ("label", "", "average", *(f"{level:.0%}" for level in RECALL_LEVELS)),
        "rows": rows,
    }


def _cooccurrence(facts: CooccurrenceFacts) -> dict[str, Any]:
    maps = [_cooccurrence_map(facts, "as given", facts.given)]
    if facts.corrected is not None:
        maps.append(_cooccurrence_map(facts, "corrected for noise", facts.corrected))
    return {"facts": facts, "maps": maps}


def _cooccurrence_map(facts: CooccurrenceFacts, title: str, shares: FloatArray) -> dict[str, Any]:
    rows = [
        (name, *(f"{share:.2f}" if math.isfinite(share) else "–" for share in row))
        for name, row in zip(facts.names, shares.tolist())
    ]
    chart = heatmap(facts.names, shares, title, f"co-occurrence, {title}")
    return {"title": title, "chart": chart, "head": ("", *facts.names), "rows": rows}


_VIEWS: Mapping[str, Any] = {
    "rates": _rates,
    "annotators": _annotators,
    "metrics": _metrics,
    "issues": _issues,
    "precision_recall": _precision_recall,
    "data": _data,
    "cooccurrence": _cooccurrence,
}
"""Sections in the order of the page, except that ``Report.first`` comes first.

Each field of the report has a function from its facts to charts and table cells. The facts of a section are the numbers
and texts that it shows (:mod:`ccmn.app.report.facts`).
"""
