"""The numbers in the README and the documentation are those of results/cells.csv."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from ccmn.paper.result_store import COLUMNS, read_cells, rows, write_cells
from ccmn.paper.summary import summarize
from ccmn.paper.tables import PML_METHODS, TABLE_METRICS, TABLES

ROOT = Path(__file__).parents[1]
CELLS = ROOT / "results" / "cells.csv"
# Enron and slashdot are most likely another task in the paper (docs/tables.md): they are compared with the printed
# values as the paper most likely read them, and with plain losses as they are read correctly.
SAME_TASK = ("yeast", "scene", "tmc", "mirflickr")
SIX = ("yeast", "scene", "enron", "slashdot", "tmc", "mirflickr")


@pytest.fixture(scope="module")
def summaries():
    return {(s.table.name, s.protocol, s.selection): s for s in summarize(read_cells(CELLS))}


def near(summary, *datasets):
    agree, at_level, total = summary.only(*datasets).near_printed()
    return f"{agree} ({at_level}) of {total}"


def wins(summary, *datasets):
    won, tied, lost = summary.only(*datasets).wins()
    return won, won + tied + lost


def test_every_cell_of_the_available_data_sets(summaries):
    for name in ("table1", "table2"):
        for protocol in ("literal", "moderate"):
            for selection in ("clean", "noisy"):
                entries = summaries[name, protocol, selection].only(*SIX).entries
                assert len(entries) == 10 * 6 * 3
                assert all(len(e.values) == 5 for e in entries)
    for protocol, columns in (("injected", 5), ("real", 1)):
        entries = summaries["table3", protocol, "clean"].only(*SIX).entries
        assert len(entries) == len(TABLES["table3"].methods) * columns * 3


def test_unbiased_outperforms_plain(summaries):
    """All losses, ranking-square included; the five datasets without slashdot, and all six."""
    found = [
        [wins(summaries[t, p, "clean"], *datasets) for t in ("table1", "table2") for p in ("moderate", "literal")]
        for datasets in (tuple(name for name in SIX if name != "slashdot"), SIX)
    ]
    assert found[0] == [(75, 75), (74, 75), (75, 75), (74, 75)]  # 298 of 300
    assert found[1] == [(90, 90), (89, 90), (90, 90), (89, 90)]  # 358 of 360


def test_pml_ni_with_the_scaling_of_its_authors(summaries):
    """The scaling closes at least a third of the gap between raw features and the printed average precision."""
    summary = summaries["table3", "injected", "clean"]
    page = (ROOT / "docs" / "tables.md").read_text()
    for dataset in ("yeast", "scene", "enron"):
        scaled, raw = (summary.entry(m, dataset, "average_precision") for m in ("PMLNI", "PMLNI-raw"))
        printed = scaled.printed.mean
        share = (raw.mean - scaled.mean) / (raw.mean - printed)
        assert share >= 1 / 3
        assert f"| {dataset} | {short(printed)} | {short(scaled.mean)} | {short(raw.mean)} | {share:.0%} |" in page


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_unbiased_results_with_literal_noise_vary_three_times_as_much(summaries, table):
    spread = {}
    for protocol in ("literal", "moderate"):
        entries = summaries[table, protocol, "clean"].only(*SIX).entries
        spread[protocol] = np.mean([np.std(e.values) for e in entries if e.method.startswith("unbiased")])
    assert round(spread["literal"] / spread["moderate"]) == 3


def test_round_trip(tmp_path):
    found = read_cells(CELLS)
    write_cells(found, tmp_path / "cells.csv")
    assert (tmp_path / "cells.csv").read_bytes() == CELLS.read_bytes()
    assert len(list(rows(found))) == len(CELLS.read_text().splitlines()) - 1


def test_file_with_other_columns(tmp_path):
    (tmp_path / "cells.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=f"columns must be {', '.join(COLUMNS)}; got a, b"):
        read_cells(tmp_path / "cells.csv")


def short(value):
    return f"{value:.3f}".removeprefix("0")


PAGE_ROWS = {
    "table 1, linear, `moderate`": ("table1", "moderate"),
    "table 1, linear, `literal`": ("table1", "literal"),
    "table 2, one hidden layer, `moderate`": ("table2", "moderate"),
    "table 2, one hidden layer, `literal`": ("table2", "literal"),
    "table 3, injected candidate sets": ("table3", "injected"),
    "table 3, real candidate sets (mirflickr)": ("table3", "real"),
}


def count_rows(summaries):
    for selection, (title, key) in itertools.product(("clean", "noisy"), PAGE_ROWS.items()):
        summary = summaries[(*key, selection)]
        yield f"| {title} | {near(summary, *SAME_TASK)} | {'{} of {}'.format(*wins(summary, *SIX))} |"


def journal_rows(summaries):
    for table, protocol, dataset in (
        ("journal1", "literal", "tmc"),
        ("journal1", "literal", "mirflickr"),
        ("journal2", "injected", "tmc"),
        ("journal2", "real", "mirflickr"),
    ):
        summary = summaries[table, protocol, "clean"]
        won = "{} of {}".format(*wins(summary, dataset))
        yield f"| table {table.replace('journal', 'J')}, {protocol}, {dataset} | {near(summary, dataset)} | {won} |"


CUT_CELLS = [
    ("table1", "moderate", "unbiased-hamming-square"),
    ("table1", "moderate", "unbiased-ranking-sigmoid"),
    ("table1", "moderate", "plain-hamming-square"),
    ("table3", "injected", "unbiased-hamming-square"),
    ("table3", "injected", "unbiased-ranking-sigmoid"),
]


def cut_rows(summaries):
    """Return the rows of the table of enron and slashdot: printed, as printed, read correctly."""
    for dataset in ("slashdot", "enron"):
        for table, protocol, method in CUT_CELLS:
            entries = [
                [summaries[table, protocol, "clean"].entry(method, name, metric) for metric in TABLE_METRICS]
                for name in (f"{dataset}_as_printed", dataset)
            ]
            values = [[e.printed.mean for e in entries[0]], *([e.mean for e in column] for column in entries)]
            cells = " | ".join("/".join(map(short, column)) for column in values)
            yield f"| {dataset}, table {table[-1]}, {method} | {cells} |"
        for protocol in ("moderate", "literal"):
            summary = summaries["table1", protocol, "clean"]
            cells = " | ".join(near(summary, name) for name in (f"{dataset}_as_printed", dataset))
            yield f"| {dataset}, table 1, {protocol}: unbiased cells within .02 (at most .02 worse) | | {cells} |"


def rival_gain(summary, methods, *datasets):
    return np.mean([e.gain for e in summary.only(*datasets).entries if e.method in methods and e.metric == METRIC])


METRIC = "average_precision"
UPML = ("unbiased-hamming-square", "unbiased-ranking-sigmoid")


@pytest.mark.parametrize("make", [count_rows, journal_rows, cut_rows])
def test_rows_on_the_page(summaries, make):
    page = (ROOT / "docs" / "tables.md").read_text()
    for row in make(summaries):
        assert row in page


def test_number_of_values_on_the_page():
    assert f"{len(list(rows(read_cells(CELLS)))):,} values" in (ROOT / "docs" / "tables.md").read_text()


def test_table_3_on_the_page(summaries):
    """Best uPML row against the five rivals, and how far each side is from the printed values."""
    page = " ".join((ROOT / "docs" / "tables.md").read_text().split())
    summary, datasets = summaries["table3", "injected", "clean"], ("yeast", "scene", "enron", "tmc")
    better, significant, worse, total = summary.only(*datasets).rivals()
    assert (
        f"better in {better} of {total} comparisons, significantly in {significant}, significantly worse in {worse}"
        in page
    )
    assert f"mirflickr {'{} of {}'.format(*summaries['table3', 'real', 'clean'].rivals()[::3])}" in page
    gains = [rival_gain(summary, methods, *datasets) for methods in (UPML, PML_METHODS)]
    assert f"{short(gains[0])} better than printed for uPML and {short(gains[1])} for the competing methods" in page


def test_section_of_the_readme(summaries):
    """The section has one table and at most 120 words."""
    section = (ROOT / "README.md").read_text().split("\n## The paper\n")[1].split("\n## ")[0]
    lines = section.splitlines()
    assert sum(len(line.split()) for line in lines if not line.startswith("|")) <= 120
    blocks = [("table1", "table 1, linear"), ("table2", "table 2, network")]
    for table, title in blocks:
        counts = [near(summaries[table, protocol, "clean"], *SAME_TASK) for protocol in ("literal", "moderate")]
        assert f"| {title} | {' | '.join(counts)} |" in lines
    won = [wins(summaries[table, p, "clean"], *SIX) for table, _ in blocks for p in ("literal", "moderate")]
    better, sure, _, total = summaries["table3", "injected", "clean"].only("yeast", "scene", "enron", "tmc").rivals()
    text = " ".join(section.split())
    assert "win {} of {} comparisons".format(*map(sum, zip(*won))) in text
    assert (
        f"uPML loss wins {better} of {total} with five methods on four datasets (table 3, {sure} significantly)" in text
    )
