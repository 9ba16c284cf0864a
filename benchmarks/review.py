"""Web app for label review with 100,000 rows: response times of pages and actions over HTTP on this machine.

    python benchmarks/review.py            100,000 rows, 50 labels; 2,000 complete random rows
    python benchmarks/review.py --quick    100,000 rows, 20 labels; 200 complete random rows

The baseline is the time limit: 200 ms for a page with everything it loads, 50 ms for an action with the page that it
leads to. The times are medians; the notes contain the maximum of each.
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

from ccmn.app.review import Retraining, ReviewDataset, ReviewSession, serve
from ccmn.app.review.review_data import FeaturePictures
from ccmn.data import MultiLabelData
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise

MAX_PAGE_SECONDS, MAX_ACTION_SECONDS = 0.2, 0.05
"""Time limits of a page and of an action."""


def make_session(n: int, q: int, answered: int, folder: str) -> ReviewSession:
    """Return a review of random 16 x 16 pictures with random labels, which has the answers of some rows."""
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


class Client:
    """HTTP client with one persistent connection and a cookie that follows redirects."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.netloc)
        self._headers = {"Origin": f"http://{parts.netloc}"}
        cookie = self._request("GET", f"/?{parts.query}")[0].headers["set-cookie"]
        self._headers["Cookie"] = cookie.partition(";")[0]

    def _request(self, method: str, url: str, body: str | None = None) -> tuple[http.client.HTTPResponse, str]:
        self._connection.request(method, url, body, self._headers)
        response = self._connection.getresponse()
        text = response.read().decode("latin-1")
        assert response.status in (200, 303), f"{method} {url}: {response.status} {text}"
        return response, text

    def get(self, url: str) -> str:
        response, text = self._request("GET", url)
        return text if response.status == 200 else self.get(response.headers["location"])

    def post(self, url: str, **fields: object) -> str:
        response, text = self._request("POST", url, urlencode(fields))
        return text if response.status == 200 else self.get(response.headers["location"])

    def page(self) -> None:
        """Load a page with its style sheet, script and picture."""
        text = self.get("/")
        for url in re.findall(r'(?:src|href)="(/static/[^"]+|/picture/[^"]+)"', text):
            self.get(url)


def start_server(session: ReviewSession) -> Client:
    """Start a server in a thread and return a client that has signed in."""
    urls: Queue[str] = Queue()
    threading.Thread(target=serve, args=(session, Retraining(session), urls.put), daemon=True).start()
    return Client(urls.get())


def measure(name: str, call: Callable[[int], object], limit: float, repeats: int, notes: dict[str, object]) -> Result:
    call(0)
    times = []
    for i in range(1, repeats + 1):
        start = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - start)
    notes[f"maximum, {name} (ms)"] = round(1e3 * max(times), 1)
    median = float(np.median(times))
    return Result(name, median, f"at most {1e3 * limit:.0f} ms", limit, limit / median)


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    n, q, answered, repeats = (100_000, 20, 200, 30) if options.quick else (100_000, 50, 2000, 100)
    notes: dict[str, object] = {"rows": n, "labels": q}
    with tempfile.TemporaryDirectory() as folder:
        session = make_session(n, q, answered, folder)
        notes |= {f"{key} before": value for key, value in session.store.progress().items()}
        client, item = start_server(session), session.latest()
        row, answers = f"/row/{item.position}", ("yes", "no")
        results = [measure("page with its files", lambda _: client.page(), MAX_PAGE_SECONDS, repeats, notes)]
        actions: dict[str, Callable[[int], object]] = {
            "answer": lambda i: client.post(f"{row}/answer", label=item.asked[0], answer=answers[i % 2]),
            "accept remaining labels": lambda i: client.post(f"/row/{item.position + i}/accept"),
            "undo": lambda _: client.post("/undo"),
            "next row": lambda i: client.post(f"/row/{item.position + i}/next"),
        }
        client.post(f"{row}/next")
        for i in range(1, repeats + 1):
            client.post(f"/row/{item.position + i}/next")
        results += [measure(name, call, MAX_ACTION_SECONDS, repeats, notes) for name, call in actions.items()]
        session.close()
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
