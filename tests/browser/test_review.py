"""Review by keyboard and mouse: closed tabs, a killed server, two tabs, export, retraining and accessibility."""

import itertools
import json

import numpy as np
import pytest

from browser.conftest import axe_violations
from ccmn.data import load_digit_scenes
from ccmn.models import load_model
from ccmn.noise import ClassConditionalNoise
from helpers import ReviewProcess

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see make test-all")
pytest.importorskip("uvicorn", reason="ccmn review requires uvicorn: pip install 'ccmn[app]'")
expect = playwright.expect


@pytest.fixture
def start(tmp_path):
    """Return a function that starts the command. Running processes are killed after the test."""
    running = []

    def start_server(*arguments):
        running.append(ReviewProcess(tmp_path, *arguments))
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


def open_random_rows(page):
    page.get_by_role("button", name="Measure my error rate").click()
    expect(page.locator("p.stream")).to_contain_text("A random row")


def correct_row(page, truth):
    """Change the labels of a row that are not the true ones, with number keys where labels have one."""
    row, n_keys = row_of(page), 0
    for value in page.locator("form.chip input[name=label]").all():
        label = int(value.get_attribute("value"))
        toggle = page.locator(f"#label-{label} .toggle")
        if (toggle.get_attribute("aria-pressed") == "true") == bool(truth[row, label]):
            continue
        key = toggle.get_attribute("data-key")
        n_keys += 1
        page.keyboard.press(key) if key else toggle.click()
        expect(toggle).to_have_attribute("aria-pressed", "true" if truth[row, label] else "false")
    return n_keys


def next_row(page, key="a"):
    """Accept the labels of a row, or the suggestions, and wait for the next row."""
    title = page.locator("#title").inner_text()
    page.keyboard.press(key)
    expect(page.locator("#title")).not_to_have_text(title)


def used_rates(page):
    return page.locator("td[id^=used-]").all_inner_texts()


