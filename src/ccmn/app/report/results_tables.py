"""Tables of stored results: sentences, terminal, LaTeX and HTML, from the same cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ccmn.app.report.html import Mark, render_page, row_chart
from ccmn.app.report.tables import TableData, metric_title
from ccmn.paper.summary import PRINTED_TOLERANCE, Summary, TableEntry
from ccmn.paper.tables import AS_PRINTED, GREATER_IS_BETTER, is_proposed, printed_values

SELECTIONS = {
    "clean": "epoch and learning rate selected on true validation labels, as in the paper",
    "noisy": "epoch and learning rate selected on noisy validation labels with corrected metrics, as in practice",
}

_MARKS = {"better": "•", "worse": "∘", "": ""}


class Block(NamedTuple):
    """Results of one metric: a row of entries per method, a column per dataset."""

    metric: str
    direction: str
    """"greater" or "smaller" values are better."""
    rows: list[tuple[str, list[TableEntry | None]]]
    """Method and its entries; None for cells that have not been run or have no finite value."""

    @property
    def name(self) -> str:
        """Metric in words."""
        return metric_title(self.metric)


def result_blocks(summary: Summary) -> Iterator[Block]:
    """Yield the results of every metric; all outputs are rendered from these blocks."""
    for metric in summary.metrics:
        rows = []
        for method in summary.methods:
            entries = [summary.entry(method, dataset, metric) for dataset in summary.datasets]
            rows.append((method, [e if e is not None and math.isfinite(e.mean) else None for e in entries]))
        yield Block(metric, "greater" if GREATER_IS_BETTER[metric] else "smaller", rows)


def headline(summary: Summary) -> str:
    """Return the title of the table with its protocol and selection."""
    return f"{summary.table.title} ({summary.protocol}; {SELECTIONS[summary.selection]})"


def result_statements(summary: Summary) -> list[str]:
    """Return sentences: agreement with the paper, unbiased versus plain losses, differences and their causes."""
    sentences = []
    agree, near, judged = summary.near_printed()
    if judged:
        sentences.append(
            f"{agree} of {judged} cells of the proposed methods are within {PRINTED_TOLERANCE} of the printed value, "
            f"and {near} are at most {PRINTED_TOLERANCE} worse."
        )
    for name in AS_PRINTED:
        correct = name.removesuffix("_as_printed")
        (as_printed, _, total), (read_correctly, _, others) = (
            summary.only(dataset).near_printed() for dataset in (name, correct)
        )
        if total and others:
            sentences.append(
                f"Within {PRINTED_TOLERANCE} of the printed values of {correct}: {as_printed} of {total} cells as the "
                f"paper most likely read it ({name}), {read_correctly} of {others} read correctly."
            )
    wins, ties, losses = summary.wins()
    if wins + ties + losses:
        sentences.append(f"Unbiased versus plain losses: {wins} wins, {ties} ties, {losses} losses.")
    better, significant, significantly_worse, total = summary.rivals()
    if total:
        sentences.append(
            f"Best unbiased loss versus the partial multi-label methods: better in {better} of {total} comparisons, "
            f"significantly in {significant}, significantly worse in {significantly_worse}."
        )
    worse = Counter(entry.method for entry in summary.entries if entry.at_level is False)
    if worse:
        counted = ", ".join(f"{method} {count}" for method, count in worse.most_common())
        sentences.append(f"Cells that are more than {PRINTED_TOLERANCE} worse than the printed value: {counted}.")
    if summary.failures:
        sentences.append(f"{len(summary.failures)} cells failed; the first error is: {summary.failures[0]}")
    return sentences


def results_tables(summary: Summary, beside: str = "") -> Iterator[TableData]:
    """Yield the tables for a terminal, with the printed values in parentheses.

    If none of the datasets has printed values, those of the dataset ``beside`` are shown in a column of their own.
    """
    published = printed_values()
    head = ("", *summary.datasets, *([f"printed for {beside}"] if beside else []))
    for block in result_blocks(summary):
        rows = []
        for method, entries in block.rows:
            value = published.get((summary.table.name, beside, method, block.metric))
            extra = [short(value.mean) if value else "-"] if beside else []
            rows.append((method, *map(_terminal_cell, entries), *extra))
        yield TableData(head, rows, f"{block.name} {'↑' if block.direction == 'greater' else '↓'}")


def _terminal_cell(entry: TableEntry | None) -> str:
    if entry is None:
        return "-"
    printed = "" if entry.printed is None else f" ({short(entry.printed.mean)})"
    return f"{short(entry.mean)}{_MARKS[entry.mark]}{'*' * entry.best}{printed}"


def short(value: float) -> str:
    """Return a value with three decimals and without the leading zero, as in the paper.

    >>> short(0.2094), short(1.0)
    ('.209', '1.000')
    """
    return f"{value:.3f}".removeprefix("0")


def results_page(summaries: Sequence[Summary]) -> str:
    """Render one page with all tables, statements and average ranks."""
    keys = dict.fromkeys((s.table.name, s.protocol) for s in summaries)
    sections = [_section_view([s for s in summaries if (s.table.name, s.protocol) == key]) for key in keys]
    return render_page(
        "results.html",
        title="Reproduced tables",
        near=PRINTED_TOLERANCE,
        marks=_MARKS,
        overview=[(_anchor(summary), _overview_row(summary)) for summary in summaries],
        sections=sections,
    )


def _anchor(summary: Summary) -> str:
    return f"{summary.table.name}-{summary.protocol}"


def _overview_row(summary: Summary) -> tuple[str, ...]:
    agree, near, judged = summary.near_printed()
    wins = " / ".join(map(str, summary.wins()))
    return summary.table.name, summary.protocol, summary.selection, f"{agree} ({near}) of {judged}", wins


def _section_view(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Return what the template shows of one table and protocol."""
    first = summaries[0]
    return {
        "anchor": _anchor(first),
        "title": f"{first.table.title}, {first.protocol}",
        "sizes": {e.dataset: e.n for e in first.entries},
        "tables": [
            {
                "selection": SELECTIONS[summary.selection].capitalize(),
                "statements": result_statements(summary),
                "datasets": summary.datasets,
                "blocks": list(result_blocks(summary)),
                "ranks": None if summary.ranking is None else _ranks_view(summary),
            }
            for summary in summaries
        ],
    }


def _ranks_view(summary: Summary) -> dict[str, Any]:
    test = summary.ranking
    assert test is not None
    ranks = dict(sorted(zip(test.methods, test.ranks), key=lambda item: item[1]))
    control = next((method for method in ranks if is_proposed(method)), test.methods[0])
    width = test.critical_difference
    marks = [
        Mark(method, rank, *((max(rank - width, 0.0), rank + width) if method == control else ()))
        for method, rank in ranks.items()
    ]
    return {
        "test": test,
        "control": control,
        "chart": row_chart(marks, "average ranks and critical difference", float(len(ranks))),
        "rows": [(method, f"{rank:.3f}") for method, rank in ranks.items()],
    }
