"""Result store and cells.csv: durability, concurrent writers, failures, damaged files."""

from dataclasses import replace

import pytest

from ccmn.paper.result_store import COLUMNS, Cell, Result, ResultStore, read_cells, write_cells

CELL = Cell("table1", "literal", "digits", "plain-hamming-square", 0, 100, "{}")


def result(repeat=0, value=0.5, **fields):
    outcome = {"values": {"clean": {"hamming_loss": value}}}
    return Result(replace(CELL, repeat=repeat), outcome, **fields)


def test_results_are_read_back_unchanged(tmp_path):
    with ResultStore(tmp_path / "r.db") as store:
        store.append([result(1, seconds=2.5, machine={"device": "cpu"}), result(0)])
    with ResultStore(tmp_path / "r.db") as store:
        assert list(store.results()) == [result(0), result(1, seconds=2.5, machine={"device": "cpu"})]
        assert store.missing([replace(CELL, repeat=r) for r in range(4)]) == [replace(CELL, repeat=r) for r in (2, 3)]


def test_first_result_of_a_cell_is_kept(tmp_path):
    with ResultStore(tmp_path / "r.db") as store:
        store.append([result(value=0.1)])
        store.append([result(value=0.2), result(1, value=0.3)])
        assert [r.outcome["values"]["clean"]["hamming_loss"] for r in store.results()] == [0.1, 0.3]


def test_failures_are_stored_and_replaced_on_request(tmp_path):
    failure = Result(CELL, error="ValueError: no")
    with ResultStore(tmp_path / "r.db") as store:
        store.append([failure])
        assert store.missing([CELL]) == []
        assert store.missing([CELL], retry_failed=True) == [CELL]
        store.append([result()])
        store.append([failure])  # a later failure does not replace a result
        assert list(store.results()) == [result()]


# -- Damaged and foreign files


def test_key_has_not_changed():
    assert CELL.key == "bdf8f384bfff08c420cddbef850ff39d275a14b37063d95a01d550370bb9e3b7"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("outcome", "{"),
        ("outcome", "[1]"),
        ("outcome", '{"values": {"clean": {"magic": 1}}}'),
        ("outcome", '{"values": {"clean": {"hamming_loss": "a"}}}'),
        ("outcome", '{"values": {"old": {}}}'),
        ("machine", "x"),
        ("machine", "5"),
        ("method", b"ridge"),
        ("seconds", "long"),
        ("table_name", "tableX"),
        ("repeat", "x"),
    ],
)
def test_damaged_values_name_the_file(tmp_path, column, value):
    with ResultStore(tmp_path / "r.db") as store:
        store.append([result()])
        store._query(f"UPDATE results SET {column} = ?", (value,))
        with pytest.raises(ValueError, match=r"r\.db") as error:
            list(store.results())
    assert "\n" not in str(error.value)


LINE = "table1,literal,clean,yeast,ridge,hamming_loss,0,100,0.5"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("table1,literal,clean,ye", "expected 9 fields; got 4"),
        (LINE.replace("hamming", "hanning"), "unknown metric 'hanning_loss'"),
        (LINE.replace("table1", "tableX"), "unknown table 'tableX'"),
        (LINE.replace("clean", "old"), "unknown selection 'old'"),
        (LINE.replace(",0,", ",x,"), "'x'"),
        (LINE.replace("0.5", "half"), "'half'"),
        (LINE.replace("100", "1_00"), "'1_00'"),
        (LINE, "duplicate"),
    ],
)
def test_wrong_line_of_cells_names_file_and_line(tmp_path, line, message):
    path = tmp_path / "cells.csv"
    path.write_text("\n".join([",".join(COLUMNS), LINE, line]) + "\n")
    with pytest.raises(ValueError, match=rf"cells\.csv, line 3: .*{message}"):
        read_cells(path)


def test_cells_round_trip(tmp_path):
    found = [
        Result(replace(CELL, configuration="", repeat=r), {"values": {"clean": {"hamming_loss": 0.25}}}) for r in (0, 1)
    ]
    assert write_cells(found, tmp_path / "cells.csv") == 2
    assert read_cells(tmp_path / "cells.csv") == found
