"""Kill a process at a random moment: what it had reported is stored, once, and nothing is damaged.

Each case starts one activity in a child process, sends SIGKILL at a random time, checks what is on disk, and repeats or
resumes the activity.
"""

from __future__ import annotations

import http.client
import os
import signal
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from robustness.campaign import Campaign, Failure

Report = Callable[[str], None]


def killed(work: Callable[[Report], None], seconds: float) -> list[str]:
    """Run ``work`` in a child process, kill it after some time, and return the lines that it has reported."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            work(lambda line: os.write(write, f"{line}\n".encode()))
        finally:
            os._exit(0)
    os.close(write)
    threading.Timer(seconds, os.kill, (child, signal.SIGKILL)).start()
    with open(read) as stream:
        lines = stream.read().split("\n")[:-1]  # a line that is not complete was not reported
    os.waitpid(child, 0)
    return lines


def expect(condition: bool, outcome: str, seen: object = "") -> None:
    """Fail with an outcome unless the condition holds."""
    if not condition:
        raise Failure(outcome, seen)


# -- Files


@cache
def models() -> tuple[Any, Any, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return two models with different weights, rows, and the scores of both models."""
    from ccmn import CCMNClassifier

    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    options = {"epochs": 2, "random_state": 0}
    both = [CCMNClassifier(None, lr=rate, **options).fit(X, X > 0) for rate in (0.1, 0.5)]
    scores = tuple(clf.decision_function(X) for clf in both)
    expect(not np.array_equal(*scores), "equal models")
    return *both, X, scores


def save_model(rng: np.random.Generator, folder: Path) -> str:
    from ccmn import load_model

    first, second, X, scores = models()
    path = folder / "model.ccmn"
    first.save(path)

    def work(report: Report) -> None:
        while True:
            second.save(path)
            first.save(path)

    killed(work, float(rng.exponential(0.02)))
    found = load_model(path).decision_function(X)
    expect(any(np.array_equal(found, each) for each in scores), "damaged", path.name)
    first.save(path)
    expect(os.listdir(folder) == [path.name], "leftovers", os.listdir(folder))
    return "save"


def write_files(rng: np.random.Generator, folder: Path) -> str:
    """Write data files and rates, with the writers that exports, votes and caches use, too."""
    from ccmn.app.rates_files import read_estimate, write_rates
    from ccmn.app.review.retraining import _write_lines
    from ccmn.data import MultiLabelData, read_file, write_file
    from ccmn.noise import PartialNoise

    X, rows = np.arange(300, dtype=np.float32).reshape(100, 3), range(100)
    data = [MultiLabelData(X + i, np.full((100, 2), i, np.uint8)) for i in range(2)]

    def write(i: int) -> None:
        write_file(data[i], folder / "data.npz")
        write_file(data[i], folder / "data.csv")
        write_rates(PartialNoise([0.1 + i / 10, 0.2]), folder / "rates.json")
        _write_lines(folder / "votes.csv", ("row", "annotator", "label", "value"), [(r, "ann", "sea", i) for r in rows])

    def work(report: Report) -> None:
        while True:
            write(1)
            write(0)

    write(0)
    killed(work, float(rng.exponential(0.03)))
    for found in (read_file(folder / "data.npz"), read_file(folder / "data.csv", -2)):
        i = int(found.Y[0, 0])
        expect(np.array_equal(found.X, X + i) and bool((i == found.Y).all()), "damaged", found.name)
    expect(read_estimate(folder / "rates.json").rho_neg[0] in (0.1, 0.2), "damaged", "rates.json")
    votes = np.loadtxt(folder / "votes.csv", delimiter=",", skiprows=1, usecols=(0, 3))
    expect(votes.shape == (100, 2) and len(set(votes[:, 1])) == 1, "damaged", "votes.csv")
    write(0)
    left = sorted(os.listdir(folder))
    expect(left == ["data.csv", "data.npz", "rates.json", "votes.csv"], "leftovers", left)
    return "data files"


