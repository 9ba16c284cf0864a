"""The review page with 100,000 rows: time to load it, and time of every button, over HTTP on this machine.

    python benchmarks/review.py            100,000 rows, 50 labels; 2,000 rows drawn by lot were answered before
    python benchmarks/review.py --quick    100,000 rows, 20 labels; 200 rows

What stands as the rival is the most that each may take: 200 ms for a page with everything it loads, 50 ms for an action
with the page that it leads to. Medians; the slowest of each is in the notes.
"""

from __future__ import annotations

import http.client
import re
import tempfile
import threading
import time
from collections.abc import Callable
from queue import Queue
from urllib.parse import urlencode, urlsplit

import numpy as np
import torch
from harness import Result, parser, report

from ccmn.data import MultiLabelData
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise
from ccmn.review import Retraining, ReviewDataset, ReviewSession, serve
from ccmn.review.review_data import FeaturePictures

PAGE, ACTION = 0.2, 0.05
"""Seconds that a page and an action may take."""


def make_session(n: int, q: int, answered: int, folder: str) -> ReviewSession:
    """Pictures of 16 x 16 with labels of which nothing can be learnt: what is timed does not depend on it."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 256), dtype=np.float32)
    noise = ClassConditionalNoise(np.full(q, 0.2), np.full(q, 0.1))
    Y = (rng.random((n, q)) < 0.3).astype(np.uint8)
    data = MultiLabelData(X, Y, label_names=[f"label number {j}" for j in range(q)], name="benchmark")
    dataset = ReviewDataset(data, picture=FeaturePictures(X, (16, 16)))
    session = ReviewSession(dataset, rng.random((n, q)), NoiseRates.known(noise, Y), folder)
    item = session.latest()
    while item is not None and session.store.progress()["counted"] < answered:
        session.store.record(item, {j: ("yes", "no", "unsure")[(item.row + j) % 3] for j in item.asked})
        item = session.queue.after(item.position)
    return session


class Visitor:
    """The browser's side: one connection that stays open, a cookie, redirects followed."""

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        self._connection = http.client.HTTPConnection(found.netloc)
        self._headers = {"Origin": f"http://{found.netloc}"}
        cookie = self._ask("GET", f"/?{found.query}")[0].headers["set-cookie"]
        self._headers["Cookie"] = cookie.partition(";")[0]

    def _ask(self, method: str, address: str, body: str | None = None) -> tuple[http.client.HTTPResponse, str]:
        self._connection.request(method, address, body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read().decode("latin-1")
        assert answer.status in (200, 303), f"{method} {address}: {answer.status} {text}"
        return answer, text

    def get(self, address: str) -> str:
        answer, text = self._ask("GET", address)
        return text if answer.status == 200 else self.get(answer.headers["location"])

    def post(self, address: str, **fields: object) -> str:
        answer, text = self._ask("POST", address, urlencode(fields))
        return text if answer.status == 200 else self.get(answer.headers["location"])

    def page(self) -> None:
        """A page and everything it loads."""
        text = self.get("/")
        for address in re.findall(r'(?:src|href)="(/static/[^"]+|/picture/[^"]+)"', text):
            self.get(address)


def started(session: ReviewSession) -> Visitor:
    """A server in a thread of its own, and a visitor to it."""
    told: Queue[str] = Queue()
    threading.Thread(target=serve, args=(session, Retraining(session), told.put), daemon=True).start()
    return Visitor(told.get())


def timed(name: str, call: Callable[[int], object], limit: float, repeats: int, notes: dict[str, object]) -> Result:
    call(0)
    times = []
    for i in range(1, repeats + 1):
        start = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - start)
    notes[f"slowest, {name} (ms)"] = round(1e3 * max(times), 1)
    middle = float(np.median(times))
    return Result(name, middle, f"at most {1e3 * limit:.0f} ms", limit, limit / middle)


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    n, q, answered, repeats = (100_000, 20, 200, 30) if options.quick else (100_000, 50, 2000, 100)
    notes: dict[str, object] = {"rows": n, "labels": q}
    with tempfile.TemporaryDirectory() as folder:
        session = make_session(n, q, answered, folder)
        notes |= {f"{key} before": value for key, value in session.store.progress().items()}
        visitor, item = started(session), session.latest()
        place, words = f"/row/{item.position}", ("yes", "no")
        results = [timed("page with style, script and picture", lambda _: visitor.page(), PAGE, repeats, notes)]
        actions: dict[str, Callable[[int], object]] = {
            "answer": lambda i: visitor.post(f"{place}/answer", label=item.asked[0], answer=words[i % 2]),
            "the rest is right as given": lambda i: visitor.post(f"/row/{item.position + i}/accept"),
            "undo": lambda _: visitor.post("/undo"),
            "next row": lambda i: visitor.post(f"/row/{item.position + i}/next"),
        }
        visitor.post(f"{place}/next")
        for i in range(1, repeats + 1):
            visitor.post(f"/row/{item.position + i}/next")
        results += [timed(name, call, ACTION, repeats, notes) for name, call in actions.items()]
        session.close()
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
