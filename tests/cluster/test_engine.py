"""Ray engine: lost nodes and killed drivers do not change the summary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ccmn
from ccmn.paper.result_store import ResultStore
from ccmn.paper.runner import prepare, run_table
from ccmn.paper.summary import summarize

pytestmark = pytest.mark.slow

METHODS = ["unbiased-hamming-square", "unbiased-ranking-sigmoid", "ridge"]


def columns():
    return prepare(["table1"], small=True).columns


def figures(path):
    """Return summaries without run times."""
    with ResultStore(path) as store:
        summaries = summarize(store.results())
    assert summaries
    return [
        (s.table.name, s.protocol, s.selection, list(s.failures), [(e, e.mean, e.std) for e in s.entries])
        for s in summaries
    ]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Return the summaries of the local engine."""
    path = tmp_path_factory.mktemp("local") / "local.db"
    with ResultStore(path) as store:
        run_table(columns(), store, methods=METHODS)
    return figures(path)


def test_lost_node_loses_no_results(cluster, node, local, tmp_path):
    """Kill a node after the first result, while it runs another group."""
    finished = []

    def callback(done):
        finished.append(done)
        if len(finished) == 1:
            cluster.remove_node(node, allow_graceful=False)

    with ResultStore(tmp_path / "ray.db") as store:
        run_table(columns(), store, methods=METHODS, engine="ray", address=cluster.address, callback=callback)
        again = []
        run_table(columns(), store, methods=METHODS, engine="ray", address=cluster.address, callback=again.append)
    assert figures(tmp_path / "ray.db") == local
    assert finished[-1].cost == pytest.approx(finished[-1].total)
    assert not again  # stored results are not computed again


def stored_times(path):
    """Return the time at which each result was stored."""
    import sqlite3

    if not path.exists():
        return {}
    try:
        with sqlite3.connect(path) as connection:
            return dict(connection.execute("SELECT key, finished FROM results"))
    except sqlite3.OperationalError:  # the file is being created
        return {}


def test_killed_driver_continues_when_started_again(cluster, node, local, tmp_path):
    store = tmp_path / "ray.db"
    command = [sys.executable, "-m", "ccmn", "reproduce", "table1", "--small", "--store", str(store), "--engine", "ray"]
    command += ["--address", cluster.address, *(word for name in METHODS for word in ("--methods", name))]
    environment = {**os.environ, "PYTHONPATH": str(Path(ccmn.__file__).parents[1])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as driver:
        deadline = time.monotonic() + 100
        while not stored_times(store):
            assert driver.poll() is None, driver.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
    before = stored_times(store)
    assert len(before) < 4 * len(METHODS)  # repeats, protocols
    subprocess.run(command, env=environment, check=True, timeout=150, capture_output=True)
    assert figures(store) == local
    assert before.items() <= stored_times(store).items()  # no cell was run twice
