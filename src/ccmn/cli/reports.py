"""Reports at the command line: where they go, and what they show of a row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ccmn.data import MultiLabelData
    from ccmn.report.facts import Report
    from ccmn.report.instances import Show

ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="HTML", help="Write a report to look at: one page, nothing fetched.")
]
PictureShape = Annotated[
    str | None,
    typer.Option(
        metavar="SHAPE",
        help="Rows are pictures of HEIGHTxWIDTH pixels (x3 with colours): the report shows them.",
    ),
]


def read_shape(text: str | None) -> tuple[int, ...] | None:
    """What is typed after ``--picture``.

    >>> read_shape("16x24"), read_shape("32x32x3")
    ((16, 24), (32, 32, 3))
    """
    from ccmn._pictures import parse_size

    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"--picture: {error}") from error


def instances(data: MultiLabelData, Y: Any, source: str, shape: tuple[int, ...] | None, text: str | None) -> Show:
    """What to show of a row: the picture, the beginning of its text, or its telling features."""
    import numpy as np

    from ccmn._containers import to_dense_array
    from ccmn.data.formats import read_text_file
    from ccmn.report.instances import informative_features, pictures, snippets

    if shape is not None:
        return pictures(data.X, shape)
    if text is not None:
        return snippets(read_text_file(source, text, [])[1])
    return informative_features(data.X, to_dense_array(Y).astype(np.float64), data.feature_names)


def write_report(report: Report, path: Path) -> None:
    """The page, whole or not at all."""
    from ccmn._files import atomic_write
    from ccmn.report.html import report_page

    with atomic_write(path) as stream:
        stream.write(report_page(report).encode())


def reported(path: Path | None) -> dict[str, str]:
    """Where a report is, for JSON: no entry where none was asked for."""
    return {} if path is None else {"report": str(path)}
