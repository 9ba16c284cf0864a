"""Many clients of one review server, and readers and writers that share files."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

from robustness.campaign import Campaign, Failure
from robustness.kills import killed, models
from robustness.kills import prepare as prepare_kills

N_CLIENTS = 50
MAX_SECONDS_P99 = 0.2
"""Largest 99th percentile of the time of a response on an idle machine; a busy one is not a failure."""


class Client(threading.Thread):
    """Browser that shows rows and answers labels until the time is over."""

    def __init__(self, host: str, cookie: str, until: float, number: int) -> None:
        super().__init__(daemon=True)
        self.host, self.cookie, self.until, self.number = host, cookie, until, number
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self.acknowledged: set[tuple[int, int]] = set()

    def run(self) -> None:
        """Send requests over one connection."""
        rng = np.random.default_rng(self.number)
        connection = http.client.HTTPConnection(self.host, timeout=30)
        headers = {"Cookie": self.cookie, "Origin": f"http://{self.host}"}
        while time.monotonic() < self.until:
            position, label = int(rng.integers(20)), int(rng.integers(3))
            answers = rng.random() < 0.2
            start = time.monotonic()
            try:
                if answers:
                    connection.request("POST", f"/row/{position}/answer", f"label={label}&answer=yes", headers)
                else:
                    connection.request("GET", f"/row/{position}", headers=headers)
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(repr(error))
                connection.close()
                continue
            self.seconds.append(time.monotonic() - start)
            if response.status != (303 if answers else 200):
                self.errors.append(f"status {response.status}")
            elif answers:
                self.acknowledged.add((position, label))
            time.sleep(float(rng.exponential(0.2)))  # a person who reads


def load(rng: np.random.Generator, folder: Path, seconds: float = 30.0) -> str:
    """Serve 50 clients for 30 seconds: no error, every acknowledged answer is stored."""
    from app.review.example import make_session
    from ccmn.app.review import Retraining
    from ccmn.app.review.decisions import DecisionStore
    from ccmn.app.review.server import serve

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        session = make_session(folder / "review")
        item = session.start()
        for _ in range(20):
            item = session.queue.after(item.position, item.stream)
        try:
            serve(session, Retraining(session), lambda url: bool(os.write(write, f"{url}\n".encode())))
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as stream:
        host, _, query = stream.readline().strip().removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", f"/{query}")
        cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
        clients = [Client(host, cookie, time.monotonic() + seconds, number) for number in range(N_CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    errors = [error for client in clients for error in client.errors]
    if errors:
        raise Failure("errors", f"{len(errors)}: {errors[:3]}")
    with DecisionStore(folder / "review" / "decisions.db", {}) as store:
        found = {(store.item(p).row, label) for client in clients for p, label in client.acknowledged}
        if not found <= {(answer.row, answer.label) for answer in store.answers()}:
            raise Failure("lost", "an acknowledged answer")
    times = np.concatenate([client.seconds for client in clients])
    p99 = float(np.quantile(times, 0.99))
    busy = "" if p99 < MAX_SECONDS_P99 else ", above 200 ms"
    return f"{len(times)} requests, median {1000 * np.median(times):.0f} ms, p99 {1000 * p99:.0f} ms{busy}"


def share(rng: np.random.Generator, folder: Path) -> str:
    """Read a model while three processes overwrite it."""
    from ccmn import load_model

    first, second, X, scores = models()
    path = folder / rng.choice(["model.ccmn", "model"])
    first.save(path)
    seconds = 0.5

    def write(report) -> None:
        while True:
            second.save(path)
            first.save(path)

    writers = [threading.Thread(target=killed, args=(write, seconds)) for _ in range(3)]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        found = load_model(path).decision_function(X)
        if not any(np.array_equal(found, each) for each in scores):
            raise Failure("damaged", "a model that nobody wrote")
        reads += 1
    first.save(path)
    if os.listdir(folder) != [path.name]:
        raise Failure("leftovers", os.listdir(folder))
    return f"{path.name}: shared" if reads else "no reads"


CAMPAIGNS = (
    Campaign("sharing", share, 50, seconds=60, prepare=prepare_kills),
    Campaign("clients", load, 1, seconds=120, min_minutes=2, prepare=prepare_kills),
)
