"""What an audit found, as tables for a terminal (rich)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from ccmn.audit import Audit


def audit_tables(found: Audit, shown: pd.DataFrame, sets: Sequence[Mapping[str, Any]]) -> Group:
    """How many labels are wrong, the most suspicious ones, and the label sets suggested for their rows."""
    tables = [_summary_table(found.summary)]
    if len(shown):
        tables += [_issues_table(shown, len(found.issues)), _sets_table(sets)]
    nothing = [] if len(shown) else ["no label is probably wrong"]
    return Group(*tables, *nothing)


def _summary_table(summary: pd.DataFrame) -> Table:
    table = Table(title="how many labels are wrong", caption="estimated; in brackets: intervals that aim at 90 %")
    table.add_column("label", no_wrap=True)
    for column in ("observed", "given", "false", "", "missing", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for line in summary.to_dict("records"):
        figures = (cell for name in ("false", "missing") for cell in _with_interval(line, name))
        table.add_row(escape(str(line["label"])), str(line["observed"]), str(line["given"]), *figures)
    return table


def _with_interval(line: Mapping[Any, Any], name: str) -> tuple[str, str]:
    return f"{line[name]:.0f}", f"({line[f'{name}_low']:.0f}, {line[f'{name}_high']:.0f})"


def _issues_table(shown: pd.DataFrame, total: int) -> Table:
    table = Table(title=f"the {len(shown)} most suspicious of {total} labels listed", caption="rows are counted from 0")
    table.add_column("row", justify="right")
    table.add_column("label", no_wrap=True)
    for column in ("given", "p_wrong", "suggested"):
        table.add_column(column, justify="right")
    for line in shown.to_dict("records"):
        cells = (str(line["given"]), f"{line['p_wrong']:.3f}", str(line["suggested"]))
        table.add_row(str(line["row"]), escape(str(line["label"])), *cells)
    return table


def _sets_table(sets: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="the label sets of these rows")
    table.add_column("row", justify="right")
    table.add_column("given")
    table.add_column("suggested")
    for line in sets:
        given, suggested = (escape(", ".join(line[name])) or "-" for name in ("given", "suggested"))
        table.add_row(str(line["row"]), given, suggested)
    return table
