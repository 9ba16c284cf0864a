"""HTTP client that behaves like a browser: Host and Origin headers, a cookie, forms and redirects."""

import asyncio
import html
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlencode, urlsplit

from ccmn.app import review

HOST = "127.0.0.1:8000"
TOKEN = "secret-token"


@dataclass(frozen=True)
class Response:
    """Response of the web app."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def notice(self) -> str:
        """Message at the top of the page."""
        return re.search(r'<p id="notice" role="status">(.*?)</p>', self.text).group(1)

    def element(self, name: str) -> str:
        """Return the text of the element with this id."""
        return html.unescape(re.search(rf'id="{name}"[^>]*>(.*?)<', self.text, re.DOTALL).group(1))


class HTTPClient:
    """Client that calls an ASGI application as a browser would call a server at ``HOST``."""

    def __init__(self, app):
        self.app = app
        self.cookies: dict[str, str] = {}

    def get(self, url, **headers):
        return self.request("GET", url, b"", headers)

    def post(self, url, fields=(), **headers):
        form = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{HOST}"}
        return self.request("POST", url, urlencode(fields).encode(), {**form, **headers})

    def request(self, method, url, body, headers):
        """Send a request and follow redirects; a header that is None is omitted."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        own = {"host": HOST, "cookie": cookie or None, "content-length": str(len(body)) if body else None}
        headers = {name.replace("_", "-"): value for name, value in {**own, **headers}.items()}
        response = self.send(method, url, [body], headers)
        if "set-cookie" in response.headers:
            name, _, value = response.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        if response.status == 303:
            return self.get(response.headers["location"])
        return response

    def send(self, method, url, chunks, headers):
        """Send one request with a body in chunks; ``n_chunks_read`` counts the chunks that the app has read."""
        parts = urlsplit(url)
        scope = {
            "type": "http",
            "method": method,
            "path": unquote_to_bytes(parts.path).decode("utf-8", "replace"),
            "query_string": parts.query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items() if v is not None],
        }
        self.n_chunks_read, sent = 0, []

        async def receive():
            if self.n_chunks_read == len(chunks):
                await asyncio.Event().wait()  # the client waits for the response
            self.n_chunks_read += 1
            more = self.n_chunks_read < len(chunks)
            return {"type": "http.request", "body": chunks[self.n_chunks_read - 1], "more_body": more}

        async def send(message):
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        received = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Response(sent[0]["status"], received, b"".join(message.get("body", b"") for message in sent[1:]))


def make_client(session) -> HTTPClient:
    """Return a client that has not signed in."""
    from ccmn.app.review.security import AccessControl
    from ccmn.app.review.web_app import make_app

    app = make_app(session, review.Retraining(session), "ccmn fit")
    return HTTPClient(AccessControl(app, {HOST, "localhost:8000"}, TOKEN))


def sign_in(client: HTTPClient) -> HTTPClient:
    """Open the one-time URL and the page that it leads to."""
    assert client.get(f"/?token={TOKEN}").status == 200
    assert client.get("/").status == 200
    return client
