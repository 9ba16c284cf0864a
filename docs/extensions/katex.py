"""Sphinx renderer of formulas with the local copy of KaTeX (``html_math_renderer = "katex"``)."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(f'<span class="math notranslate">{self.encode(node.astext())}</span>')
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    formula = node.astext().strip()
    if r"\\" in formula and r"\begin" not in formula:
        formula = rf"\begin{{split}}{formula}\end{{split}}"
    self.body.append(f'<div class="math notranslate">{self.encode(formula)}</div>')
    raise nodes.SkipNode


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Add the style and scripts of KaTeX to pages with formulas."""
    if tree is not None and any(tree.findall(lambda node: isinstance(node, nodes.math | nodes.math_block))):
        app.add_css_file("katex/katex.min.css")
        app.add_js_file("katex/katex.min.js")
        app.add_js_file("formulas.js")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
