"""Kill or interrupt processes at a random moment, alone or two at a time: nothing that was stored is lost or damaged.

Each case starts one activity in one or two child processes, sends SIGKILL or SIGINT at a random time, checks what is on
disk, and repeats or resumes the activity.
"""

import http.client
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from app.review.example import make_session
from ccmn import CCMNClassifier, load_model
from ccmn.app.review import serve
from ccmn.app.review.decisions import DecisionStore, QueueItem
from ccmn.data import MultiLabelData, read_file, write_file
from ccmn.paper.result_store import ResultStore
from robustness.campaign import INTERRUPTED, Campaign, check_printed, command, expect
from robustness.malformed import results_of

Report = Callable[[str], None]
Activity = Callable[["Run"], str]


class Run:
    """One case: where it runs, how many processes, and which signal ends them after how many seconds."""

    def __init__(self, rng: np.random.Generator, folder: Path, sent: int, processes: int) -> None:
        self.rng, self.folder, self.sent, self.processes = rng, folder, sent, processes

    def end(self, work: Callable[[Report], Any], seconds: float) -> list[str]:
        """Run ``work`` in child processes, end them after about some time, and return the lines they reported.

        The signal is sent again after ten seconds: Python drops an interruption that falls into a destructor.
        """
        wait = float(self.rng.exponential(seconds))
        children = [start(work) for _ in range(self.processes)]
        timers = [threading.Timer(wait + more, send, (pid, self.sent)) for pid, _ in children for more in (0, 10)]
        [timer.start() for timer in timers]
        lines = []
        for pid, stream in children:
            with stream:
                found = stream.read().split("\n")
            os.waitpid(pid, 0)
            wrong = [line for line in found if line.startswith("!")]
            expect(not wrong, "traceback", "\n".join(found)[-1500:] if wrong else "")
            lines += found[:-1]  # a line that is not complete was not reported
        [timer.cancel() for timer in timers]
        return lines

    def command(self, line: str, seconds: float) -> None:
        """Run and end a command; it ends with success, as interrupted, or not at all."""

        def work(report: Report) -> None:
            found = command(self.folder, line)
            expect(found.code in (0, INTERRUPTED), "failed", f"{line}: {found}")

        self.end(work, seconds)


def start(work: Callable[[Report], Any]) -> tuple[int, Any]:
    """Start a child process; return its number, and the stream of what it reports; an error is a line with "!"."""
    read, write = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until the child can handle it
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        os.close(write)
        return child, open(read)
    os.close(read)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        work(lambda line: os.write(write, f"{line}\n".encode()))
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except BaseException:
        os.write(write, f"!{traceback.format_exc(limit=-6)}\n".encode())
    finally:
        os._exit(0)


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def check_left(folder: Path, names: list[str]) -> None:
    left = sorted(os.listdir(folder))
    expect(left == names, "leftovers", left)


