"""Fixtures for tests in Chromium, driven by playwright. Without Chromium or playwright, the tests are skipped."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

INSTALL = "see make test-all"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Start the browser once for all tests."""
    api = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed: {INSTALL}")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip(f"Chromium is not installed: {INSTALL}")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def context(chromium: Any) -> Iterator[Any]:
    """Return a new browser profile. Console errors and requests to other hosts are collected and fail the test."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(60_000)
    context.problems = []
    context.on("console", lambda message: message.type == "error" and context.problems.append(message.text))
    context.on("weberror", lambda error: context.problems.append(str(error.error)))
    context.on("request", lambda request: _is_local(request.url) or context.problems.append(request.url))
    yield context
    context.close()
    assert context.problems == []


@pytest.fixture
def keep(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that saves a screenshot in the folder CCMN_SCREENSHOTS, if that is set."""
    folder = Path(os.environ.get("CCMN_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)

    def save(page: Any, name: str) -> None:
        page.screenshot(path=folder / f"{request.node.name}-{name}.png", full_page=True)

    return save


def axe_violations(page: Any) -> list[str]:
    """Return the violations that axe-core finds in a page."""
    import axe_playwright_python

    script = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()
    page.evaluate(script)  # like the console of the browser, not subject to the content security policy
    found = page.evaluate("axe.run().then(result => result.violations)")
    return [f"{violation['id']}: {node['target']}" for violation in found for node in violation["nodes"]]


def _is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:", "file:", "about:"))
