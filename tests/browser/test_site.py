"""The built site in a real browser: formulas are drawn, nothing is fetched from elsewhere, nothing complains."""

from __future__ import annotations

from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
PAGES = ["index", "mathematics", "audit", "api/losses", "api/models", "api/theory", "tables", "command_line", "flags"]
WITH_FORMULAS = {"mathematics", "audit", "api/losses", "api/models", "api/theory"}
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1400, "height": 900}

pytestmark = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built: make docs")


def opened(context, name):
    page = context.new_page()
    page.goto((SITE / f"{name}.html").as_uri())
    return page


@pytest.mark.parametrize("name", PAGES, ids=lambda name: name.replace("/", "-"))
def test_a_page_is_whole(name, context, keep):
    page = opened(context, name)
    drawn, asked = page.locator(".math .katex").count(), page.locator(".math").count()
    assert drawn == asked
    assert (asked > 0) == (name in WITH_FORMULAS)
    assert page.locator(".katex-error").count() == 0
    for image in page.locator("article img").all():
        assert image.evaluate("image => image.complete && image.naturalWidth > 0")
    keep(page, "whole")


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits(size, scheme, context, keep):
    page = opened(context, "mathematics")
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    keep(page, "mathematics")


def test_equations_carry_the_papers_numbers(context):
    page = opened(context, "mathematics")
    numbers = page.locator(".katex-tag").all_inner_texts()
    assert [number.strip("()\n ") for number in numbers] == ["1", "2", "3", "4", "5", "6", "8", "9", "10"]


def test_the_search_finds(context):
    page = opened(context, "index")
    page.get_by_placeholder("Search").fill("wide_interval")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li")
    assert page.get_by_role("link", name="flags and warnings").count()


def test_the_tables_can_be_opened(context):
    page = opened(context, "tables")
    page.get_by_role("link", name="tables.html").click()
    page.wait_for_url("**/report-of-tables.html")
    assert page.locator("table").count() > 10
