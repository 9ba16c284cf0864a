"""``ccmn review``: errors, and a server that is killed and restarted."""

import http.client
import signal
from urllib.parse import urlsplit

import pytest

from helpers import ReviewProcess

needs_server = pytest.mark.skipif(
    not all(__import__("importlib.util").util.find_spec(name) for name in ("starlette", "uvicorn")),
    reason="the review page needs starlette and uvicorn: pip install 'ccmn[app]'",
)


class Server(ReviewProcess):
    """Server in a subprocess, and an HTTP client for it."""

    def __init__(self, folder, *arguments):
        super().__init__(folder, *arguments)
        url = urlsplit(self.url)
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


@pytest.mark.slow
@needs_server
def test_resume_after_kill(files):
    arguments = ("task.npz", "--noise", "partial")
    server = Server(files, *arguments)
    assert server.ask("GET", "/").headers["location"] == "/row/0"
    for label, answer in ((0, "yes"), (2, "no")):
        assert server.ask("POST", "/row/0/answer", f"label={label}&answer={answer}").status == 303
    shown = server.ask("GET", "/row/0").text
    for position in range(3):
        server.ask("POST", f"/row/{position}/next")
        assert server.ask("POST", f"/row/{position + 1}/answer", "label=1&answer=no").status == 303
    server.kill()
    server = Server(files, *arguments)
    assert server.ask("GET", "/").headers["location"] == "/row/3"  # the last row
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


def subject_of(page):
    return page.partition('<section class="row"')[2].partition("</section>")[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "either DATA or --demo"),
        (["--demo", "--picture", "16x24"], 2, "--demo cannot be combined"),
        (["task.npz", "--image-dir", "."], 2, "--image-dir requires --image"),
        (["task.npz", "--picture", "2x3"], 1, "Expected 6 features for pictures of 2x3 pixels; got 4 features"),
        (["task.npz", "--picture", "wide"], 2, "HEIGHTxWIDTH"),
        (["task.npz", "--noise", "none"], 2, "--noise must be both, partial, missing or a JSON file"),
        (["task.npz", "--out", "task.csv"], 1, "task.csv is a file; --out expects a folder"),
        (["task.npz", "--host", "0.0.0.0"], 2, "--host does not exist: the server listens on 127.0.0.1"),
        (["task.npz", "--port", 99999], 2, "--port"),
    ],
)
@needs_server
def test_errors(rejected, files, arguments, code, message):
    assert message in rejected("review", *arguments, code=code)
