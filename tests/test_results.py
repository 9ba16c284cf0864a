"""The numbers in the README and the documentation are those of results/cells.csv."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccmn.paper.result_store import COLUMNS, read_cells, rows, write_cells
from ccmn.paper.summary import COUNTED_LOSSES, summarize
from ccmn.paper.tables import TABLES, is_proposed

CELLS = Path(__file__).parents[1] / "results" / "cells.csv"
# The public file of slashdot differs from that of the authors (docs/tables.md) and is not counted.
FIVE = ("yeast", "scene", "enron", "tmc", "mirflickr")
SIX = (*FIVE, "slashdot")


@pytest.fixture(scope="module")
def summaries():
    return {(s.table.name, s.protocol, s.selection): s for s in summarize(read_cells(CELLS))}


def at_level(summary, datasets=FIVE):
    judged = [e for e in summary.entries if e.dataset in datasets and is_proposed(e.method) and e.at_level is not None]
    return sum(e.at_level for e in judged), len(judged)


def wins(summary, datasets=FIVE):
    comparisons = [d for d in summary.comparisons if d.dataset in datasets and d.loss in COUNTED_LOSSES]
    return sum(d.outcome == "win" for d in comparisons), len(comparisons)


def test_every_cell_of_the_available_data_sets(summaries):
    for name in ("table1", "table2"):
        for protocol in ("literal", "moderate"):
            for selection in ("clean", "noisy"):
                summary = summaries[name, protocol, selection]
                assert len(summary.entries) == 10 * 6 * 3
                assert all(len(e.values) == 5 for e in summary.entries)
    for protocol, columns in (("injected", 5), ("real", 1)):
        assert len(summaries["table3", protocol, "clean"].entries) == len(TABLES["table3"].methods) * columns * 3


def test_moderate_noise_is_at_the_printed_level(summaries):
    found = [at_level(summaries[t, "moderate", "clean"]) for t in ("table1", "table2")]
    assert found == [(73, 75), (75, 75)]


def test_unbiased_outperforms_plain(summaries):
    for table in ("table1", "table2"):
        for protocol in ("literal", "moderate"):
            for selection in ("clean", "noisy"):
                assert wins(summaries[table, protocol, selection]) == (60, 60)


def test_table_3_is_at_the_printed_level(summaries):
    assert at_level(summaries["table3", "injected", "clean"]) == (24, 24)
    assert at_level(summaries["table3", "real", "clean"]) == (6, 6)


def test_tmc_in_the_journal_tables(summaries):
    found = [
        at_level(summaries[t, p, "clean"], ("tmc",)) for t, p in (("journal1", "literal"), ("journal2", "injected"))
    ]
    assert found == [(19, 20), (7, 8)]


def test_round_trip(tmp_path):
    found = read_cells(CELLS)
    write_cells(found, tmp_path / "cells.csv")
    assert (tmp_path / "cells.csv").read_bytes() == CELLS.read_bytes()
    assert len(list(rows(found))) == len(CELLS.read_text().splitlines()) - 1


def test_file_with_other_columns(tmp_path):
    (tmp_path / "cells.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=f"columns must be {', '.join(COLUMNS)}; got a, b"):
        read_cells(tmp_path / "cells.csv")


def test_number_of_values_in_the_readme():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert f"all {len(list(rows(read_cells(CELLS)))):,} values" in readme


def _of(count):
    return f"{count[0]} of {count[1]}"


README_ROWS = {
    "table 1, linear, moderate noise": ("table1", "moderate"),
    "table 2, one hidden layer, moderate noise": ("table2", "moderate"),
    "table 1, noise as described in the text": ("table1", "literal"),
    "table 2, noise as described in the text": ("table2", "literal"),
    "table 3, injected candidate sets": ("table3", "injected"),
    "table 3, real candidate sets of mirflickr": ("table3", "real"),
}


def test_counts_in_the_readme_with_and_without_slashdot(summaries):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for title, key in README_ROWS.items():
        summary, cells = summaries[(*key, "clean")], []
        for count in (at_level, wins):
            five, six = count(summary), count(summary, SIX)
            cells.append(_of(five) if five == six else f"{_of(five)} ({_of(six)})")
        assert f"| {title} | {' | '.join(cells)} |" in readme


PAGE_ROWS = {
    "table 1, moderate": ("table1", "moderate"),
    "table 2, moderate": ("table2", "moderate"),
    "table 1, literal": ("table1", "literal"),
    "table 2, literal": ("table2", "literal"),
    "table 3, injected (without mirflickr)": ("table3", "injected"),
}


def test_counts_on_the_page_with_and_without_slashdot(summaries):
    page = (Path(__file__).parents[1] / "docs" / "tables.md").read_text()
    for datasets in (FIVE, SIX):
        for title, key in PAGE_ROWS.items():
            clean, noisy = (summaries[(*key, selection)] for selection in ("clean", "noisy"))
            cells = [f"{_of(count(clean, datasets))} ({count(noisy, datasets)[0]})" for count in (at_level, wins)]
            assert f"| {title} | {' | '.join(cells)} |" in page


def _means(entries):
    return [e.mean for e in entries], [e.printed.mean for e in entries]
