"""The documentation pages cover all public names and commands."""

import importlib
import inspect
import pkgutil
import re

import pytest

import ccmn
from pages import DOCS, PAGES, ROOT, blocks, commands

INTERNAL_PACKAGES = {"app", "training", "vote_table"}
"""Packages without a page in the API reference."""
PACKAGES = {m.name for m in pkgutil.iter_modules(ccmn.__path__) if not m.name.startswith("_")} - INTERNAL_PACKAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_are_doctests_or_marked(page):
    for block in blocks(page):
        if block.language == "python":
            assert ">>> " in block.text or not block.runs, f"{page.name}: {block.text[:80]}"


def anchors(page):
    """Return the names by which links refer to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *PAGES], ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not link.startswith("http") and "generated/" not in link:
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.stem)
def test_scripts_and_tests_that_pages_name_exist(page):
    for path in set(re.findall(r"\b((?:benchmarks|examples|tests|results)/[\w/]+\.(?:py|csv))\b", page.read_text())):
        assert (ROOT / path).exists(), path


def test_walks_of_the_contributing_guide_name_files_and_functions():
    text = (ROOT / "CONTRIBUTING.md").read_text().split("\n## The tree\n")[1].split("\n## How to add")[0]
    source = ROOT / "src" / "ccmn"
    files = re.findall(r"`(\w+/\w+\.py)`(?:: ((?:`[\w.]+`(?:, )?)+))?", text)
    assert len(files) > 20
    for path, names in files:
        for name in re.findall(r"[\w]+", names):
            assert re.search(rf"(def|class) {name}\b", (source / path).read_text()), f"{path}: {name}"
        assert (source / path).exists(), path


def test_every_top_level_name_is_in_the_reference():
    text = (DOCS / "api" / "index.md").read_text()
    assert [name for name in ccmn.__all__ if f"`ccmn.{name}" not in text] == []


def listed_names(page):
    """Return the names in the lists (autosummary) of a page of the reference."""
    return re.findall(r"^   ([A-Za-z_]\w*)$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_every_public_name_has_a_page(package):
    module = importlib.import_module(f"ccmn.{package}")
    names = [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    assert sorted(listed_names(DOCS / "api" / f"{package}.md")) == sorted(names)


def test_every_recipe_has_a_card_and_every_figure_a_dark_variant():
    cards = (ROOT / "examples" / "recipes" / "README.rst").read_text()
    names = {path.name for path in (ROOT / "examples" / "recipes").glob("*.py")}
    assert set(re.findall(r"sphx_glr_generated_examples_recipes_(\w+\.py)>`", cards)) == names
    figures = {path.stem for path in (DOCS / "figures").glob("*.png")}
    light = {name for name in figures if not name.endswith("-dark")}
    assert figures == light | {f"{name}-dark" for name in light}


@pytest.mark.parametrize(
    "page", [page for page in (DOCS / "api").glob("*.md") if page.stem != "index"], ids=lambda p: p.stem
)
def test_names_of_the_reference_exist(page):
    (module,) = re.findall(r"automodule:: ([\w.]+)", page.read_text())
    assert [name for name in listed_names(page) if not hasattr(importlib.import_module(module), name)] == []
    assert f"\n{page.stem}\n" in (DOCS / "api" / "index.md").read_text()


def test_every_command_has_a_section():
    documented = re.findall(r"^```\{command\} (.+)$", (DOCS / "command_line.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(commands())


def test_every_flag_is_on_the_page_of_flags():
    source = [path.read_text() for path in (ROOT / "src" / "ccmn" / "estimation").glob("*.py")]
    codes = {code for text in source for code in re.findall(r'(?:Flag|flag_labels)\("(\w+)"', text)}
    assert len(codes) > 5
    assert [code for code in codes if f"`{code}`" not in (DOCS / "flags.md").read_text()] == []
