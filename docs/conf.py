"""How the documentation is built: ``make docs``. Nothing in the built pages is fetched from elsewhere."""

from __future__ import annotations

import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any

from ccmn._version import __version__

HERE = Path(__file__).parent
REPORT = "report-of-tables.html"
sys.path.insert(0, str(HERE / "extensions"))

project = "ccmn"
copyright = "the authors of ccmn"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "katex",
    "command_line",
]
smartquotes = False  # "--out" is to stay as it is typed
exclude_patterns = ["_build", "generated/**/*.ipynb", "generated/**/*.json"]

# Mathematics: $...$ in pages, :math: in docstrings; both are drawn by KaTeX, which lies in _static.
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_math_renderer = "katex"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
numpydoc_show_class_members = False

# Scripts are shown, never run, by this build: those of the recipes run as tests, the numbered ones take minutes.
sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["generated/examples"],
    "plot_gallery": False,
    "ignore_pattern": r"(drawing|known_posterior|conftest|__init__)\.py$",
    "image_scrapers": (),
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "copyfile_regex": "",
    "default_thumb_file": str(HERE / "_static" / "thumbnail.png"),
    "remove_config_comments": True,
    "write_computation_times": False,
}

pygments_dark_style = "a11y-dark"
html_theme = "furo"
html_title = "ccmn"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it would be fetched page by page, which a browser refuses for files


def leave_out(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """scikit-learn's metadata routing, whose docstrings point into scikit-learn's own pages; aliases of types."""
    is_alias = what == "module" and isinstance(obj, types.GenericAlias)
    return True if is_alias or re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def shorten(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Leave out what Python says of the fields of a tuple, and the first line of a folder: the page has its own."""
    if what == "module" and hasattr(obj, "__path__"):
        end = lines.index("") if "" in lines else len(lines)
        del lines[:end]
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def aside(app: Any, page: str, source: list[str]) -> None:
    """``tables.html``, the report beside ``tables.md``, has another name in the site, where the page has that one."""
    if page == "tables":
        source[0] = source[0].replace('href="tables.html"', f'href="{REPORT}"')


def copy_report(app: Any, error: Exception | None) -> None:
    if error is None:
        shutil.copyfile(HERE / "tables.html", Path(app.outdir) / REPORT)


def close_up(app: Any, tree: Any) -> None:
    """No empty line at the end of a block of code: doctest wants one in the source."""
    from docutils import nodes

    for block in tree.findall(nodes.literal_block):
        if block.rawsource == block.astext():
            block.rawsource = block.astext().rstrip()
            block[:] = [nodes.Text(block.rawsource)]


def setup(app: Any) -> None:
    app.connect("source-read", aside)
    app.connect("build-finished", copy_report)
    app.connect("doctree-read", close_up)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", shorten)
