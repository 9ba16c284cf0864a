"""A real browser: Chromium of the system, driven by playwright. Where either is absent, these tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOW = "make test-browser says how to get it"
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
    """The browser, started once."""
    api = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed: {HOW}")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip(f"there is no Chromium on this machine: {HOW}")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def context(chromium: Any) -> Iterator[Any]:
    """A browser without a past, whose pages note errors and requests in ``troubles``: a test ends without any."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(60_000)
    context.troubles = []
    context.on("console", lambda message: message.type == "error" and context.troubles.append(message.text))
    context.on("weberror", lambda error: context.troubles.append(str(error.error)))
    context.on("request", lambda request: _is_near(request.url) or context.troubles.append(request.url))
    yield context
    context.close()
    assert context.troubles == []


@pytest.fixture
def keep(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Keep a screenshot of a page, in the folder CCMN_SCREENSHOTS if that is set."""
    folder = Path(os.environ.get("CCMN_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)

    def kept(page: Any, name: str) -> None:
        page.screenshot(path=folder / f"{request.node.name}-{name}.png", full_page=True)

    return kept


def _is_near(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:", "file:", "about:"))
