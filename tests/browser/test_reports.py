"""Reports in a browser: every control, light and dark colors, phone and print layout, no external requests."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from browser.conftest import axe_violations
from ccmn import ClassConditionalNoise
from ccmn.data import MultiLabelData, load_digit_scenes, write_file
from pages import app

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see make test-all")

CONTROLS = "summary, a[href], button, select, input, th[role=button], [onclick]"
REPORTS = ("demo", "audit-pictures", "audit-ranks", "audit-texts", "audit-table", "evaluate-clean", "evaluate-noisy")
REPORTS += ("tables",)
PHONE = 390


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="ccmn")
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """Run every command that writes a report, on a few hundred rows."""
    folder = tmp_path_factory.mktemp("reports")
    task = load_digit_scenes(1000)
    noise = ClassConditionalNoise.sample(10, random_state=3)
    noise = ClassConditionalNoise(noise.rho_pos, noise.rho_neg, label_names=task.label_names)
    train, test = task.take(np.arange(500)), task.take(np.arange(500, 1000))
    noisy = MultiLabelData(train.X, noise.corrupt(train.Y, random_state=0), label_names=task.label_names, name="digits")
    write_file(noisy, folder / "noisy.npz")
    write_file(test, folder / "test.npz")
    (folder / "rates.json").write_text(json.dumps(noise.to_dict()))
    lines = [f"a <b>text</b> of {'water' if i % 3 else 'clouds'} {i},{i % 2},{i % 3 == 0:d}" for i in range(150)]
    (folder / "texts.csv").write_text("\n".join(["words,sea,a very long name of a label", *lines]) + "\n")
    places = [f"C{i},{['Oslo', 'Rome', ''][i % 3]},202{i % 5}-03-01,{i / 7:.3f},{i % 2}" for i in range(150)]
    (folder / "table.csv").write_text("\n".join(["customer,a city,since,income of the year,phone", *places]) + "\n")
    cells = (Path(__file__).parents[2] / "results" / "cells.csv").read_text().splitlines()
    some = [line for line in cells[1:] if line.startswith("table1,") and re.search(",(yeast|scene),", line)]
    (folder / "cells.csv").write_text("\n".join([cells[0], *some]) + "\n")

    pictures = ("--picture", "16x24", "--report")
    known = ("--noise", folder / "rates.json")
    square = ("--method", "hamming", "--out", folder / "model.ccmn")
    run("demo", "--quick", "--out", folder / "demo")
    (folder / "demo" / "report.html").rename(folder / "demo.html")
    run("audit", folder / "noisy.npz", *known, *pictures, folder / "audit-pictures.html")
    run("audit", folder / "noisy.npz", *pictures, folder / "audit-ranks.html")
    texts = ("--text", "words", "--labels", "sea,a very long name of a label", "--noise", "partial")
    run("audit", folder / "texts.csv", *texts, "--report", folder / "audit-texts.html")
    table = ("--labels", "phone", "--id", "customer", "--noise", "missing", "--min-p-wrong", "0")
    run("audit", folder / "table.csv", *table, "--report", folder / "audit-table.html")
    run("fit", folder / "noisy.npz", *known, *square)
    run("evaluate", folder / "model.ccmn", folder / "test.npz", "--report", folder / "evaluate-clean.html")
    run("evaluate", folder / "model.ccmn", folder / "noisy.npz", *known, "--report", folder / "evaluate-noisy.html")
    run("report", folder / "cells.csv", "--out", folder / "tables.html")
    return folder


@pytest.fixture
def open_report(context, reports):
    """Return a function that opens a report in a new tab."""

    def open_tab(name):
        page = context.new_page()
        page.goto((reports / f"{name}.html").as_uri())
        return page

    return open_tab


@pytest.mark.parametrize("name", REPORTS)
def test_every_control_works(open_report, keep, name):
    page = open_report(name)
    keep(page, "light")
    n_closed = page.locator("details:not([open])").count()
    controls = page.locator(CONTROLS).all()
    assert controls
    for _ in range(min(5, len(controls))):
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    for control in page.locator("summary").all():
        control.click()
    assert page.locator("details:not([open])").count() == page.locator("details").count() - n_closed  # each was toggled
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    for control in page.locator(CONTROLS).locator("visible=true").all():
        is_summary = control.evaluate("element => element.tagName == 'SUMMARY'")
        if not is_summary and not (control.get_attribute("href") or "").startswith("http"):  # a link to the web app
            control.click()
    for anchor in page.locator("a[href^='#']").all():
        assert page.locator(f"[id='{anchor.get_attribute('href')[1:]}']").count() == 1
    assert all(control.inner_text().strip() for control in controls)
    assert page.url.startswith("file:")


@pytest.mark.parametrize("name", REPORTS)
def test_layout_of_three_widths_with_all_details_open(open_report, keep, name):
    page = open_report(name)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    for width, scheme in itertools.product((1280, 800, PHONE), ("light", "dark")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 844})
        keep(page, f"{scheme}-{width}")
        assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == light) == (scheme == "light")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CLIPPED_CARDS) == 0
        assert axe_violations(page) == []


@pytest.mark.parametrize("name", REPORTS)
def test_every_table_is_printed(open_report, keep, name):
    page = open_report(name)
    page.emulate_media(media="print", color_scheme="light")
    keep(page, "print")
    hidden = page.evaluate("[...document.querySelectorAll('details table')].filter(t => !t.offsetHeight).length")
    assert hidden == 0
    assert page.locator("nav:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).printColorAdjust") == "exact"  # cells keep their colors


def test_tables_are_sorted_and_label_issues_filtered(open_report):
    page = open_report("audit-pictures")
    section = page.locator("section:has(> #issues)")
    cards = {card: json.loads(card.get_attribute("data-labels")) for card in section.locator(".card").all()}
    chosen = min(set().union(*cards.values()))
    holding = sum(chosen in labels for labels in cards.values())
    assert 0 < holding < len(cards)
    section.locator("select").select_option(chosen)
    assert section.locator(".card:visible").count() == holding
    for card in section.locator(".card:visible").all():
        assert chosen in json.loads(card.get_attribute("data-labels"))
    rates = page.locator("section:has(> #rates)")
    rates.locator("summary", has_text="numbers").click()
    for sign in (1, -1):
        rates.locator("th button", has_text="missing").first.click()
        values = [float(text) for text in rates.locator("table.sortable tr td:nth-child(2)").all_inner_texts()]
        assert len(values) == 10
        assert values == sorted(values, key=lambda value: sign * value)


CLIPPED_CARDS = "[...document.querySelectorAll('.card')].filter(e => e.scrollWidth > e.clientWidth).length"
"""JavaScript expression for the number of cards whose content is wider than the card."""
