"""What pages share: the whole of one, tables, and figures with their numbers behind a click."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

# The page may not fetch anything, whatever stands in it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, heading: str, body: Iterable[str]) -> str:
    """A whole HTML page with its style; nothing is fetched when it is looked at."""
    style = files("ccmn.report").joinpath("page.css").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body><h1>{escape(heading)}</h1>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def section(name: str, title: str, *parts: str) -> str:
    """A section with a heading to link to."""
    return f'<section><h2 id="{escape(name)}">{escape(title)}</h2>{"".join(parts)}</section>'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{f' class={kind!r}' if kind else ''}>{escape(text)}</p>"


def tiles(figures: Mapping[str, str]) -> str:
    """Large figures, each with what it counts."""
    parts = (f"<div><b>{escape(value)}</b>{escape(name)}</div>" for name, value in figures.items())
    return f'<div class="tiles">{"".join(parts)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Plain text in rows, the first cell of each a heading."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join(_row(row) for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def numbers(head: Sequence[str], rows: Iterable[Sequence[str]], title: str = "numbers") -> str:
    """The table behind a figure, behind a click."""
    return f"<details><summary>{escape(title)}</summary>{table(head, rows)}</details>"


def _row(row: Sequence[str]) -> str:
    return f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
