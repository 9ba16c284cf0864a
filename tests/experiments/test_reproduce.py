"""A table from start to end: interrupted, resumed, in processes, with failures; the same results each time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bare import run_bare
from ccmn.experiments import runner
from ccmn.experiments.cells import fingerprint
from ccmn.experiments.export import COLUMNS, rows, write_cells
from ccmn.experiments.paper import TABLES
from ccmn.experiments.reproduce import load, prepare, reproduce
from ccmn.experiments.store import ResultStore

METHODS = ["unbiased-hamming-square", "plain-hamming-square", "unbiased-ranking-sigmoid"]


def small(**options):
    return prepare(["table1"], small=True, **options)


def values(path):
    with ResultStore(path) as store:
        return list(rows(store.results()))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The values of a run that nothing disturbed."""
    path = tmp_path_factory.mktemp("whole") / "r.db"
    with ResultStore(path) as store:
        reproduce(small().columns, store, methods=METHODS)
    return values(path)


def test_every_cell_is_there(whole):
    assert len(whole) == 2 * len(METHODS) * 2 * 2 * 3  # protocols, methods, repeats, selections, metrics


def test_a_second_run_runs_nothing(tmp_path, whole, monkeypatch):
    with ResultStore(tmp_path / "r.db") as store:
        reproduce(small().columns, store, methods=METHODS)
        monkeypatch.setattr(runner, "run_unit", lambda *_: pytest.fail("run twice"))
        reproduce(small().columns, store, methods=METHODS)
    assert values(tmp_path / "r.db") == whole


def test_interrupted_after_each_stack_it_goes_on_to_the_same_end(tmp_path, whole):
    class StopError(Exception):
        pass

    def stop(done):
        raise StopError

    path, ended = tmp_path / "r.db", False
    for _ in range(20):
        with ResultStore(path) as store:
            try:
                reproduce(small().columns, store, methods=METHODS, tell=stop)
                ended = True
                break
            except StopError:
                continue
    assert ended
    assert values(path) == whole


def test_methods_asked_for_one_after_the_other(tmp_path, whole):
    with ResultStore(tmp_path / "r.db") as store:
        for method in METHODS:
            reproduce(small().columns, store, methods=[method])
    found = values(tmp_path / "r.db")
    assert [row[:-1] for row in found] == [row[:-1] for row in whole]
    # Another stack rounds otherwise, and may choose another epoch.
    np.testing.assert_allclose([float(row[-1]) for row in found], [float(row[-1]) for row in whole], atol=0.05)


COMMAND = [
    sys.executable,
    "-m",
    "ccmn",
    "reproduce",
    "table1",
    "--small",
    *(x for m in METHODS for x in ("--methods", m)),
]


