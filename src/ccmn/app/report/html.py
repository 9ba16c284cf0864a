"""HTML pages, rendered with Jinja2: one file each, without external requests.

A script in the page sorts tables and filters label issues. The content security policy permits no other script.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from ccmn._pictures import encode_png
from ccmn.app.report.sections import Report


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """Return a picture as a PNG data URI.

    >>> data_uri(np.zeros((1, 2), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()


_ENVIRONMENT = Environment(
    loader=PackageLoader("ccmn.app.report"), autoescape=True, undefined=StrictUndefined, lstrip_blocks=True
)
_ENVIRONMENT.filters["data_uri"] = data_uri
_ENVIRONMENT.tests["numeric"] = lambda text: re.match(r"[-+≤<]?\s*\.?\d|–$", text) is not None


def report_page(report: Report) -> str:
    """Render the report of an audit, an evaluation or the demo."""
    return render_page("report.html", title=report.title, report=report)


def render_page(template: str, **context: Any) -> str:
    """Render a template that extends ``base.html``, with the style sheet in the page."""
    style, script = (files("ccmn.app.report").joinpath(name).read_text() for name in ("page.css", "page.js"))
    script_hash = f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    return _ENVIRONMENT.get_template(template).render(
        style=Markup(style), script=Markup(script), script_hash=script_hash, **context
    )
