"""Sections of reports: sentences, charts, cards of rows, and the numbers behind them in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup

from ccmn._validation import FloatArray
from ccmn.app.report.facts import (
    AS_GIVEN,
    CORRECTED,
    MetricRow,
    average_precisions,
    measure,
    out_of_range_notes,
    rows_with_labels,
)
from ccmn.app.report.html import Mark, row_chart
from ccmn.app.report.instances import Instance, Show
from ccmn.app.report.tables import (
    TableData,
    annotator_table,
    decimals,
    directed_title,
    metrics_table,
    rate_warnings,
    rates_table,
)
from ccmn.estimation import NoiseRates
from ccmn.estimation.noise_rates import CONFIDENCE_LEVEL
from ccmn.metrics import METRICS
from ccmn.metrics.metric import Noise
from ccmn.noise import ClassConditionalNoise, NoiseModel

if TYPE_CHECKING:
    import pandas as pd

MAX_DRAWN = 60
"""Charts show at most this number of labels; tables contain all of them."""
MAX_SHARE = 0.99
"""Larger error probabilities are shown as this one: an estimate is never certain."""
REVIEW_ADDRESS = "http://127.0.0.1:8765"
"""Address of ``ccmn review`` if its port is free, for links from reports."""

_NORMAL_QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2)
"""Half of the width of a confidence interval in standard errors."""
_RATES = {"pos": "missing-label rate, rho_pos", "neg": "added-label rate, rho_neg"}


class Card(NamedTuple):
    """Row with suspicious labels."""

    row: int
    heading: str
    """Number and identifier of the row, and the labels given to it."""
    issues: Sequence[tuple[str, str, bool | None]]
    """Suspicious labels: name, what is suspicious, and whether the label is wrong, if that is known."""
    instance: Instance


@dataclass(frozen=True, eq=False)
class Section:
    """Section of a report. Without cards, charts or a table, these are left out."""

    id: str
    title: str
    notes: Sequence[str] = ()
    """One string per paragraph."""
    charts: Sequence[Markup] = ()
    cards: Sequence[Card] = ()
    review_url: str | None = None
    """Address of the web app that the cards link to."""
    table: TableData | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Report:
    """Report: an introduction, numbers about the data, and sections in their order."""

    title: str
    lead: str
    tiles: Sequence[tuple[str, str]]
    """Numbers and what they count."""
    sections: Sequence[Section]
    note: str = ""
    warnings: Sequence[str] = ()
    """The most important one first."""


def data_tiles(d: int, Y: FloatArray) -> list[tuple[str, str]]:
    """Return the size of the data; NaN means not observed.

    >>> data_tiles(3, np.array([[1, 0], [0, np.nan]]))[3:]
    [('0.50', 'labels per row'), ('1', 'rows without a label'), ('75 %', 'of the labels observed')]
    """
    n, q = Y.shape
    observed, empty = (~np.isnan(Y)).mean(), int((~(Y == 1).any(1)).sum())
    tiles = [(f"{n:,}", "rows"), (f"{d:,}", "features"), (f"{q:,}", "labels")]
    tiles += [(f"{(Y == 1).sum() / max(n, 1):.2f}", "labels per row"), (f"{empty:,}", "rows without a label")]
    return tiles if observed == 1 else [*tiles, (f"{100 * observed:.0f} %", "of the labels observed")]


def labels_section(Y: FloatArray, names: Sequence[str]) -> Section:
    """Return how often each label is given."""
    given, observed = (Y == 1).sum(0), (~np.isnan(Y)).sum(0)
    share = given / np.maximum(observed, 1)
    columns = zip(names, given.tolist(), observed.tolist(), share.tolist())
    rows = [(name, str(count), str(of), f"{value:.3f}") for name, count, of, value in columns]
    drawn = np.argsort(-share, kind="stable")[:MAX_DRAWN]
    title = "share of rows with each label" + (f", {MAX_DRAWN} most frequent" if len(names) > MAX_DRAWN else "")
    chart = row_chart([Mark(names[j], float(share[j]), 0.0, float(share[j])) for j in drawn], title)
    return Section(
        "data", "Given labels", charts=(chart,), table=TableData(("label", "given", "observed", "share"), rows)
    )


def rates_section(
    noise: NoiseModel | NoiseRates | None,
    names: Sequence[str],
    true: ClassConditionalNoise | None = None,
    note: str = "The rates are known: they were given by the user.",
) -> Section | None:
    """Return estimated or known noise rates; None for noise models without rates per label."""
    if not isinstance(noise, (ClassConditionalNoise, NoiseRates)):
        return None
    notes = (
        "The missing-label rate is the share of true labels that are not given; the added-label rate is the share of "
        "absent labels that are given. "
    )
    warnings: tuple[str, ...] = ()
    if isinstance(noise, NoiseRates):
        warnings = rate_warnings(noise)
        note = "The rates are estimated. Bars: 90 % intervals, which hold if errors depend only on the label."
    if true is not None:
        note += " Vertical lines: true rates, known here because the noise was simulated."
    charts = []
    for side, title in _RATES.items():
        values = getattr(noise, f"rho_{side}")
        ends = getattr(noise, f"ci_{side}", np.full((len(values), 2), np.nan)).T
        known = [None] * len(values) if true is None else getattr(true, f"rho_{side}")
        charts.append(row_chart([Mark(*line) for line in zip(names[:MAX_DRAWN], values, *ends, known)], title))
    shown = (notes + note, *_rest_is_in_the_table(len(names), "labels"))
    table = rates_table(noise, true)
    return Section("rates", "Noise rates of the labels", shown, charts, table=table, warnings=warnings)


def _rest_is_in_the_table(n: int, what: str) -> tuple[str, ...]:
    return (f"The other {n - MAX_DRAWN:,} {what} are in the table.",) if n > MAX_DRAWN else ()


def annotators_section(annotators: pd.DataFrame) -> Section:
    """Return the annotators of ``InferredLabels.annotators``, those with the most votes first."""
    groups = annotators.groupby("annotator", sort=False)
    order = groups.votes.sum().sort_values(ascending=False, kind="stable").index
    charts = []
    for side, title in _RATES.items():
        columns = [f"rho_{side}{end}" for end in ("", "_low", "_high")]
        means = groups[columns].mean().loc[order[:MAX_DRAWN]]
        charts.append(
            row_chart([Mark(str(name), *line) for name, *line in means.itertuples(name=None)], f"mean {title}")
        )
    note = (
        "Error rates of every annotator, estimated from the votes: means over the labels, annotators with the most "
        "votes first. Bars: means of the 90 % intervals. Rates that sum to 1 carry no information; a sum above 1 means "
        "that votes are inverted."
    )
    notes = (note, *_rest_is_in_the_table(len(order), "annotators"))
    table = annotator_table(annotators)
    return Section("annotators", "Error rates of the annotators", notes, charts, table=table)


def metric_rows(Y: FloatArray, scores: FloatArray, noise: Noise | None) -> tuple[list[MetricRow], str]:
    """Compute every metric on the labels as given (if all were observed) and corrected for noise (if it is known)."""
    rows, note, labeled = [], "", int(rows_with_labels(Y).sum())
    if not np.isnan(Y).any():
        rows.append(MetricRow(AS_GIVEN, measure(Y, scores, standard_errors=True), 0))
    if noise is not None:
        rows.append(MetricRow(CORRECTED, measure(Y, scores, noise), 1))
        note += (
            " Corrected values estimate the metrics on the true labels, with standard errors. Unbiased estimates are "
            "correct on average; consistent ones in the limit of many rows; approximate ones keep a bias. They use all "
            "rows: one without labels has no order, which counts as correct, in one error as wrong."
        )
    if rows and rows[0].name == AS_GIVEN and labeled < len(Y):
        note += f" Metrics of the order of labels in a row use the {labeled:,} of {len(Y):,} rows that have a label."
    return rows, note


def metrics_section(rows: list[MetricRow], note: str) -> Section:
    """Return the metrics of several models or on several sets of labels."""
    charts = []
    for name in rows[0].values:
        marks = []
        for row in rows:
            metric = row.values[name]
            half = _NORMAL_QUANTILE * (np.nan if metric.se is None else metric.se)
            ends = metric.value - half, min(metric.value + half, metric.bounds[1])
            marks.append(Mark(row.name, metric.value, *ends, None, row.color, "*" * metric.out_of_range))
        # Metrics to be maximized are at most 1: an axis that ends before would make poor values look good.
        charts.append(row_chart(marks, directed_title(name), 1.0 if METRICS[name].greater_is_better else None))
    notes = [f"{note} Bars: 90 % confidence intervals over rows."]
    notes += [f"{outside} It is drawn at the end of this range." for outside in out_of_range_notes(rows)]
    return Section("metrics", "Accuracy of the predictions", notes, charts, table=metrics_table(rows))


def label_variants(
    Y: FloatArray, scores: FloatArray, noise: NoiseModel | None
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return labels as given and, if the noise is known, debiased labels, each with the scores."""
    variants = {AS_GIVEN: (Y, scores)}
    if noise is not None:
        variants[CORRECTED] = (np.asarray(noise.debias(Y), dtype=np.float64), scores)
    return variants


