"""Tables of stored results: the terminal, the page and the file have the same values."""

import math

import pytest

from app.report.checks import check_page
from ccmn.paper.result_store import Cell, Result, ResultStore

VALUES = {
    "unbiased-hamming-square": [0.20, 0.21, 0.22],
    "plain-hamming-square": [0.30, 0.31, 0.33],
    "PARTICLE": [0.10, 0.11, 0.13],
    "fPML": [math.nan] * 3,
}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with ResultStore(tmp_path / "results.db") as results:
        results.append(
            Result(
                Cell("table1", "literal", "yeast", method, repeat, 100, "{}"),
                {"values": {"clean": {"hamming_loss": value}}},
                seconds=1.0,
                machine={},
            )
            for method, runs in VALUES.items()
            for repeat, value in enumerate(runs)
        )
    return tmp_path


def test_all_outputs_have_the_same_values_marks_and_gaps(run, printed, store):
    table = run("report", "results.db", "--out", "page.html").stdout
    page = (store / "page.html").read_text()
    texts = check_page(page).text
    summary = next(found for found in printed("report", "results.db") if found["selection"] == "clean")
    entries = {entry["method"]: entry for entry in summary["entries"]}
    for method, mark, sign, best in (("plain-hamming-square", "better", "•", ""), ("PARTICLE", "worse", "∘", "*")):
        entry = entries[method]
        assert (entry["mark"], entry["best"]) == (mark, bool(best))
        assert f"{entry['mean']:.3f}"[1:] + sign + best in table
        assert f"{entry['mean']:.3f} ± {entry['std']:.3f}{sign}" in texts
    assert "<b>0.113 ± 0.015∘</b>" in page
    assert '<th scope="row">fPML</th><td class="faint">–</td>' in page
    assert '<a href="#table1-literal">table1</a>' in page
    assert '<h2 id="table1-literal">' in page
