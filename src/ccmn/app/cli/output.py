"""Output of commands: JSON, tables, progress and HTML reports."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ccmn._messages import OnProgress
    from ccmn.app.report.sections import Report
    from ccmn.app.report.tables import TableData

MIN_TABLE_WIDTH = 160
"""Tables in files and pipes have at least this number of columns, so that they are not cut off."""

ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="HTML", help="Write a self-contained HTML report to this file.")
]
PictureSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Show rows as pictures of HEIGHTxWIDTH (gray) or HEIGHTxWIDTHx3 (color) pixels, as 16x24."
    ),
]


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, with null for NaN and infinity."""
    typer.echo(json.dumps(_finite(value), allow_nan=False, ensure_ascii=False))


def _finite(value: Any) -> Any:
    """Return a JSON value with None in place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(table: TableData) -> None:
    """Print a table in the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, MIN_TABLE_WIDTH)
    if table.title:
        print(printable(table.title))  # typer.echo writes UTF-8 to an ASCII terminal
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for j, name in enumerate(table.head):
        numeric = j > 0 and all(re.match(r"[-+(≤<]?\s*\.?\d|–|$", row[j]) for row in table.rows)
        shown.add_column(escape(name), justify="right" if numeric else "left", no_wrap=numeric or not j)
    for row in table.rows:
        shown.add_row(*map(escape, row))
    console.print(shown)
    if table.caption:
        print(f"{printable(table.caption)}\n")


def escape(text: str) -> str:
    r"""Return text from data so that neither rich nor the terminal interprets it.

    >>> escape("[red]\x1b[2Jsea")
    '\\[red]\\x1b[2Jsea'
    """
    from rich import markup

    return markup.escape(printable(text))


def printable(text: str) -> str:
    """Return text with the codes of characters that could change the terminal or the direction of text."""
    return "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in text)


@contextmanager
def draw_progress() -> Iterator[OnProgress]:
    """Draw the progress of the current phase as a bar on stderr, only in terminals."""
    if not sys.stderr.isatty():
        yield lambda phase, done, total, details="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    counts = TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[details]}")
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1, visible=False, details="")
        current = [""]

        def update(phase: str, done: float, total: float, details: str = "") -> None:
            if current != [phase]:
                bar.reset(task, total=total, description=phase, visible=True)
                current[:] = [phase]
            bar.update(task, completed=done, total=total, details=details)

        yield update


def read_picture_size(text: str | None) -> tuple[int, ...] | None:
    """Return the value of ``--picture``.

    >>> read_picture_size("16x24"), read_picture_size("32x32x3")
    ((16, 24), (32, 32, 3))
    """
    if text is None:
        return None
    from ccmn._pictures import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"--picture: {error}") from error


def write_report(report: Report, path: Path) -> None:
    """Write a report as an HTML page."""
    from ccmn.app.files import write_text
    from ccmn.app.report.html import render_page

    write_text(path, render_page("report.html", title=report.title, report=report))