def average_precision_section(
    names: Sequence[str], variants: Mapping[str, tuple[FloatArray, FloatArray]], note: str
) -> Section:
    """Return the average precision of labels (n, q), debiased or not, by scores (n, q), of every variant."""
    columns = {variant: average_precisions(*values).tolist() for variant, values in variants.items()}
    charts = [
        row_chart([Mark(*line, color=number) for line in zip(names[:MAX_DRAWN], column)], variant, 1.0)
        for number, (variant, column) in enumerate(columns.items())
    ]
    rows = list(zip(names, *(map(decimals, column) for column in columns.values())))
    notes = [note, *_rest_is_in_the_table(len(names), "labels")]
    table = TableData(("label", *variants), rows)
    return Section("average_precision", "Average precision of each label", notes, charts, table=table)


def issues_section(
    issues: pd.DataFrame,
    given: FloatArray,
    names: Sequence[str],
    show: Show,
    note: str,
    *,
    known: bool,
    max_rows: int,
    Y_true: FloatArray | None = None,
    review_command: str = "",
    ids: Sequence[str] | None = None,
) -> Section:
    """Return the first rows with listed labels (:meth:`ccmn.app.issues.Suspicions.issues`) and their contents."""
    column = {str(name): j for j, name in enumerate(names)}
    cards, verdicts = [], []
    for rank, row in enumerate(issues.row.unique()[:max_rows].tolist(), start=1):
        entries = []
        for line in issues[issues.row == row].to_dict("records"):
            suspect = "is given, perhaps false" if line["given"] else "is not given, perhaps missing"
            share = f": {100 * min(line['p_wrong'], MAX_SHARE):.0f} %" if known else ""
            wrong = None if Y_true is None else bool(Y_true[row, column[line["label"]]] != line["given"])
            entries.append((line["label"], suspect + share, wrong))
            verdicts += [] if wrong is None else [wrong]
        labels = ", ".join(str(name) for name, value in zip(names, given[row]) if value == 1)
        identifier = "" if ids is None else f" ({ids[row]})"
        heading = f"{'' if known else f'rank {rank}, '}row {row}{identifier}; labels given: {labels or 'none'}"
        cards.append(Card(row, heading, entries, show(row, column[entries[0][0]])))
    if not cards:
        note = "No label has an error probability as large as asked for."
    elif known:
        rows = f"{len(cards)} of {issues.row.nunique():,} rows with the {len(issues):,} listed labels"
        note = f"{rows}, the most probable errors first. {note}"
    else:
        note = f"The {len(cards)} most suspicious rows, by rank. {note}"
    if verdicts:
        note += f" Wrong among the suspicious labels shown: {sum(verdicts)} of {len(verdicts)}."
    notes = [note]
    if review_command:
        link = Markup("The links to rows work while the review runs in this browser: start <code>{}</code>.")
        notes.append(link.format(review_command))
    url = REVIEW_ADDRESS if review_command else None
    return Section("issues", "Suspicious labels", notes, cards=cards, review_url=url)
