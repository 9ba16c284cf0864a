"""Tables of stored results: sentences, terminal, LaTeX and HTML, from the same cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ccmn.app.report.console import metric_title
from ccmn.app.report.html import render_page
from ccmn.app.report.svg import Points, line_chart, rank_chart
from ccmn.paper.result_store import Result
from ccmn.paper.summary import PRINTED_TOLERANCE, Summary, TableEntry
from ccmn.paper.tables import AS_PRINTED, GREATER_IS_BETTER, is_proposed, printed_values

REASONS = {
    "cut": "enron, slashdot: the paper most likely read the Meka files, which have the labels first, with the labels "
    "last. Its labels are then words, and the true labels are features (columns enron_as_printed and "
    "slashdot_as_printed). Not explained: plain losses and competing methods on slashdot. The files of the authors "
    "were not seen.",
    "mirflickr": "mirflickr: only 5000 of the 10433 rows are publicly available. In the real candidate sets, added "
    "labels depend on the picture and not only on the class, which noise rates per label cannot correct.",
    "tmc": "tmc: the paper reports the size of the training file and the cardinality of training and test file "
    "together. Tables 1 to 3 use the training file, the tables of the journal version both files.",
    "ranking-square": "ranking-square: with negative weights the squared difference is an indefinite form, unbounded "
    "below. It requires early stopping, which on some data comes too early.",
    "PMLNI": "PML-NI has its authors' scaling of the features, but the threshold 0.5. Their program fits a threshold "
    "to the true labels.",
    "literal": "literal: rates drawn as the text describes are higher than those that the printed values are "
    "consistent with (the moderate protocol agrees with them). Their spread over repeats is ten times the printed one.",
    "PML": "PML-LRS and fPML are implemented from their papers, because the authors have not published code.",
}
"""Known causes of differences from the printed values."""

SELECTIONS = {
    "clean": "epoch and learning rate selected on true validation labels, as in the paper",
    "noisy": "epoch and learning rate selected on noisy validation labels with corrected metrics, as in practice",
}

OVERVIEW = (
    *("protocol", "selection", "within .02 of the printed value (at most .02 worse)", "unbiased wins / ties / losses"),
    "machine, seconds of all cells",
)
"""Columns of the overview, after the name of the table."""

_MARKS = {"better": "•", "worse": "∘", "": ""}
_LATEX_MARKS = {"better": r"\bullet", "worse": r"\circ", "": ""}
_LATEX_SPECIAL = {"\\": r"\textbackslash{}", **{c: f"\\{c}" for c in "&%$#_{}"}}


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
    worse = Counter(_cause(summary, e.method, e.dataset) for e in summary.entries if e.at_level is False)
    if worse:
        counted = ", ".join(f"{cause or 'other'} {count}" for cause, count in worse.most_common())
        sentences.append(
            f"Cells that are more than {PRINTED_TOLERANCE} worse than the printed value, all methods: {counted}."
        )
        sentences += [REASONS[cause] for cause in worse if cause in REASONS]
    if summary.failures:
        sentences.append(f"{len(summary.failures)} cells failed; the first error is: {summary.failures[0]}")
    return sentences


def _cause(summary: Summary, method: str, dataset: str) -> str:
    """Return the key in ``REASONS`` of the most likely cause of a difference; "" if none is known."""
    if f"{dataset}_as_printed" in AS_PRINTED:
        return "cut"
    if method.endswith("ranking-square"):
        return "ranking-square"
    if method in ("PMLLRS", "fPML"):
        return "PML"
    if method == "PMLNI":
        return method
    if summary.protocol == "literal" and not summary.table.name.startswith("journal"):
        return "literal"
    return dataset if dataset in REASONS else ""


def results_tables(summary: Summary, beside: str = "") -> Group:
    """Return the tables for a terminal, with the printed values in parentheses.

    If none of the datasets has printed values, those of the dataset ``beside`` are shown in a column of their own.
    """
    published = printed_values()
    tables = []
    for block in result_blocks(summary):
        title = f"{block.name} {'↑' if block.direction == 'greater' else '↓'}"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True)
        for dataset in summary.datasets:
            table.add_column(dataset, justify="right", no_wrap=True)
        if beside:
            table.add_column(f"printed for {beside}", justify="right", no_wrap=True)
        for method, entries in block.rows:
            value = published.get((summary.table.name, beside, method, block.metric))
            extra = [short(value.mean) if value else "-"] if beside else []
            table.add_row(method, *map(_terminal_cell, entries), *extra)
        tables.append(table)
    return Group(Text(headline(summary), style="bold"), *tables, *result_statements(summary), "")


def _terminal_cell(entry: TableEntry | None) -> Text:
    if entry is None:
        return Text("-", style="dim")
    text = Text(f"{short(entry.mean)}{_MARKS[entry.mark] or ' '}", style="bold" if entry.best else "")
    if entry.printed is not None:
        style = "green" if entry.at_level else "red"
        text.append(f"({short(entry.printed.mean)})", style=f"not bold {style}")
    return text


def short(value: float) -> str:
    """Return a value with three decimals and without the leading zero, as in the paper.

    >>> short(0.2094), short(1.0)
    ('.209', '1.000')
    """
    return f"{value:.3f}".removeprefix("0")


def latex_tables(summaries: Sequence[Summary]) -> str:
    """Return one LaTeX ``table*`` (booktabs) per summary, in the layout of the paper."""
    return "\n".join(_latex_table(summary) for summary in summaries)


def _latex_table(summary: Summary) -> str:
    columns = len(summary.datasets) + 1
    lines = [
        r"\begin{table*}[!htb]",
        r"\centering\tiny",
        rf"\caption{{{escape_latex(headline(summary))}. Bold: best; $\bullet$/$\circ$: the best proposed method is "
        r"significantly better/worse (paired $t$-test, 0.05).}",
        rf"\begin{{tabular}}{{l{'r' * (columns - 1)}}}",
        r"\toprule",
        " & ".join(["", *map(escape_latex, summary.datasets)]) + r" \\",
    ]
    for block in result_blocks(summary):
        title = f"{block.name.capitalize()} (the {block.direction}, the better)"
        lines += [r"\midrule", rf"\multicolumn{{{columns}}}{{l}}{{{title}}} \\", r"\midrule"]
        lines += [
            " & ".join([escape_latex(method), *map(_latex_cell, entries)]) + r" \\" for method, entries in block.rows
        ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def _latex_cell(entry: TableEntry | None) -> str:
    if entry is None:
        return "--"
    mean, std, mark = short(entry.mean), short(entry.std), _LATEX_MARKS[entry.mark]
    return rf"$\bm{{{mean}}} \pm \bm{{{std}}}{mark}$" if entry.best else rf"${mean} \pm {std}{mark}$"


def escape_latex(text: str) -> str:
    r"""Escape the special characters of LaTeX.

    >>> print(escape_latex("music_style & 50 %"))
    music\_style \& 50 \%
    """
    return "".join(_LATEX_SPECIAL.get(character, character) for character in text)


def results_page(summaries: Sequence[Summary], results: Sequence[Result]) -> str:
    """Render one page with all tables, statements, average ranks and learning curves."""
    sections = []
    for key in dict.fromkeys((s.table.name, s.protocol) for s in summaries):
        group = [s for s in summaries if (s.table.name, s.protocol) == key]
        ours = [r for r in results if (r.cell.table, r.cell.protocol) == key]
        sections.append(_section_view(group, ours))
    timed = any(summary.seconds for summary in summaries)  # values read from a CSV file do not contain the machine
    return render_page(
        "results.html",
        title="Reproduced tables",
        near=PRINTED_TOLERANCE,
        marks=_MARKS,
        overview_head=OVERVIEW if timed else OVERVIEW[:-1],
        overview=[(_anchor(summary), _overview_row(summary, timed)) for summary in summaries],
        sections=sections,
    )


def _anchor(summary: Summary) -> str:
    """Return the anchor of the section of a table and protocol."""
    return f"{summary.table.name}-{summary.protocol}"


def _overview_row(summary: Summary, timed: bool) -> tuple[str, ...]:
    agree, near, judged = summary.near_printed()
    machine = (f"{', '.join(summary.machines)}, {summary.seconds:.0f}" if summary.seconds else "–",) if timed else ()
    wins = " / ".join(map(str, summary.wins()))
    return summary.table.name, summary.protocol, summary.selection, f"{agree} ({near}) of {judged}", wins, *machine


def _section_view(summaries: Sequence[Summary], results: Sequence[Result]) -> dict[str, Any]:
    """Return what the template shows of one table and protocol."""
    first = summaries[0]
    colors, charts = _learning_curves(first, results)
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
        "colors": colors,
        "charts": charts,
    }


def _ranks_view(summary: Summary) -> dict[str, Any]:
    test = summary.ranking
    assert test is not None
    ranks = dict(zip(test.methods, test.ranks))
    control = min((m for m in test.methods if is_proposed(m)), key=ranks.__getitem__, default=test.methods[0])
    return {
        "test": test,
        "control": control,
        "chart": rank_chart(test, control, "average ranks and critical difference"),
        "rows": [(method, f"{rank:.3f}") for method, rank in sorted(ranks.items(), key=lambda item: item[1])],
    }


def _learning_curves(summary: Summary, results: Sequence[Result]) -> tuple[dict[str, int], list[str]]:
    """Return the colors of the methods and a chart per dataset and metric, mean over the repeats."""
    methods = [m for m in summary.methods if any(r.cell.method == m and r.outcome.get("curves") for r in results)]
    colors = {method: number for number, method in enumerate(methods)}
    charts: list[str] = []
    for dataset in summary.datasets:
        for metric in summary.metrics:
            series = {m: _mean_curve(results, m, dataset, metric) for m in methods}
            series = {m: points for m, points in series.items() if points}
            if series:
                title = f"{dataset}, {metric.replace('_', ' ')}"
                charts.append(line_chart(series, title, f"learning curves: {title}", colors))
    return colors, charts


def _mean_curve(results: Sequence[Result], method: str, dataset: str, metric: str) -> Points:
    runs = [
        r.outcome["curves"].get(metric, [])
        for r in results
        if (r.cell.method, r.cell.dataset) == (method, dataset) and not r.failed
    ]
    if not runs or not all(runs) or len({len(run) for run in runs}) > 1:
        return []
    epochs = [point[0] for point in runs[0]]
    values = np.mean([[point[1] for point in run] for run in runs], axis=0)
    return [(epoch, float(value)) for epoch, value in zip(epochs, values) if np.isfinite(value)]
