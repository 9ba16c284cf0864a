"""``ccmn reproduce`` and ``ccmn report``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ccmn.app.cli.app import app

METHODS = ("--methods", "unbiased-hamming-square", "--methods", "plain-hamming-square")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "results.db"
    done = run("reproduce", "table1", "--small", *METHODS, "--store", path)
    assert done.exit_code == 0, done.output
    assert "Table 1" in done.output
    assert "ccmn report" in done.output
    assert "printed for yeast" in done.output
    assert ".218" in done.output  # the printed Hamming loss of unbiased-hamming-square
    assert "only shows that the code runs" in done.output
    return path


def test_json(store):
    done = run("report", store, "--json")
    found = json.loads(done.stdout)
    assert {(s["protocol"], s["selection"]) for s in found} == {
        (p, s) for p in ("literal", "moderate") for s in ("clean", "noisy")
    }
    assert len(found[0]["entries"]) == 6
    assert found[0]["wins"] + found[0]["ties"] + found[0]["losses"] == 3


def test_page_and_csv(store, tmp_path):
    page, cells = tmp_path / "r.html", tmp_path / "c.csv"
    done = run("report", store, "--out", page, "--csv", cells)
    assert done.exit_code == 0, done.output
    text = page.read_text()
    for forbidden in ("http:", "https:", "<script src", "@import", "url("):
        assert forbidden not in text
    assert "<svg" in text
    assert "plain-hamming-square" in text
    assert len(cells.read_text().splitlines()) == 1 + 2 * 2 * 2 * 2 * 3
    again = run("report", store, "--out", page)
    assert again.exit_code == 1
    assert "--force" in again.output


def test_errors(store, tmp_path):
    for arguments, message in (
        (("reproduce", "table9"), "not one of table1"),
        (("reproduce", "table1", "--engine", "ray"), "use --jobs N on one machine; on a cluster, ccmn"),
        (("reproduce", "table1", "--address", "localhost:1"), "examples/recipes/with_ray.py"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2
        assert message in done.output
    done = run("reproduce", "table1", "--small", "--methods", "magic", "--store", tmp_path / "r.db")
    assert done.exit_code == 1
    assert "unknown" in done.output
    done = run("report", tmp_path / "none.db")
    assert done.exit_code == 1
    assert "there is no file" in done.output
