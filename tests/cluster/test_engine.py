"""The Ray engine: a node that is lost, a driver that is killed, and the same summary as on one machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ccmn
from ccmn.experiments.result_store import ResultStore
from ccmn.experiments.runner import prepare, run_table
from ccmn.experiments.summary import summarize

pytestmark = pytest.mark.slow

METHODS = ["unbiased-hamming-square", "unbiased-ranking-sigmoid", "ridge"]


def columns():
    return prepare(["table1"], small=True).columns


def figures(path):
    """Summaries without what no two runs share: the time taken."""
    with ResultStore(path) as store:
        summaries = summarize(store.results())
    assert summaries
    return [
        (s.table.name, s.protocol, s.selection, list(s.failures), [(e, e.mean, e.std) for e in s.entries])
        for s in summaries
    ]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """What the local engine comes to."""
    path = tmp_path_factory.mktemp("here") / "local.db"
    with ResultStore(path) as store:
        run_table(columns(), store, methods=METHODS)
    return figures(path)


def test_a_lost_node_loses_nothing(cluster, node, here, tmp_path):
    """It is killed after the first result, while it runs another unit."""
    told = []

    def tell(done):
        told.append(done)
        if len(told) == 1:
            cluster.remove_node(node, allow_graceful=False)

    with ResultStore(tmp_path / "ray.db") as there:
        run_table(columns(), there, methods=METHODS, engine="ray", address=cluster.address, tell=tell)
        again = []
        run_table(columns(), there, methods=METHODS, engine="ray", address=cluster.address, tell=again.append)
    assert figures(tmp_path / "ray.db") == here
    assert told[-1].weight == pytest.approx(told[-1].total)
    assert not again  # what is stored is not run again


def finished(path):
    """When each result was stored."""
    import sqlite3

    if not path.exists():
        return {}
    try:
        with sqlite3.connect(path) as connection:
            return dict(connection.execute("SELECT key, finished FROM results"))
    except sqlite3.OperationalError:  # it is being made
        return {}


def test_a_killed_driver_goes_on_when_started_again(cluster, node, here, tmp_path):
    store = tmp_path / "ray.db"
    command = [sys.executable, "-m", "ccmn", "reproduce", "table1", "--small", "--store", str(store), "--engine", "ray"]
    command += ["--address", cluster.address, *(word for name in METHODS for word in ("--methods", name))]
    environment = {**os.environ, "PYTHONPATH": str(Path(ccmn.__file__).parents[1])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as driver:
        deadline = time.monotonic() + 100
        while not finished(store):
            assert driver.poll() is None, driver.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
    before = finished(store)
    assert len(before) < 4 * len(METHODS)  # repeats, protocols
    subprocess.run(command, env=environment, check=True, timeout=150, capture_output=True)
    assert figures(store) == here
    assert before.items() <= finished(store).items()  # none was run twice
