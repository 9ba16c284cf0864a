from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.report.checks import check_page
from ccmn.app.report.results_tables import result_blocks, results_page, results_tables
from ccmn.paper.result_store import Cell, Result
from ccmn.paper.summary import summarize

VALUES = {
    "unbiased-hamming-square": [0.20, 0.21, 0.22],
    "plain-hamming-square": [0.30, 0.31, 0.33],
    "PARTICLE": [0.10, 0.11, 0.13],
    "fPML": [math.nan] * 3,
}


@pytest.fixture(scope="module")
def results():
    return [
        Result(
            Cell("table1", "literal", "yeast", method, repeat, 100, "{}"),
            {"values": {"clean": {"hamming_loss": value}}},
            seconds=1.0,
            machine={"device": "<cpu>"},
        )
        for method, runs in VALUES.items()
        for repeat, value in enumerate(runs)
    ]


@pytest.fixture(scope="module")
def summary(results):
    return next(summary for summary in summarize(results) if summary.selection == "clean")


def test_blocks_leave_out_nan(summary):
    (block,) = result_blocks(summary)
    cells = {method: cell for method, (cell,) in block.rows}
    assert cells.keys() == VALUES.keys()
    assert cells["fPML"] is None
    assert {method: (cell.mark, cell.best) for method, cell in cells.items() if cell} == {
        "unbiased-hamming-square": ("", False),
        "plain-hamming-square": ("better", False),
        "PARTICLE": ("worse", True),
    }


def test_all_outputs_have_the_same_values_marks_and_gaps(summary):
    (table,) = results_tables(summary)
    cells = dict(table.rows)
    assert cells["plain-hamming-square"].startswith(".313•")
    assert cells["PARTICLE"].startswith(".113∘*")
    assert cells["fPML"] == "-"

    page = results_page([summary])
    reader = check_page(page)
    assert {"0.313 ± 0.015•", "0.113 ± 0.015∘"} <= set(reader.text)
    assert "<b>0.113 ± 0.015∘</b>" in page
    assert '<th scope="row">fPML</th><td class="faint">–</td>' in page
    assert "&lt;cpu&gt;" in page


def test_overview_leads_to_the_tables_and_leaves_out_unknown_machines(summary):
    page = results_page([summary])
    assert '<a href="#table1-literal">table1</a>' in page
    assert '<h2 id="table1-literal">' in page
    assert "machine, seconds" in page
    assert "machine, seconds" not in results_page([replace(summary, seconds=0.0)])
