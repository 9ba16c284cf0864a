"""What is stored stays: kills, two processes, failures, files that are something else."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from ccmn.experiments.cells import Cell
from ccmn.experiments.store import Result, ResultStore

CELL = Cell("table1", "literal", "digits", "plain-hamming-square", 0, 100, "{}")


def result(repeat=0, value=0.5, **fields):
    outcome = {"values": {"clean": {"hamming_loss": value}}}
    return Result(replace(CELL, repeat=repeat), outcome, **fields)


def test_results_come_back_as_they_were(tmp_path):
    with ResultStore(tmp_path / "r.db") as store:
        store.append([result(1, seconds=2.5, machine={"device": "cpu"}), result(0)])
    with ResultStore(tmp_path / "r.db") as store:
        assert list(store.results()) == [result(0), result(1, seconds=2.5, machine={"device": "cpu"})]
        assert store.missing([replace(CELL, repeat=r) for r in range(4)]) == [replace(CELL, repeat=r) for r in (2, 3)]


def test_every_field_of_a_cell_is_in_its_key():
    others = [
        replace(CELL, **{name: value})
        for name, value in {
            "table": "table2",
            "protocol": "moderate",
            "dataset": "yeast",
            "method": "x",
            "repeat": 1,
            "n": 5,
            "recipe": "[]",
        }.items()
    ]
    assert len({cell.key for cell in [CELL, *others]}) == 8


def test_the_first_result_of_a_cell_stays(tmp_path):
    with ResultStore(tmp_path / "r.db") as store:
        store.append([result(value=0.1)])
        store.append([result(value=0.2), result(1, value=0.3)])
        assert [r.outcome["values"]["clean"]["hamming_loss"] for r in store.results()] == [0.1, 0.3]


def test_failures_are_rows_and_are_replaced_on_request(tmp_path):
    failure = Result(CELL, error="ValueError: no")
    with ResultStore(tmp_path / "r.db") as store:
        store.append([failure])
        assert store.missing([CELL]) == []
        assert store.missing([CELL], retry_failed=True) == [CELL]
        store.append([result()])
        store.append([failure])  # a later failure does not undo it
        assert list(store.results()) == [result()]


def test_all_or_none_of_a_stack(tmp_path):
    with ResultStore(tmp_path / "r.db") as store:
        with pytest.raises(TypeError):
            store.append([result(0), replace(result(1), outcome={"values": {1, 2}})])
        assert list(store.results()) == []


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path, content = tmp_path / "r.db", b"not a database at all, but long enough to be looked at" * 30
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a store of results"):
        ResultStore(path)
    assert path.read_bytes() == content


def test_another_database_is_refused_and_left_alone(tmp_path):
    other = sqlite3.connect(tmp_path / "r.db")
    other.execute("CREATE TABLE mine (x)")
    with pytest.raises(ValueError, match="not a store of results"):
        ResultStore(tmp_path / "r.db")
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    other.close()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        ResultStore(tmp_path / "none" / "r.db")


WRITER = """
import sys
from ccmn.experiments.cells import Cell
from ccmn.experiments.store import Result, ResultStore
start, path = int(sys.argv[1]), sys.argv[2]
with ResultStore(path) as store:
    for repeat in range(start, start + 5000):
        cell = Cell("table1", "literal", "digits", "m", repeat, 100, "{}")
        store.append([Result(cell, {"values": {}})])
        print(repeat, flush=True)
"""


def start_writer(path, start):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(start), str(path)], stdout=subprocess.PIPE, text=True)


def test_two_writers_killed_at_any_moment_lose_nothing_that_was_reported(tmp_path):
    path = tmp_path / "r.db"
    rng = np.random.default_rng(0)
    for attempt in range(2):
        writers = [start_writer(path, 10_000 * (2 * attempt + i)) for i in range(2)]
        for writer in writers:
            assert writer.stdout.readline()  # it has begun to write
        time.sleep(float(rng.uniform(0.02, 0.4)))
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
        reported = {10_000 * (2 * attempt + i) for i in range(2)}
        for writer in writers:
            lines = writer.stdout.read().split("\n")
            reported |= {int(line) for line in lines[:-1]}
            writer.wait()
            writer.stdout.close()
        with ResultStore(path) as store:
            stored = {r.cell.repeat for r in store.results()}
            assert reported <= stored
            assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
