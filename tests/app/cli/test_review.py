"""``ccmn review``: errors, and a server that is killed and restarted."""

import http.client
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import ccmn
from ccmn.data import read_file, write_file

needs_server = pytest.mark.skipif(
    not all(__import__("importlib.util").util.find_spec(name) for name in ("starlette", "uvicorn")),
    reason="the review page needs starlette and uvicorn: pip install 'ccmn[app]'",
)


class Server:
    """Server in a subprocess, and an HTTP client for it."""

    def __init__(self, folder, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(Path(ccmn.__file__).parents[1])}
        command = [sys.executable, "-m", "ccmn", "review", *arguments, "--json"]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        url = urlsplit(json.loads(self.process.stdout.readline())["url"])
        self.host, self.headers = url.netloc, {}
        answer = self.ask("GET", f"/?{url.query}")
        self.headers = {"Cookie": answer.headers["set-cookie"].partition(";")[0], "Origin": f"http://{self.host}"}

    def ask(self, method, address, body=None):
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request(method, address, body, self.headers)
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        connection.close()
        return answer

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.slow
@needs_server
def test_resume_after_kill(files):
    arguments = ("task.npz", "--noise", "partial")
    server = Server(files, *arguments)
    assert server.ask("GET", "/").headers["location"] == "/row/0"
    for label, answer in ((0, "yes"), (2, "no")):
        assert server.ask("POST", "/row/0/answer", f"label={label}&answer={answer}").status == 303
    shown = server.ask("GET", "/row/0").text
    acknowledged = killed_while_answering(server, from_position=0)
    server = Server(files, *arguments)
    with sqlite3.connect(files / "task-review" / "decisions.db") as store:
        held = set(store.execute("SELECT position, label FROM decisions WHERE NOT undone"))
        (last,) = store.execute("SELECT MAX(position) FROM items").fetchone()
    assert set(acknowledged) <= held
    assert server.ask("GET", "/").headers["location"] == f"/row/{last}"  # the last row
    assert subject_of(server.ask("GET", "/row/0").text) == subject_of(shown)
    assert server.ask("POST", "/export").status == 303
    folder = files / "task-review"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    while not server.ask("POST", "/undo").headers["location"].startswith("/row/0?"):
        pass
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(timeout=30) == 0  # Ctrl-C is the regular way to stop the server
    server.process.stdout.close()


def killed_while_answering(server, from_position):
    """Answer until the server is killed with SIGKILL, and return the acknowledged answers."""
    acknowledged = []

    def answer_until_killed():
        with suppress(OSError, http.client.HTTPException):  # the kill
            for position in itertools.count(from_position):
                server.ask("POST", f"/row/{position}/next")
                answered = server.ask("POST", f"/row/{position + 1}/answer", "label=1&answer=no")
                acknowledged.extend([(position + 1, 1)] if answered.status == 303 else [])

    worker = threading.Thread(target=answer_until_killed)
    worker.start()
    while len(acknowledged) < 40:
        time.sleep(0.01)
    server.kill()
    worker.join()
    return acknowledged


def subject_of(page):
    return page.partition('<section class="row"')[2].partition("</section>")[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "either DATA or --demo"),
        (["task.npz", "--demo"], 2, "either DATA or --demo"),
        (["--demo", "--picture", "16x24"], 2, "--demo cannot be combined"),
        (["--demo", "--noise", "partial"], 2, "--demo cannot be combined"),
        (["task.npz", "--image-dir", "."], 2, "--image-dir requires --image"),
        (["none.npz"], 1, "there is no file none.npz"),
        (["task.npz", "--picture", "2x3"], 1, "Expected 6 features for pictures of 2x3 pixels; got 4 features"),
        (["task.npz", "--picture", "wide"], 2, "HEIGHTxWIDTH"),
        (["task.npz", "--noise", "none"], 2, "--noise must be both, partial, missing or a JSON file"),
        (["task.npz", "--out", "nowhere/review"], 1, "folder nowhere does not exist"),
        (["task.npz", "--out", "task.csv"], 1, "task.csv is a file; --out expects a folder"),
        (["task.npz", "--host", "0.0.0.0"], 2, "--host does not exist: the server listens on 127.0.0.1"),
        (["task.npz", "--port", 99999], 2, "--port"),
    ],
)
@needs_server
def test_errors(rejected, files, arguments, code, message):
    assert message in rejected("review", *arguments, code=code)


@needs_server
def test_decisions_of_other_data(reviewing, rejected, files):
    reviewing(lambda *_: None, "task.npz", "--out", "task-review")
    write_file(read_file("task.npz").take(np.arange(7)), "seven.npz")
    line = rejected("review", "seven.npz", "--out", "task-review")
    assert "decisions about other data: rows is 300 in the file and 7 in the data" in line
