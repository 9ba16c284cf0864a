"""The whole circle as a new user goes through it: every step is told by the step before it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ccmn
from ccmn.experiments.demo import make_demo

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: make test-browser says how to get it"
)
pytest.importorskip("uvicorn", reason="the review page needs uvicorn: pip install 'ccmn[review]'")
expect = playwright.expect

ROWS = 100


@pytest.fixture
def typed(tmp_path):
    """A command, begun in an empty folder; it is ended with the test."""
    begun = []

    def start(command):
        environment = {**os.environ, "PYTHONPATH": str(Path(ccmn.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-m", "ccmn", *command.partition("ccmn ")[2].split()]
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait()
        process.stdout.close()


def check_row(page, truth):
    """What is wrong is put right with the mouse; "the rest is right as given" and "next" with keys."""
    row = int(page.locator("#title").inner_text().split()[1])
    forms = page.locator("form.label")
    labels = [int(label.get_attribute("value")) for label in forms.locator("input[name=label]").all()]
    given = [text == "given" for text in forms.locator(".given").all_inner_texts()]
    for name, label, said in zip(forms.locator(".name").all_inner_texts(), labels, given):
        if said != truth[row, label]:
            page.locator(f"button[aria-label='{'No' if said else 'Yes'}: {name}']").click()
    if page.locator("form.label.open").count():
        page.keyboard.press("a")
    expect(page.locator("form.label.open")).to_have_count(0)


def error_of(page, noise):
    """Of the rates in use, as the page shows them."""
    used = {
        cell.get_attribute("id"): float(cell.inner_text().lstrip("≤ ")) for cell in page.locator("td[id^=used-]").all()
    }
    off = [
        abs(used[f"used-pos-{j}"] - noise.rho_pos[j]) + abs(used[f"used-neg-{j}"] - noise.rho_neg[j]) for j in range(10)
    ]
    return np.mean(off)


@pytest.mark.slow
def test_demo_report_review_retrain(context, typed, tmp_path, keep):
    task = make_demo(8000, 0)
    told, _ = typed("ccmn demo").communicate()
    report = re.search(r"the report is in (\S+):", told).group(1)
    page = context.new_page()
    page.goto((tmp_path / report).as_uri())
    assert "ccmn review --demo" in page.locator("#suspicious + p").inner_text()

    command = re.search(r"and retrain: (.*)", told).group(1)
    server = typed(f"{command} --json")
    page.goto(json.loads(server.stdout.readline())["url"])
    page.wait_for_url("**/row/*")
    before = error_of(page, task.noise)
    for place in range(ROWS):
        check_row(page, task.Y)
        if place + 1 < ROWS:
            page.keyboard.press("ArrowRight")
            expect(page.locator("form.label.open").first).to_be_visible()
    expect(page.locator("#progress")).to_contain_text(f"on {ROWS} of")
    page.locator("#retrain").click()
    expect(page.locator("#training")).to_contain_text("Wrong labels on clean test rows", timeout=120_000)
    keep(page, "after-a-hundred-rows")
    assert error_of(page, task.noise) < 0.7 * before
    said = page.locator("#training").inner_text()
    without, with_answers = (float(share) for share in re.findall(r"([\d.]+)%", said))
    assert with_answers < without - 0.3

    model = re.search(r"ccmn predict (\S+) DATA", said).group(1)
    page.locator("#export").click()
    expect(page.locator("#said")).to_have_text("Exported.")
    corrected = tmp_path / Path(model).parent / "corrected.npz"
    predicted, _ = typed(f"ccmn predict {model} {corrected} --out predictions.csv").communicate()
    assert (tmp_path / "predictions.csv").exists(), predicted
