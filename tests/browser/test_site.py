"""Built documentation in a browser: formulas are rendered, no external requests, no errors."""

from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
CLASS, FUNCTION = "generated/api/ccmn.models.CorrectedClassifier", "generated/api/ccmn.paper.theory.kappa"
WITH_FORMULAS = {"method", "estimation", CLASS, FUNCTION}
PAGES = [*sorted(WITH_FORMULAS), "index", "api/models", "tables", "command_line", "flags"]
PAGES += ["generated/examples/index", "tutorials/text"]
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1400, "height": 900}

pytestmark = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="documentation is not built: run make docs")


def open_page(context, name):
    page = context.new_page()
    page.goto((SITE / f"{name}.html").as_uri())
    return page


@pytest.mark.parametrize("name", PAGES, ids=lambda name: name.replace("/", "-"))
def test_formulas_and_images_are_rendered(name, context, keep):
    page = open_page(context, name)
    n_rendered, n_formulas = page.locator(".math .katex").count(), page.locator(".math").count()
    assert n_rendered == n_formulas
    assert (n_formulas > 0) == (name in WITH_FORMULAS)
    assert page.locator(".katex-error").count() == 0
    for image in page.locator("article img").all():
        assert image.evaluate("image => image.complete && image.naturalWidth > 0")
    keep(page, "page")


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_screen(size, scheme, context, keep):
    for name in ("index", "method", CLASS, "tutorials/text", "generated/examples/index"):
        page = open_page(context, name)
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        keep(page, name.replace("/", "-"))


@pytest.mark.parametrize(("scheme", "ending"), [("light", ".png"), ("dark", "-dark.png")])
def test_figures_follow_the_color_scheme(scheme, ending, context):
    page = open_page(context, "index")
    page.emulate_media(color_scheme=scheme)
    shown = [image.get_attribute("src") for image in page.locator("article img").all() if image.is_visible()]
    assert [Path(source).name for source in shown] == [f"review{ending}"]


def test_equation_numbers_are_those_of_the_paper(context):
    page = open_page(context, "method")
    numbers = page.locator(".katex-tag").all_inner_texts()
    assert [number.strip("()\n ") for number in numbers] == ["1", "2", "3", "4", "5", "6", "8", "9", "10"]


def test_tables_page(context):
    page = open_page(context, "tables")
    page.get_by_role("link", name="report", exact=True).click()
    page.wait_for_url("**/tables-report.html")
    assert page.locator("table").count() > 10
