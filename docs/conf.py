"""Sphinx configuration of the documentation (``make docs``). The built pages load nothing from other servers."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms import SphinxTransform

import ccmn
from ccmn._version import __version__
from ccmn.app.report.results_tables import results_page
from ccmn.paper import summarize
from ccmn.paper.result_store import read_cells

HERE = Path(__file__).parent
REPORT = "tables-report.html"
"""Name of the report of the tables in the site."""
sys.path.insert(0, str(HERE / "extensions"))

project = "ccmn"
copyright = "the authors of ccmn"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "katex",
    "command_line",
]
smartquotes = False  # keeps "--out" unchanged
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "generated/**/*.ipynb", "generated/**/*.json"]

# Formulas are $...$ in pages and :math: in docstrings. KaTeX in _static renders both.
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_math_renderer = "katex"

# The lists of names on the pages in api/ generate one page per class and function.
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
numpydoc_show_class_members = False

# This build does not run the scripts: the recipes run as tests, and the numbered examples take minutes.
sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["generated/examples"],
    "plot_gallery": False,
    "ignore_pattern": r"(drawing|known_posterior|conftest|__init__)\.py$",
    "image_scrapers": (),
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "thumbnail_size": (480, 260),
    "show_memory": False,
    "show_signature": False,
    "copyfile_regex": "",
    "default_thumb_file": str(HERE / "_static" / "thumbnail.png"),
    "remove_config_comments": True,
    "write_computation_times": False,
}

pygments_dark_style = "a11y-dark"
html_theme = "furo"
html_title = f"ccmn {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # summaries need requests, which browsers refuse for file:// pages


def skip_members(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Skip type aliases and the metadata routing of scikit-learn, whose docstrings refer to pages of scikit-learn."""
    is_alias = what == "module" and isinstance(obj, types.GenericAlias)
    return True if is_alias or re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def shorten_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Remove the generated docstrings of tuple fields and the summary of a package, which its page replaces."""
    if what == "module" and hasattr(obj, "__path__"):
        end = lines.index("") if "" in lines else len(lines)
        del lines[:end]
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def describe_constant(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the docstring of the type of a constant by the docstring below its definition, in any module."""
    if what != "data":
        return
    short = name.rsplit(".", 1)[1]
    for module in [module for path, module in sys.modules.items() if path.startswith("ccmn.")]:
        if getattr(module, short, None) is obj:
            found = ModuleAnalyzer.for_module(module.__name__).find_attr_docs().get(("", short))
            if found:
                lines[:] = found


def resolve_short_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Link ``ccmn.NAME`` to the page of ``ccmn.PACKAGE.NAME``, where a name of ``ccmn`` is documented."""
    name = node.get("reftarget", "").removeprefix("ccmn.")
    module = getattr(getattr(ccmn, name), "__module__", None) if name in ccmn.__all__ else None
    if node.get("refdomain") != "py" or module is None:
        return None
    page = f"ccmn.{module.split('.')[1]}.{name}"
    return env.get_domain("py").resolve_xref(env, node["refdoc"], app.builder, "obj", page, node, content)


class DarkFigures(SphinxTransform):
    """Show ``NAME-dark.png`` in place of a figure ``NAME.png`` on dark pages, where this file exists."""

    default_priority = 500

    def apply(self, **options: Any) -> None:
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for image in list(self.document.findall(nodes.image)):
            path = Path(image["uri"])
            dark = path.with_name(f"{path.stem}-dark{path.suffix}")
            if (folder / dark).is_file():
                twin = image.deepcopy()
                twin["uri"] = dark.as_posix()
                image["classes"].append("only-light")
                twin["classes"].append("only-dark")
                image.parent.insert(image.parent.index(image) + 1, twin)


def write_report(app: Any, error: Exception | None) -> None:
    """Write the report of ``results/cells.csv``, to which the page of the tables links, to the site."""
    if error is None:
        cells = read_cells(HERE.parent / "results" / "cells.csv")
        (Path(app.outdir) / REPORT).write_text(results_page(summarize(cells)))


def strip_code_blocks(app: Any, tree: Any) -> None:
    """Remove the empty line at the end of a code block, which doctest requires in the source."""
    for block in tree.findall(nodes.literal_block):
        if block.rawsource == block.astext():
            block.rawsource = block.astext().rstrip()
            block[:] = [nodes.Text(block.rawsource)]


def setup(app: Any) -> None:
    """Connect the functions of this module to the events of Sphinx."""
    app.connect("build-finished", write_report)
    app.connect("doctree-read", strip_code_blocks)
    app.connect("autodoc-skip-member", skip_members)
    app.connect("autodoc-process-docstring", shorten_docstring)
    app.connect("autodoc-process-docstring", describe_constant)
    app.connect("missing-reference", resolve_short_name)
    app.add_transform(DarkFigures)
