"""Fixture of the doctests of the pages: they run in a folder that contains tickets.csv and true_tags.csv."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder_with_tickets(tmp_path, monkeypatch):
    """Change to a folder with the files that ``python examples/tickets.py`` writes."""
    script = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "tickets.py"))
    script["write_tickets"](tmp_path)
    monkeypatch.chdir(tmp_path)