def test_review_survives_restart_and_retrains(context, start, tmp_path, keep):
    truth = load_digit_scenes(8000, random_state=0).Y[:4000]
    server = start("--demo")
    page = open_page(context, server)
    assert "token" not in page.url
    keep(page, "suspicious")
    open_random_rows(page)
    for _ in range(2):
        correct_row(page, truth)
        next_row(page)
    expect(page.locator("#answers")).to_have_text("20")
    expect(page.locator("#counted")).to_have_text("2")
    row = row_of(page)
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
    page.get_by_role("link", name="Noise rates").click()
    before = used_rates(page)
    assert any(text != "0.00–1.00" for text in page.locator("td[id^=interval-]").all_inner_texts())
    page.get_by_role("link", name="Review", exact=True).click()
    page.wait_for_url("**/row/*")
    for _ in range(8):
        correct_row(page, truth)
        next_row(page)
    page.get_by_role("link", name="Train and export").click()
    page.locator("#export").click()
    expect(page.locator("#notice")).to_contain_text("Exported.", timeout=60_000)
    folder = tmp_path / "digits-review"
    expect(page.locator("#folder")).to_have_text(str(folder))
    expect(page.locator("#files")).to_contain_text("trusted.csv")
    with np.load(folder / "trusted.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["Y"], truth[found["rows"]])
        assert len(found["rows"]) == 10

    page.locator("#retrain").click()
    expect(page.locator("#verdict")).to_contain_text("With your answers, the model is", timeout=120_000)
    assert load_model(folder / "model.ccmn").n_features_in_ == 384
    keep(page, "retrained")
    page.get_by_role("link", name="Noise rates").click()
    assert used_rates(page) != before
    keep(page, "rates")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # no horizontal scrolling on a phone
    keep(page, "dark-phone")


@pytest.fixture
def texts(tmp_path):
    """Write a table of texts with two labels."""
    lines = ["words,sea,sky"] + [
        f"<b>text</b> {'water' if i % 3 else 'cloud'} {i},{i % 2},{i % 3 == 0:d}" for i in range(120)
    ]
    (tmp_path / "texts.csv").write_text("\n".join(lines) + "\n")
    return ("texts.csv", "--text", "words", "--labels", "sea,sky")


def test_keys_mouse_undo_and_two_tabs(context, start, keep, texts):
    page = open_page(context, start(*texts, "--noise", "partial"))
    other = context.new_page()
    other.goto(page.url)
    assert page.locator("blockquote b").count() == 0  # the text is escaped
    expect(page.locator("blockquote")).to_contain_text("<b>text</b>")

    focused, changed = page.locator("*:focus"), page.locator("form.chip[data-effect=changed] .name")
    first, second = page.locator("form.chip .name").all_inner_texts()  # given labels first, then by suspicion
    expect(focused).to_contain_text("All right as shown")
    page.keyboard.press("1")
    expect(changed).to_have_text(first)
    expect(focused).to_contain_text(first)
    page.keyboard.press("1")  # the given value again
    expect(page.locator("form.chip[data-effect=confirmed] .name")).to_have_text(first)
    page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text(second)
    page.keyboard.press("u")
    expect(page.locator("form.chip.unsure .name")).to_have_text(second)
    page.locator("form.chip .toggle", has_text=first).click()
    expect(changed).to_have_text(first)
    keep(page, "text")

    title = page.locator("#title").inner_text()
    other.keyboard.press("a")  # this tab shows old answers: it overwrites nothing and goes to the next row
    expect(other.locator("#title")).not_to_have_text(title)
    page.keyboard.press("a")
    expect(page.locator("#title")).to_have_text(other.locator("#title").inner_text())
    page.keyboard.press("z")
    expect(page.locator("#notice")).to_have_text("The latest action was undone.")
    expect(page.locator("form.chip[data-effect=confirmed] .name")).to_have_text(first)
    expect(page.locator("form.chip.unsure .name")).to_have_text(second)
    page.keyboard.press("Control+z")
    expect(page.locator("form.chip.unsure")).to_have_count(0)


def test_accessibility(context, start, tmp_path):
    """Every control has a name, the keyboard focus is visible, and the contrast of text is sufficient."""
    rows = np.random.default_rng(0).normal(size=(120, 3))
    lines = ["a,b,c,sea,sky", *(f"{a:.3f},{b:.3f},{c:.3f},{a > 0:d},{b > 0:d}" for a, b, c in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    page = open_page(context, start("table.csv", "--labels", "sea,sky", "--noise", "partial"))
    address = page.url.partition("/row")[0]
    for name in ("rows", "rates", "results", "row/0", "row/99"):
        page.goto(f"{address}/{name}")
        for width, scheme in itertools.product((1280, 800, 390), ("light", "dark")):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 800})
            assert axe_violations(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(CUT_OFF_TABLES) == 0
    stranger = context.browser.new_page()
    stranger.goto(f"{address}/row/0")
    assert "Not signed in" in stranger.locator("main").inner_text()
    assert axe_violations(stranger) == []
    stranger.close()
    page.goto(f"{address}/row/99")
    context.problems.clear()  # the console reports status 404
    page.get_by_role("link", name="Continue the review").click()
    page.set_viewport_size({"width": 1280, "height": 800})
    for element in page.locator("button, header a, summary, img").all():
        name = element.get_attribute("aria-label") or element.get_attribute("alt") or element.text_content()
        assert name.strip()
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        element = page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        if element.startswith("<body"):
            continue  # after the last control, the next key leads to the first one
        assert style != "none", element
        seen.add(element)
    assert len(seen) >= 10


CUT_OFF_TABLES = (
    """[...document.querySelectorAll(".wide")].filter(box => box.scrollWidth > box.clientWidth + 1).length"""
)
"""JavaScript expression for the number of tables that are wider than their box."""

TAGS = ("tag_damaged", "tag_password", "tag_shipping", "tag_refund", "tag_crash", "tag_billing", "tag_login")
TAGS += ("tag_delivery_address_change", "tag_invoice", "tag_return", "tag_slow", "tag_feature_request")
TAGS += ("tag_cancel", "tag_warranty", "tag_discount", "tag_spam", "tag_manual", "tag_availability_in_other_countries")


@pytest.fixture
def tickets(tmp_path):
    """Write a table of texts with an identifier, eighteen labels and a price."""
    rng, n_labels = np.random.default_rng(0), len(TAGS)
    lines, truth = [",".join(["id", "message", *TAGS, "price"])], rng.random((200, n_labels)) < 0.15
    for i, true in enumerate(truth):
        given = np.where(true, rng.random(n_labels) > 0.25, rng.random(n_labels) < 0.03)
        words = [tag.split("_")[1] for tag, value in zip(TAGS, true) if value]
        text = f"Hello, I need help with: {' and '.join(words) or 'something else'}. Ticket {i}. " + "Thank you! " * 5
        lines.append(",".join([f"T{i:03d}", f'"{text}"', *(str(int(value)) for value in given), f"{i / 2:.2f}"]))
    (tmp_path / "tickets.csv").write_text("\n".join(lines) + "\n")
    np.save(tmp_path / "truth.npy", truth)
    rates = ClassConditionalNoise(0.25, 0.03, n_labels=n_labels, label_names=TAGS)
    (tmp_path / "rates.json").write_text(json.dumps(rates.to_dict()))
    return ("tickets.csv", "--text", "message", "--id", "id", "--labels", "tag_*", "--noise", "rates.json")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (768, 1024), (390, 844)])
def test_text_and_main_action_are_visible_without_scrolling(context, start, keep, tickets, width, height):
    page = open_page(context, start(*tickets))
    page.set_viewport_size({"width": width, "height": height})
    assert page.evaluate("document.documentElement.scrollHeight") <= height
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("blockquote", "button.main", "#progress", "form.chip"):
        box = page.locator(selector).first.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
        assert box["x"] + box["width"] <= width
    assert page.locator("form.chip:visible").count() == 9
    keep(page, "review")  # docs/figures/review.png is a copy
    page.emulate_media(color_scheme="dark")
    keep(page, "review-dark")
    page.keyboard.press("m")
    expect(page.locator("form.chip:visible")).to_have_count(18)
    keep(page, "all-labels")
    if width == 1280:
        assert page.locator("blockquote").bounding_box()["width"] >= 500
        assert page.locator(".labels").evaluate("box => box.scrollHeight <= box.clientHeight")  # no scrolling
        assert {round(chip.bounding_box()["height"]) < 50 for chip in page.locator("form.chip").all()} == {True}


def test_link_of_a_report_opens_the_row(context, start, tickets, tmp_path):
    server = start(*tickets)
    page = open_page(context, server)
    address = server.url.partition("/?")[0]
    (tmp_path / "report.html").write_text(f'<a href="{address}/go/12">Review row 12</a>')
    page.goto((tmp_path / "report.html").as_uri())
    page.get_by_role("link").click()
    page.get_by_role("button", name="Review row 12").click()
    expect(page.locator("#title")).to_contain_text("Row 12 ")
