"""Tables of results for a terminal (rich): ours, and in brackets what is printed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ccmn.experiments.criteria import GREATER_IS_BETTER
from ccmn.experiments.summary import Entry, Summary
from ccmn.report.statements import headline, in_words


def results_tables(summary: Summary) -> Group:
    """One table per metric, and what they come to."""
    return Group(Text(headline(summary), style="bold"), *_tables(summary), *in_words(summary), "")


def _tables(summary: Summary) -> Iterator[Table]:
    for metric in summary.metrics:
        arrow = "↑" if GREATER_IS_BETTER[metric] else "↓"
        table = Table(
            title=f"{metric.replace('_', ' ')} {arrow}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        table.add_column("", no_wrap=True)
        for dataset in summary.datasets:
            table.add_column(dataset, justify="right", no_wrap=True)
        for method in summary.methods:
            table.add_row(method, *(_figure(summary.entry(method, d, metric)) for d in summary.datasets))
        yield table


def _figure(entry: Entry | None) -> Text:
    """Mean, the paper's bullet, and the printed mean behind it."""
    if entry is None:
        return Text("-", style="dim")
    mark = {"better": "•", "worse": "∘"}.get(entry.mark, " ")
    text = Text(f"{short(entry.mean)}{mark}", style="bold" if entry.best else "")
    if entry.printed is not None:
        style = "green" if entry.at_level else "red"
        text.append(f"({short(entry.printed.mean)})", style=f"not bold {style}")
    return text


def short(value: float) -> str:
    """Three decimals, as the paper prints them.

    >>> short(0.2094), short(1.0)
    ('.209', '1.000')
    """
    return f"{value:.3f}".removeprefix("0")
