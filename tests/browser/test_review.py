"""Review by keyboard and mouse: closed tabs, a killed server, two tabs, export, retraining and accessibility."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ccmn
from ccmn.experiments.demo_task import make_demo
from ccmn.models import load_model

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see make test-browser")
pytest.importorskip("uvicorn", reason="ccmn review requires uvicorn: pip install starlette uvicorn")
expect = playwright.expect


class Server:
    """``ccmn review`` in a separate process."""

    def __init__(self, folder, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(Path(ccmn.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "ccmn", "review", *arguments, "--json"]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def start(tmp_path):
    """Return a function that starts the command. Running processes are killed after the test."""
    running = []

    def start_server(*arguments):
        running.append(Server(tmp_path, *arguments))
        return running[-1]

    yield start_server
    for server in running:
        if server.process.poll() is None:
            server.kill()


def open_page(context, server):
    page = context.new_page()
    page.goto(server.url)
    page.wait_for_url("**/row/*")
    return page


def row_of(page):
    return int(page.locator("#title").inner_text().split()[1])


def answer_row(page, truth):
    """Answer every label of the row with the keyboard, in display order."""
    for label in page.locator("form.label input[name=label]").all():
        page.keyboard.press("y" if truth[row_of(page), int(label.get_attribute("value"))] else "n")
    expect(page.locator("form.label.open")).to_have_count(0)


def used_rates(page):
    return page.locator("td[id^=used-]").all_inner_texts()


def test_review_survives_restart_and_retrains(context, start, tmp_path, keep):
    truth = make_demo(8000, 0).Y
    server = start("--demo")
    page = open_page(context, server)
    assert "token" not in page.url
    answer_row(page, truth)
    page.keyboard.press("ArrowRight")
    expect(page.locator("form.label.open")).to_have_count(10)
    answer_row(page, truth)  # 20 labels in total
    expect(page.locator("#answers")).to_have_text("20")
    expect(page.locator("#counted")).to_have_text("2")
    row, intervals = row_of(page), page.locator("td[id^=interval-]").all_inner_texts()
    assert any(interval != "0.00–1.00" for interval in intervals)
    keep(page, "20-labels")

    page.close()
    page = context.new_page()
    page.goto(server.url.partition("?")[0])  # the browser still has the cookie
    expect(page.locator("#answers")).to_have_text("20")
    server.kill()
    page.keyboard.press("z")
    expect(page.locator("#notice")).to_contain_text("The server does not respond")
    context.problems.clear()  # the console reports the failed request

    server = start("--demo")
    page.goto(server.url)
    page.wait_for_url("**/row/*")
    expect(page.locator("#answers")).to_have_text("20")
    assert row_of(page) == row
    assert page.locator("td[id^=interval-]").all_inner_texts() == intervals

    before = used_rates(page)
    for _ in range(8):
        page.keyboard.press("ArrowRight")
        expect(page.locator("form.label.open").first).to_be_visible()
        answer_row(page, truth)
    page.locator("#export").click()
    expect(page.locator("#notice")).to_have_text("Exported.")
    folder = tmp_path / "digits-review"
    with np.load(folder / "trusted.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["Y"], truth[found["rows"]])
        assert len(found["rows"]) == 10

    page.locator("#retrain").click()
    expect(page.locator("#training")).to_contain_text("Wrong labels on the clean test set", timeout=120_000)
    assert used_rates(page) != before
    assert load_model(folder / "model.ccmn").n_features_in_ == 384
    keep(page, "retrained")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # no horizontal scrolling on a phone
    keep(page, "dark-phone")


def test_keys_mouse_undo_and_two_tabs(context, start, keep, tmp_path):
    lines = ["words,sea,sky"] + [
        f"<b>text</b> {'water' if i % 3 else 'cloud'} {i},{i % 2},{i % 3 == 0:d}" for i in range(120)
    ]
    (tmp_path / "texts.csv").write_text("\n".join(lines) + "\n")
    page = open_page(context, start("texts.csv", "--text", "words", "--labels", "sea,sky", "--noise", "partial"))
    other = context.new_page()
    other.goto(page.url)
    assert page.locator("blockquote b").count() == 0  # the text is escaped
    expect(page.locator("blockquote")).to_contain_text("<b>text</b>")

    focused = page.locator("*:focus")
    expect(focused).to_have_attribute("aria-label", "Yes: sea")
    page.keyboard.press("ArrowDown")
    expect(focused).to_have_attribute("aria-label", "Yes: sky")
    page.keyboard.press("u")
    expect(page.locator("form.label.unsure .name")).to_have_text("sky")
    expect(focused).to_have_attribute("aria-label", "Yes: sea")
    page.locator("button[aria-label='No: sea']").click()
    expect(page.locator("form.label.no .name")).to_have_text("sea")
    expect(focused).to_have_text("Next row →")
    keep(page, "text")

    other.keyboard.press("a")  # this tab shows old answers: it overwrites nothing and is updated
    expect(other.locator("form.label.no .name")).to_have_text("sea")
    expect(other.locator("form.label.unsure .name")).to_have_text("sky")
    other.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text(other.locator("#title").inner_text())
    page.keyboard.press("z")
    expect(page.locator("#notice")).to_have_text("The latest action was undone.")
    expect(page.locator("form.label.open .name")).to_have_text("sea")
    page.keyboard.press("Control+z")
    expect(page.locator("form.label.open")).to_have_count(2)


def test_accessibility(context, start, tmp_path):
    """Every control has a name, the keyboard focus is visible, and the contrast of text is sufficient."""
    rows = np.random.default_rng(0).normal(size=(120, 3))
    lines = ["a,b,c,sea,sky", *(f"{a:.3f},{b:.3f},{c:.3f},{a > 0:d},{b > 0:d}" for a, b, c in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    page = open_page(context, start("table.csv", "--labels", "sea,sky", "--noise", "partial"))
    for element in page.locator("button, a, summary, img").all():
        name = element.get_attribute("aria-label") or element.get_attribute("alt") or element.inner_text()
        assert name.strip()
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        contrasts = page.evaluate(CONTRASTS)
        assert contrasts
        assert min(contrasts.values()) >= 4.5, contrasts  # required by WCAG AA
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        element = page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        if element.startswith("<body"):
            break
        assert style != "none", element
        seen.add(element)
    assert len(seen) >= 10


CONTRASTS = """() => {
  const luminance = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const background = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!c.endsWith(", 0)")) return c; } return getComputedStyle(document.body).backgroundColor; };
  const found = {};
  for (const e of document.querySelectorAll("h1, h2, p, .name, .given, .p-wrong, .faint, small, caption, summary, th, "
      + "td, button:not(:disabled), kbd")) {
    const [a, b] = [luminance(getComputedStyle(e).color), luminance(background(e))].sort((x, y) => y - x);
    const key = e.tagName + "." + e.className; found[key] = Math.min(found[key] ?? 99, (a + .05) / (b + .05)); }
  return found; }"""
