"""Output of commands: JSON, tables, progress and HTML reports."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ccmn.data import MultiLabelData
    from ccmn.report.facts import Report
    from ccmn.report.instances import Show

MIN_TABLE_WIDTH = 120
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


def print_table(table: Any) -> None:
    """Print a table of rich."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, MIN_TABLE_WIDTH)
    console.print(table)


def error_console() -> Console:
    """Return the console for progress, which is shown on stderr and only in terminals."""
    from rich.console import Console

    return Console(stderr=True)


def program_name() -> str:
    """Return the command that starts ccmn in the current shell."""
    called = Path(sys.argv[0])
    if shutil.which("ccmn"):
        return "ccmn"
    return str(called) if called.stem == "ccmn" else "python -m ccmn"


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


def row_display(data: MultiLabelData, Y: Any, size: tuple[int, ...] | None) -> Show:
    """Return how a report shows a row: as a picture, as the start of its text, or by its informative features."""
    import numpy as np

    from ccmn._containers import to_dense_array
    from ccmn.report.instances import informative_features, pictures, snippets

    if size is not None:
        return pictures(data.X, size)
    if data.texts is not None:
        return snippets(list(data.texts))
    return informative_features(data.X, to_dense_array(Y).astype(np.float64), data.feature_names)


def write_report(report: Report, path: Path) -> None:
    """Write a report as an HTML page."""
    from ccmn.report.html import report_page

    write_text(path, report_page(report))


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    from ccmn._files import atomic_write

    with atomic_write(path) as stream:
        stream.write(text.encode())
