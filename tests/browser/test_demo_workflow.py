"""Workflow of a new user: demo, report, review, retraining. Each step is found in the output of the previous one."""

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
from ccmn.app.demo_task import make_demo

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see make test-all")
pytest.importorskip("uvicorn", reason="ccmn review requires uvicorn: pip install 'ccmn[app]'")
expect = playwright.expect

N_ROWS = 100


@pytest.fixture
def run(tmp_path):
    """Return a function that starts a command in an empty folder. The process is killed after the test."""
    started = []

    def start(command):
        environment = {**os.environ, "PYTHONPATH": str(Path(ccmn.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        arguments = [sys.executable, "-m", "ccmn", *command.partition("ccmn ")[2].split()]
        process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def review_row(page, truth):
    """Correct wrong labels with the mouse and accept the other ones with a key."""
    title = page.locator("#title").inner_text()
    row = int(title.split()[1])
    for value in page.locator("form.chip input[name=label]").all():
        label = int(value.get_attribute("value"))
        toggle, pressed = page.locator(f"#label-{label} .toggle"), "true" if truth[row, label] else "false"
        if toggle.get_attribute("aria-pressed") != pressed:
            toggle.click()
            expect(toggle).to_have_attribute("aria-pressed", pressed)
    page.keyboard.press("a")
    expect(page.locator("#title")).not_to_have_text(title)


def rate_error(page, noise):
    """Return the mean error of the rates in use that the page shows."""
    used = {
        cell.get_attribute("id"): float(cell.inner_text().lstrip("≤ ")) for cell in page.locator("td[id^=used-]").all()
    }
    errors = [
        abs(used[f"used-pos-{j}"] - noise.rho_pos[j]) + abs(used[f"used-neg-{j}"] - noise.rho_neg[j]) for j in range(10)
    ]
    return np.mean(errors)


@pytest.mark.slow
def test_demo_report_review_retrain(context, run, tmp_path, keep):
    task = make_demo(8000, 0)
    output, _ = run("ccmn demo").communicate()
    report = re.search(r"\S+\.html", output).group(0)
    page = context.new_page()
    page.goto((tmp_path / report).as_uri())
    assert "ccmn review --demo" in page.locator("body").inner_text()

    command = re.search(r"ccmn review --demo.*", output).group(0)
    server = run(f"{command} --json")
    page.goto(json.loads(server.stdout.readline())["url"])
    page.wait_for_url("**/row/*")
    page.get_by_role("link", name="Noise rates").click()
    before = rate_error(page, task.noise)
    page.get_by_role("link", name="Review", exact=True).click()
    page.get_by_role("button", name="Measure my error rate").click()
    expect(page.locator("p.stream")).to_contain_text("A random row")
    for _ in range(N_ROWS):
        review_row(page, task.Y)
    expect(page.locator("#answers")).to_have_text(str(10 * N_ROWS))
    page.get_by_role("link", name="Train and export").click()
    page.locator("#retrain").click()
    expect(page.locator("#verdict")).to_have_text("With your answers, the model is better.", timeout=120_000)
    keep(page, "hundred-rows")
    model = re.search(r"ccmn predict (\S+) DATA", page.locator("#predict-command").inner_text()).group(1)
    page.locator("#export").click()
    expect(page.locator("#notice")).to_contain_text("Exported.", timeout=60_000)
    page.get_by_role("link", name="Noise rates").click()
    assert rate_error(page, task.noise) < 0.7 * before
    corrected = tmp_path / Path(model).parent / "corrected.npz"
    output, _ = run(f"ccmn predict {model} {corrected} --out predictions.csv").communicate()
    assert (tmp_path / "predictions.csv").exists(), output
