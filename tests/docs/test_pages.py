"""The pages leave nothing out, and nothing unexplained."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest
import typer.main

import ccmn
from ccmn.cli import app
from pages import DOCS, PAGES, ROOT, blocks

NOT_FOR_USERS = {"validation", "cli", "report"}
"""Folders without public names: the command line has a page of its own."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_runs_as_a_doctest_or_says_why_not(page):
    for block in blocks(page):
        if block.language == "python":
            assert ">>> " in block.text or not block.runs, f"{page.name}: {block.text[:80]}"


def test_every_benchmark_is_named():
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py") if "\ndef main" in path.read_text()}
    assert set(re.findall(r"^\| `(\w+\.py)`", (DOCS / "benchmarks.md").read_text(), re.MULTILINE)) == scripts


def test_every_name_at_the_top_is_in_the_reference():
    text = (DOCS / "api" / "index.md").read_text()
    assert [name for name in ccmn.__all__ if f"`ccmn.{name}" not in text] == []


def test_every_folder_has_a_page_of_the_reference():
    folders = {module.name for module in pkgutil.iter_modules(ccmn.__path__) if module.ispkg} - NOT_FOR_USERS
    for folder in folders:
        page = DOCS / "api" / f"{folder}.md"
        assert f".. automodule:: ccmn.{folder}" in page.read_text()
        assert f"\n{folder}\n" in (DOCS / "api" / "index.md").read_text()


@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=lambda page: page.stem)
def test_every_module_of_the_reference_can_be_imported(page):
    if page.stem == "review":
        pytest.importorskip("starlette", reason="the review page needs starlette: pip install 'ccmn[review]'")
    for name in re.findall(r"automodule:: ([\w.]+)", page.read_text()):
        importlib.import_module(name)


def test_every_command_has_its_section():
    def names(command, words):
        if not hasattr(command, "commands"):
            return [" ".join(words)]
        return [name for word, below in command.commands.items() for name in names(below, [*words, word])]

    told = re.findall(r"^```\{command\} (.+)$", (DOCS / "command_line.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(names(typer.main.get_command(app), []))
