"""``ccmn reproduce`` and ``ccmn report``."""

import pytest

from app.report.checks import check_page

METHODS = ("--methods", "unbiased-hamming-square", "--methods", "plain-hamming-square")


@pytest.fixture(scope="module")
def store(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("results") / "results.db"
    done = run("reproduce", "table1", "--small", *METHODS, "--store", path)
    assert "Table 1" in done.output
    assert "ccmn report" in done.output
    assert "printed for yeast" in done.output
    assert ".218" in done.output  # the printed Hamming loss of unbiased-hamming-square
    assert "only shows that the code runs" in done.output
    return path


def test_page_and_csv(store, run, rejected, tmp_path):
    page, cells = tmp_path / "r.html", tmp_path / "c.csv"
    run("report", store, "--out", page, "--csv", cells)
    assert "plain-hamming-square" in " ".join(check_page(page.read_text()).text)
    assert len(cells.read_text().splitlines()) == 1 + 2 * 2 * 2 * 2 * 3
    assert "--force" in rejected("report", store, "--out", page)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("reproduce", "table9"), 2, "not one of table1"),
        (("reproduce", "table1", "--engine", "ray"), 2, "use --jobs N on one machine; on a cluster, ccmn"),
        (("reproduce", "table1", "--small", "--methods", "magic", "--store", "r.db"), 1, "unknown"),
    ],
)
def test_errors(rejected, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    assert message in rejected(*arguments, code=code)