def resume_parts(rng: np.random.Generator, folder: Path) -> str:
    """Encode rows in parts, which continues after a kill."""
    from ccmn.data.encoders import encode_rows

    X = np.random.default_rng(0).normal(size=(300, 2))

    def encode(report: Report = lambda line: None) -> np.ndarray:
        def encoder(rows: list[int]) -> np.ndarray:
            report(str(rows[0]))
            return np.stack([X[rows, 0], X[rows, 1] ** 2], 1)

        return encode_rows(encoder, int, 300, batch_size=1, parts=folder / "parts")

    killed(lambda report: encode(), float(rng.exponential(0.1)))
    done = len(list((folder / "parts").glob("[0-9]*.npy"))) if (folder / "parts").exists() else 0
    computed: list[str] = []
    expected = np.stack([X[:, 0], X[:, 1] ** 2], 1).astype(np.float32)
    expect(np.array_equal(encode(computed.append), expected), "damaged", "parts")
    expect(len(computed) == 300 - min(300, 16 * done), "lost", f"{len(computed)} rows after {done} parts")
    return "parts"


# -- Stores


def _check_integrity(path: Path) -> None:
    connection = sqlite3.connect(path)
    (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    expect(answer == "ok", "damaged", answer)


def append_results(rng: np.random.Generator, folder: Path) -> str:
    from ccmn.paper.result_store import Cell, Result, ResultStore

    cell, path = Cell("table1", "literal", "yeast", "ridge", 0, 100), folder / "results.db"

    def result(repeat: int) -> Result:
        return Result(replace(cell, repeat=repeat), {"values": {"clean": {"hamming_loss": repeat / 1000}}})

    def work(report: Report) -> None:
        with ResultStore(path) as store:
            for repeat in range(0, 10_000, 3):
                store.append([result(repeat + j) for j in range(3)])
                report(str(repeat))

    reported = killed(work, float(rng.exponential(0.1)))
    with ResultStore(path) as store:
        found = [stored.cell.repeat for stored in store.results()]
        values = [stored.outcome["values"]["clean"]["hamming_loss"] for stored in store.results()]
    expect(len(found) == len(set(found)), "duplicated", found)
    expect(
        {int(r) + j for r in reported for j in range(3)} <= set(found), "lost", (reported[-1:], max(found, default=0))
    )
    expect(len(found) % 3 == 0 and values == [repeat / 1000 for repeat in found], "damaged", len(found))
    _check_integrity(path)
    return "result store"


def record_answers(rng: np.random.Generator, folder: Path) -> str:
    from ccmn.app.review.decisions import DecisionStore, QueueItem

    path, facts = folder / "decisions.db", {"rows": 10_000}

    def work(report: Report) -> None:
        with DecisionStore(path, facts) as store:
            for row in range(10_000):
                item = QueueItem(row, row, "random", (0, 1))
                store.append(item, (0, 1))
                store.record(item, {0: "yes", 1: "no"})
                report(str(row))

    reported = [int(row) for row in killed(work, float(rng.exponential(0.1)))]
    with DecisionStore(path, facts) as store:
        answers, progress = store.answers(), store.progress()
    found = {(answer.row, answer.label): answer.answer for answer in answers}
    expect(len(found) == len(answers), "duplicated")
    expected = {(row, label): ("yes", "no")[label] for row in reported for label in (0, 1)}
    expect(expected.items() <= found.items(), "lost", reported[-1:])
    expect(progress["answers"] == len(answers) and progress["counted"] == len(answers) // 2, "damaged", progress)
    _check_integrity(path)
    return "decision store"


# -- Programs


def review(rng: np.random.Generator, folder: Path) -> str:
    from app.review.example import make_session
    from ccmn.app.review.decisions import DecisionStore
    from ccmn.app.review.server import serve

    acknowledged: list[tuple[int, int]] = []

    def work(report: Report) -> None:
        serve(make_session(folder), None, report)

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            work(lambda url: os.write(write, f"{url}\n".encode()))
        os._exit(0)
    os.close(write)
    with open(read) as stream:
        host, _, query = stream.readline().strip().removeprefix("http://").partition("/")
        threading.Timer(float(rng.exponential(0.3)), os.kill, (child, signal.SIGKILL)).start()
        with suppress(OSError, http.client.HTTPException):
            _answer_rows(host, query, acknowledged)
    os.waitpid(child, 0)
    with DecisionStore(folder / "decisions.db", {}) as store:
        found = {(answer.row, answer.label) for answer in store.answers()}
        rows = {position: store.item(position).row for position, _ in acknowledged}
        expect({(rows[position], label) for position, label in acknowledged} <= found, "lost")
        expect(store.progress()["answers"] == len(found), "damaged")
    _check_integrity(folder / "decisions.db")
    return "review server"


def _answer_rows(host: str, query: str, acknowledged: list[tuple[int, int]]) -> None:
    """Answer all labels of one row after the other."""

    def ask(method: str, path: str, body: str | None = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response

    cookie = ask("GET", f"/{query}").headers["set-cookie"].partition(";")[0]
    for position in range(100):
        for label in range(3):
            response = ask(
                "POST",
                f"/row/{position}/answer",
                f"label={label}&answer=yes",
                Cookie=cookie,
                Origin=f"http://{host}",
            )
            if response.status == 303:
                acknowledged.append((position, label))
        ask("POST", f"/row/{position}/next", "", Cookie=cookie, Origin=f"http://{host}")


def _fit(folder: Path) -> np.ndarray:
    from ccmn import CCMNClassifier

    X = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    clf = CCMNClassifier(None, epochs=300, lr=0.05, batch_size=20, random_state=0)
    clf.fit(X, X[:, :2] > 0.3, checkpoint=folder / "state")
    scores = clf.decision_function(X)
    clf.save(folder / "model.ccmn")
    return scores


@cache
def fitted() -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        return _fit(Path(folder))


def fit(rng: np.random.Generator, folder: Path) -> str:
    for _ in range(3):
        killed(lambda report: bool(_fit(folder)), float(rng.exponential(0.4)))
    expect(np.array_equal(_fit(folder), fitted()), "damaged", "another model")
    expect(os.listdir(folder) == ["model.ccmn"], "leftovers", os.listdir(folder))
    return "fit, three kills"


METHODS = ["unbiased-hamming-square"]


def _reproduce(folder: Path) -> list[Any]:
    from ccmn.paper.result_store import ResultStore, rows
    from ccmn.paper.runner import prepare, run_columns

    with ResultStore(folder / "results.db") as store:
        run_columns(prepare(["table1"], small=True).columns, store, methods=METHODS)
        return list(rows(store.results()))


@cache
def reproduced() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        return _reproduce(Path(folder))


def reproduce(rng: np.random.Generator, folder: Path) -> str:
    killed(lambda report: bool(_reproduce(folder)), float(rng.exponential(2.0)))
    if (folder / "results.db").exists():
        _check_integrity(folder / "results.db")
    expect(_reproduce(folder) == reproduced(), "damaged", "other results")
    return "reproduce"


CASES = (
    (0.4, save_model),
    (0.15, write_files),
    (0.1, resume_parts),
    (0.12, append_results),
    (0.12, record_answers),
    (0.04, review),
    (0.04, fit),
    (0.03, reproduce),
)


def check(rng: np.random.Generator, folder: Path) -> str:
    """Run one activity, chosen at random."""
    chosen = rng.choice(len(CASES), p=[share for share, _ in CASES])
    return CASES[chosen][1](rng, folder)


def prepare() -> None:
    """Compute what uninterrupted activities give."""
    import torch

    from app.review.example import make_session

    torch.set_num_threads(1)
    models(), fitted(), reproduced()
    with tempfile.TemporaryDirectory() as folder:
        make_session(Path(folder) / "review").close()


CAMPAIGNS = (Campaign("kills", check, 1000, seconds=120, batch=20, prepare=prepare),)
