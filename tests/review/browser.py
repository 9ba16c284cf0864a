"""What a browser does, without one: headers, a cookie, forms, and redirects that are followed."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlencode, urlsplit

HOST = "127.0.0.1:8000"
TOKEN = "secret-token"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def said(self) -> str:
        """The note at the top of a page."""
        return re.search(r'<p id="said" role="status">(.*?)</p>', self.text).group(1)

    def figure(self, name: str) -> str:
        """The text of an element of the page."""
        return re.search(rf'id="{name}"[^>]*>(.*?)<', self.text).group(1)


class Browser:
    """Talks to an ASGI application as a browser would to a server at ``HOST``."""

    def __init__(self, app):
        self.app = app
        self.cookies: dict[str, str] = {}

    def get(self, address, **headers):
        return self.ask("GET", address, b"", headers)

    def post(self, address, fields=(), **headers):
        form = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{HOST}"}
        return self.ask("POST", address, urlencode(fields).encode(), {**form, **headers})

    def ask(self, method, address, body, headers):
        """One request and what it leads to; a header that is None is left out."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        own = {"host": HOST, "cookie": cookie or None, "content-length": str(len(body)) if body else None}
        headers = {name.replace("_", "-"): value for name, value in {**own, **headers}.items()}
        answer = self.raw(method, address, [body], headers)
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        if answer.status == 303:
            return self.get(answer.headers["location"])
        return answer

    def raw(self, method, address, parts, headers):
        """One request, its body in parts; the parts that were read are kept in ``read``."""
        found = urlsplit(address)
        scope = {
            "type": "http",
            "method": method,
            "path": unquote_to_bytes(found.path).decode("utf-8", "replace"),
            "query_string": found.query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items() if v is not None],
        }
        self.read, sent = 0, []

        async def receive():
            self.read += 1
            return {"type": "http.request", "body": parts[self.read - 1], "more_body": self.read < len(parts)}

        async def send(message):
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        got = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], got, b"".join(message.get("body", b"") for message in sent[1:]))


def make_browser(session, **settings) -> Browser:
    """A browser that has not been let in yet."""
    from ccmn.review.app import make_app
    from ccmn.review.guard import Guard
    from ccmn.review.retrain import Retraining

    app = make_app(session, Retraining(session, settings=settings))
    return Browser(Guard(app, {HOST, "localhost:8000"}, TOKEN))


def enter(browser: Browser) -> Browser:
    """Open the one-time address, and the page behind it."""
    assert browser.get(f"/?token={TOKEN}").status == 200
    assert browser.get("/").status == 200
    return browser