def test_killed_at_random_moments_it_goes_on_to_the_same_end(tmp_path, whole):
    path = tmp_path / "r.db"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    rng = np.random.default_rng(0)
    for _ in range(3):
        process = subprocess.Popen([*COMMAND, "--store", str(path)], env=environment, stderr=subprocess.DEVNULL)
        begun = time.monotonic()
        while not path.exists() and time.monotonic() - begun < 60:
            time.sleep(0.01)
        time.sleep(float(rng.uniform(0, 0.7)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run([*COMMAND, "--store", str(path), "--json"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 4
    found = values(path)
    assert [row[:-1] for row in found] == [row[:-1] for row in whole]
    np.testing.assert_allclose([float(r[-1]) for r in found], [float(r[-1]) for r in whole], atol=1e-6)


def test_processes_come_to_the_same(tmp_path, whole):
    told = []
    with ResultStore(tmp_path / "r.db") as store:
        reproduce(small().columns, store, methods=METHODS, jobs=2, tell=told.append)
    found = values(tmp_path / "r.db")
    np.testing.assert_allclose([float(r[-1]) for r in found], [float(r[-1]) for r in whole], atol=1e-6)
    assert told[-1].weight == pytest.approx(told[-1].total)


def test_a_failure_is_a_row_and_is_tried_again_on_request(tmp_path, monkeypatch):
    columns = small(protocols=["literal"]).columns
    broken = lambda *_, **__: (_ for _ in ()).throw(MemoryError("too much"))  # noqa: E731
    with ResultStore(tmp_path / "r.db") as store:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "run_fleet", broken)
            reproduce(columns, store, methods=METHODS[:1])
        assert [r.error for r in store.results()] == ["MemoryError: too much"] * 2
        reproduce(columns, store, methods=METHODS[:1])
        assert all(r.failed for r in store.results())
        reproduce(columns, store, methods=METHODS[:1], retry_failed=True)
        assert not any(r.failed for r in store.results())


def test_cells_as_csv(tmp_path, whole):
    with ResultStore(tmp_path / "r.db") as store:
        reproduce(small(protocols=["literal"]).columns, store, methods=METHODS[:1])
        assert write_cells(store.results(), tmp_path / "cells.csv") == 12
    lines = (tmp_path / "cells.csv").read_text().splitlines()
    assert lines[0].split(",") == list(COLUMNS)
    assert lines[1].startswith("table1,literal,clean,digits,unbiased-hamming-square,hamming_loss,0,1000,")


def test_a_file_of_ones_own_becomes_a_column(tmp_path):
    from ccmn.data.digits import load_digit_scenes
    from ccmn.data.writers import writer_for

    path = tmp_path / "mine.npz"
    writer_for(path)(load_digit_scenes(200), path)
    (column,) = small(datasets=[str(path)], protocols=["moderate"]).columns
    assert column.dataset == "mine"
    assert column.protocol.batch_size("mine") == 100


def test_a_protocol_that_a_table_does_not_have(tmp_path):
    with pytest.raises(ValueError, match="table1 has no protocol real; it has literal, moderate"):
        prepare(["table1"], data_dir=tmp_path, protocols=["real"])


def test_data_sets_that_are_not_at_hand_are_named(tmp_path, monkeypatch):
    def refuse(name, data_dir=None):
        raise FileNotFoundError(f"{name} was not found\nPut it there.")

    monkeypatch.setattr("ccmn.experiments.reproduce.load_dataset", refuse)
    with pytest.raises(ValueError, match=r"nothing to run: .*yeast: yeast was not found; enron"):
        prepare(["table1"], data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match="yeast was not found"):
        prepare(["table1"], datasets=["yeast"], data_dir=tmp_path)


def test_unknown_names_are_refused_at_the_door(tmp_path):
    with pytest.raises(ValueError, match="unknown table"):
        prepare(["table9"])
    with (
        ResultStore(tmp_path / "r.db") as store,
        pytest.raises(ValueError, match="did you mean 'unbiased-hamming-square'"),
    ):
        reproduce(small().columns, store, methods=["unbiased-hamming-sqare"])
    with pytest.raises(ValueError, match="has no protocol mild; it has literal, moderate"):
        small(protocols=["literal", "mild"])


def test_the_fingerprint_tells_values_apart():
    a = load(TABLES["table1"], "digits")
    assert fingerprint(a) == fingerprint(a.take(slice(None)))
    assert fingerprint(a) != fingerprint(a.take(slice(1, None)))


def test_the_tables_are_the_printed_ones():
    from ccmn.experiments.published import published

    for name, table in TABLES.items():
        printed = [key for key in published() if key[0] == name]
        methods, datasets, metrics = ({key[i] for key in printed} for i in (2, 1, 3))
        assert methods <= set(table.methods)
        assert metrics == set(table.metrics)
        assert set(table.datasets) <= datasets


def test_table_3_takes_real_candidates_where_there_are_some():
    table = TABLES["table3"]
    assert [p.name for p in table.protocols_for("mirflickr")] == ["real"]
    assert [p.name for p in table.protocols_for("yeast")] == ["injected"]


def test_a_bare_machine_can_run_a_fleet(tmp_path):
    """Neither pandas nor the command line's libraries."""
    code = """
from ccmn.experiments.reproduce import prepare, reproduce
from ccmn.experiments.store import ResultStore
from ccmn.experiments.summary import summarise
import sys
with ResultStore(sys.argv[1]) as store:
    found = prepare(["table1"], small=True, protocols=["literal"])
    reproduce(found.columns, store, methods=["plain-hamming-square"])
    print(len(summarise(store.results())))
"""
    assert run_bare(code, str(tmp_path / "r.db")) == "2"


def test_engines_take_their_own_options(tmp_path):
    with ResultStore(tmp_path / "r.db") as store:
        with pytest.raises(ValueError, match="address for engine 'ray'"):
            reproduce(small().columns, store, methods=METHODS, address="127.0.0.1:6379")
        with pytest.raises(ValueError, match="jobs is for engine 'local'"):
            reproduce(small().columns, store, methods=METHODS, engine="ray", jobs=2)


def test_a_missing_ray_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with ResultStore(tmp_path / "r.db") as store, pytest.raises(ImportError, match=r"ccmn\[ray\]"):
        reproduce(small().columns, store, methods=METHODS, engine="ray")
