"""HTML pages and their charts, rendered with Jinja2: one file each, without external requests.

A script in the page sorts tables and filters label issues. The content security policy permits no other script. Charts
are SVG elements of a template because matplotlib's SVG files are 20 to 50 kB each and cannot follow the reader's light
or dark setting.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from ccmn._pictures import encode_png

HUES = (210, 25, 140, 280, 50, 340, 175, 95, 255, 0, 120, 310)
"""Hues of the series of a chart; the colors are readable on light and dark pages."""
MAX_CHARACTERS = 28
"""Names in charts are shortened to this number of characters."""


class Mark(NamedTuple):
    """Line of a chart: a value with its interval (NaN if it is not known), and the true value if it is known."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    true: float | None = None
    color: int = 0
    suffix: str = ""
    """Text after the number."""


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """Return a picture as a PNG data URI.

    >>> data_uri(np.zeros((1, 2), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()


def shorten(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Return the beginning of a text with at most this number of characters."""
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"


_ENVIRONMENT = Environment(
    loader=PackageLoader("ccmn.app.report"),
    autoescape=True,
    undefined=StrictUndefined,
    lstrip_blocks=True,
    trim_blocks=True,
)
_ENVIRONMENT.filters.update(data_uri=data_uri, shorten=shorten)
_ENVIRONMENT.tests.update(
    numeric=lambda text: re.match(r"[-+≤<]?\s*\.?\d|–$", text) is not None,
    finite=math.isfinite,
)


def render_page(template: str, **context: Any) -> str:
    """Render a template that extends ``base.html``, with the style sheet in the page."""
    style, script = (files("ccmn.app.report").joinpath(name).read_text() for name in ("page.css", "page.js"))
    script_hash = f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    return _ENVIRONMENT.get_template(template).render(
        style=Markup(style), script=Markup(script), script_hash=script_hash, **context
    )


def axis_end(marks: Iterable[Mark]) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below any value; 1 without values.

    >>> axis_end([Mark("sea", 0.2, 0.1, 0.35)]), axis_end([Mark("", 7.0)])
    (0.5, 10.0)
    """
    ends = [end for mark in marks for end in (mark.value, mark.high, mark.true or 0.0) if math.isfinite(end)]
    largest = max(ends, default=0.0)
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next((float(f"{factor * power:.1g}") for factor in (1, 2, 5) if largest <= factor * power), 10 * power)


def row_chart(marks: Sequence[Mark], title: str, end: float | None = None) -> Markup:
    """Draw one line per value on an axis from 0 to ``end``: a dot, its interval (bar) and the true value (vertical).

    Values outside the axis are drawn at its ends. Values that are NaN keep their line.
    """
    end = end or axis_end(marks)
    left = 14 + 6.4 * max((len(shorten(mark.name)) for mark in marks), default=0)  # width of a character in pixels

    def x(value: float) -> str:
        return f"{left + min(max(value, 0.0), end) / end * (286 - left):.1f}"

    chart = _ENVIRONMENT.get_template("chart.html")
    return Markup(chart.render(marks=marks, title=title, left=left, end=end, x=x, hues=HUES))