def check_integrity(path: Path) -> None:
    connection = sqlite3.connect(path)
    (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    expect(answer == "ok", "damaged", answer)


# -- Files


@cache
def models() -> tuple[Any, Any, np.ndarray, list[np.ndarray]]:
    """Return two models with different weights, rows, and the scores of both models."""
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    both = [CCMNClassifier(None, lr=lr, epochs=2, random_state=0).fit(X, X > 0) for lr in (0.1, 0.5)]
    return *both, X, [clf.decision_function(X) for clf in both]


def save_model(run: Run) -> str:
    first, second, X, scores = models()
    path = run.folder / "model.ccmn"
    first.save(path)

    def work(report: Report) -> None:
        while True:
            second.save(path)
            first.save(path)

    run.end(work, 0.05)
    found = load_model(path).decision_function(X)
    expect(any(np.array_equal(found, each) for each in scores), "damaged", path.name)
    first.save(path)
    check_left(run.folder, [path.name])
    return "model"


def write_files(run: Run) -> str:
    X = np.arange(300, dtype=np.float32).reshape(100, 3)
    names = ["data.csv", "data.json", "data.jsonl", "data.npz"]

    def write(i: int) -> None:
        for name in names:
            texts = [f"text {i}"] * 100 if "json" in name else None
            write_file(MultiLabelData(X + i, np.full((100, 2), i, np.uint8), texts=texts), run.folder / name)

    def work(report: Report) -> None:
        while True:
            write(1)
            write(0)

    write(0)
    run.end(work, 0.1)
    for name in ("data.npz", "data.csv"):
        found = read_file(run.folder / name, -2 if name == "data.csv" else None)
        i = int(found.Y[0, 0])
        expect(np.array_equal(found.X, X + i) and bool((i == found.Y).all()), "damaged", name)
    for name in ("data.json", "data.jsonl"):
        content = (run.folder / name).read_text()
        expect(content.count("text 0") in (0, 100) and content.count("text ") >= 100, "damaged", name)
    write(0)
    check_left(run.folder, names)
    return "data files"


# -- Stores


def append_results(run: Run) -> str:
    path = run.folder / "results.db"

    def work(report: Report) -> None:
        own = os.getpid() * 10_000
        with ResultStore(path) as store:
            for repeat in range(own, own + 10_000, 3):
                store.append(results_of(range(repeat, repeat + 3)))
                report(str(repeat))

    reported = run.end(work, 0.2)
    with ResultStore(path) as store:
        values = {stored.cell.repeat: stored.outcome["values"]["clean"]["hamming_loss"] for stored in store.results()}
        expect(len(values) == len(list(store.results())), "duplicated")
    expect({int(line) + j for line in reported for j in range(3)} <= set(values), "lost", reported[-1:])
    expect(len(values) % 3 == 0 and all(value == repeat / 1000 for repeat, value in values.items()), "damaged")
    check_integrity(path)
    return "result store"


def record_answers(run: Run) -> str:
    path, facts = run.folder / "decisions.db", {"rows": 10_000}

    def work(report: Report) -> None:
        with DecisionStore(path, facts) as store:
            for row in range(10_000):
                item = QueueItem(row, row, "random", (0, 1))
                store.append(item)
                store.record(item, {0: "yes", 1: "no"})
                report(str(row))

    processes, run.processes = run.processes, 1
    reported = [int(row) for row in run.end(work, 0.2)]
    run.processes = processes
    with DecisionStore(path, facts) as store:
        answers, progress = store.answers(), store.progress()
    found = {(answer.row, answer.label): answer.answer for answer in answers}
    expected = {(row, label): ("yes", "no")[label] for row in reported for label in (0, 1)}
    expect(expected.items() <= found.items() and len(found) == len(answers), "lost", reported[-1:])
    expect(progress["answers"] == len(answers) and progress["counted"] == len(answers) // 2, "damaged", progress)
    check_integrity(path)
    return "decision store"


# -- Programs


def review(run: Run) -> str:
    """Answer rows of a review until its server ends; a second server of the same review may run."""

    def work(report: Report) -> None:
        serve(make_session(run.folder), None, report)

    acknowledged: list[tuple[int, int]] = []
    children = [start(work) for _ in range(run.processes)]
    addresses = [stream.readline().strip() for _, stream in children]
    expect(all(address.startswith("http://") for address in addresses), "failed", addresses)
    for pid, _ in children:
        threading.Timer(float(run.rng.exponential(0.3)), send, (pid, run.sent)).start()
    with suppress(OSError, http.client.HTTPException):
        answer_rows(addresses[0], acknowledged)
    for pid, stream in children:
        os.waitpid(pid, 0)
        wrong = stream.read()
        expect("!" not in wrong, "traceback", wrong)
        stream.close()
    with DecisionStore(run.folder / "decisions.db", {}) as store:
        found = {(answer.row, answer.label) for answer in store.answers()}
        rows = {position: store.item(position).row for position, _ in acknowledged}
        expect({(rows[position], label) for position, label in acknowledged} <= found, "lost")
        expect(store.progress()["answers"] == len(found), "damaged")
    check_integrity(run.folder / "decisions.db")
    make_session(run.folder).close()  # a review that was ended continues
    return "review server"


def answer_rows(address: str, acknowledged: list[tuple[int, int]]) -> None:
    """Answer all labels of one row after the other."""
    host, _, query = address.removeprefix("http://").partition("/")
    cookie = ask(host, "GET", f"/{query}")[1]["set-cookie"].partition(";")[0]
    for position in range(100):
        for label in range(3):
            status, _ = ask(host, "POST", f"/row/{position}/answer", f"label={label}&answer=yes", cookie)
            acknowledged += [(position, label)] if status == 303 else []
        ask(host, "POST", f"/row/{position}/next", "", cookie)


def ask(host: str, method: str, path: str, body: str | None = None, cookie: str = "") -> tuple[int, Any]:
    """Return status and headers of a request."""
    connection = http.client.HTTPConnection(host, timeout=30)
    headers = {"Cookie": cookie, "Origin": f"http://{host}"} if cookie else {}
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers


def _fit(folder: Path) -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    clf = CCMNClassifier(None, epochs=300, lr=0.05, batch_size=20, random_state=0)
    clf.fit(X, X[:, :2] > 0.3, checkpoint=folder / "state")
    clf.save(folder / "model.ccmn")
    return clf.decision_function(X)


@cache
def fitted() -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        return _fit(Path(folder))


def resume_fit(run: Run) -> str:
    """Kill a fit three times; an interrupt would keep the best weights so far."""
    run.sent, run.processes = signal.SIGKILL, 1
    for _ in range(3):
        run.end(lambda report: _fit(run.folder), 0.4)
    expect(np.array_equal(_fit(run.folder), fitted()), "damaged", "another model")
    check_left(run.folder, ["model.ccmn"])
    return "fit, three kills"


REPRODUCE = "reproduce table1 --small --methods unbiased-hamming-square --store results.db"


def _results(folder: Path) -> str:
    """Complete a store, and return its values."""
    expect(command(folder, REPRODUCE).code == 0, "failed", REPRODUCE)
    expect(command(folder, "report results.db --csv cells.csv --force").code == 0, "failed", "report")
    return (folder / "cells.csv").read_text()


@cache
def reproduced() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return sorted(_results(Path(folder)).splitlines())


def reproduce(run: Run) -> str:
    run.command(REPRODUCE, 2.0)
    found = sorted(_results(run.folder).splitlines())
    expect(found == reproduced(), "damaged", sorted(set(found) ^ set(reproduced())))
    check_integrity(run.folder / "results.db")
    return "reproduce"


COMMANDS = {
    "fit task.csv --labels -3 --noise none --out OUT --force": "out.ccmn",
    "fit task.csv --labels -3 --noise none --method ranking --epochs 50 --lr 0.05 --out OUT --force": "out.ccmn",
    "audit task.csv --labels -3 --out OUT --force": "out.csv",
    "noise estimate task.csv --labels -3 --out OUT --force": "out.json",
    "noise inject task.csv --labels -3 --rho-neg 0.1 --out OUT --force": "out.csv",
    "data convert task.csv --labels -3 --out OUT --force": "out.npz",
}


@cache
def task() -> bytes:
    X = np.random.default_rng(0).normal(size=(300, 4))
    rows = [",".join([*map("{:.4f}".format, x), *map(str, (x[:3] > 0.3).astype(int))]) for x in X]
    return "\n".join(["a,b,c,d,sea,sky,sun", *rows]).encode()


@cache
def complete(line: str) -> bytes:
    """Return the output of a command that is not ended."""
    with tempfile.TemporaryDirectory() as folder:
        return _complete(Path(folder), line)


def _complete(folder: Path, line: str) -> bytes:
    (folder / "task.csv").write_bytes(task())
    found = command(folder, line.replace("OUT", COMMANDS[line]))
    expect(found.code == 0, "failed", f"{line}: {found}")
    return (folder / COMMANDS[line]).read_bytes()


def run_command(run: Run) -> str:
    """End a command that writes a file: the file is the old or the new one, and the command can be repeated."""
    line = [*COMMANDS][run.rng.integers(len(COMMANDS))]
    out = run.folder / COMMANDS[line]
    (run.folder / "task.csv").write_bytes(task())
    old = b"old content" if run.rng.random() < 0.5 else None
    if old is not None:
        out.write_bytes(old)
    run.command(line.replace("OUT", out.name), 0.5)
    new = out.read_bytes() if out.exists() else None
    partly = run.sent == signal.SIGINT and "--method" in line  # the best model so far
    expect(partly or new in (old, complete(line)), "damaged", f"{line}: {(new or b'')[:200]!r}")
    expect(_complete(run.folder, line) == complete(line), "damaged", f"{line}: another result")
    left = [name for name in os.listdir(run.folder) if name.startswith(".")]
    expect(not left, "leftovers", left)
    return line.partition(" --")[0].rpartition(" task")[0]


ACTIVITIES: dict[Activity, float] = {
    save_model: 0.3,
    write_files: 0.15,
    append_results: 0.12,
    record_answers: 0.08,
    review: 0.08,
    resume_fit: 0.05,
    reproduce: 0.05,
    run_command: 0.17,
}
INTERRUPTS: dict[Activity, float] = {run_command: 0.5, review: 0.2, reproduce: 0.15, save_model: 0.15}


def check(rng: np.random.Generator, folder: Path, sent: int, activities: dict[Activity, float]) -> str:
    """Run one activity, chosen at random, in one process or two."""
    chosen = [*activities][rng.choice(len(activities), p=[*activities.values()])]
    run = Run(rng, folder, sent, int(rng.choice([1, 1, 2])))
    return f"{chosen(run)}{', two processes' if run.processes > 1 else ''}"


def kill(rng: np.random.Generator, folder: Path) -> str:
    return check(rng, folder, signal.SIGKILL, ACTIVITIES)


def interrupt(rng: np.random.Generator, folder: Path) -> str:
    return check(rng, folder, signal.SIGINT, INTERRUPTS)


# -- Workers

GRID = """
import numpy as np
from sklearn.model_selection import GridSearchCV
from ccmn import CCMNClassifier
X = np.random.default_rng(0).normal(size=(200, 4))
GridSearchCV(CCMNClassifier(None, epochs=30), {"lr": [.1, .05, .01, .005]}, n_jobs=2).fit(X, X[:, :2] > 0)
"""
TORCHRUN = "-m torch.distributed.run --standalone --local-addr 127.0.0.1 --nproc-per-node 2 -m ccmn"
FIT = "fit task.csv --labels -3 --noise none --method ranking --epochs 150 --lr 0.05 --checkpoint state --out out.ccmn"
WORKERS = {
    "joblib": (["-m", "ccmn", *f"{REPRODUCE} --jobs 2".split()], "LokyProcess"),
    "grid search": (["-c", GRID], "LokyProcess"),
    "torchrun": (f"{TORCHRUN} {FIT}".split(), "ccmn"),
}
"""Programs that start processes, and a word in the command line of these."""


def lose_worker(rng: np.random.Generator, folder: Path) -> str:
    """Kill one process of a program at a random time: it ends, and its repetition gives the result of a calm run."""
    name = [*WORKERS][rng.integers(len(WORKERS))]
    (folder / "task.csv").write_bytes(task())
    code, error = _run_workers(folder, *WORKERS[name], float(rng.exponential(2.0)))
    expect(name != "joblib" or code in (0, 1), "failed", error)
    expect(name != "joblib" or check_printed(code, "", error, name).code == code, "unclear", error)
    expect(name != "grid search" or code == 0 or "TerminatedWorkerError" in error, "unclear", error)
    if name == "joblib":
        expect(sorted(_results(folder).splitlines()) == reproduced(), "damaged", name)
    elif code:
        complete = (folder / "out.ccmn").exists()  # written before the loss: the repetition needs --force
        again, error = _run_workers(folder, WORKERS[name][0] + ["--force"] * complete, WORKERS[name][1])
        expect(again == 0, "not resumable", error)
    return f"{name}: {'ended by the loss' if code else 'complete'}"


def _run_workers(folder: Path, arguments: list[str], worker: str, wait: float | None = None) -> tuple[int, str]:
    """Run a program and kill one of its workers after some seconds; return its exit code and errors."""
    started = subprocess.Popen([sys.executable, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True)
    while wait is not None and started.poll() is None:
        tasks = Path(f"/proc/{started.pid}/task").glob("*/children")
        with suppress(OSError):
            children = [int(child) for file in tasks for child in file.read_text().split()]
            found = [pid for pid in children if worker in Path(f"/proc/{pid}/cmdline").read_text()]
            if len(found) > 1:
                time.sleep(wait)
                send(found[-1], signal.SIGKILL)
                break
        time.sleep(0.05)
    error = started.communicate()[1]
    return started.returncode, error


def prepare() -> None:
    """Compute what uninterrupted activities give."""
    torch.set_num_threads(1)
    models(), fitted(), reproduced()
    [complete(line) for line in COMMANDS]
    with tempfile.TemporaryDirectory() as folder:
        make_session(Path(folder) / "review").close()


CAMPAIGNS = (
    Campaign("kills", kill, 400, seconds=120, batch=20, prepare=prepare),
    Campaign("interrupts", interrupt, 200, seconds=120, batch=20, prepare=prepare),
    Campaign("workers", lose_worker, 30, seconds=300, min_minutes=10, prepare=prepare),
)
