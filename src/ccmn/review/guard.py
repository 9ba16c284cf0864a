"""Who may talk to the page: one browser, at the right address, with short messages.

A page on this machine can be asked by any other page that the browser shows. So a request must name the address that
the server was started for (else a foreign name that resolves to this machine would do), come from the page itself where
it changes something, and carry a cookie that only the holder of the one-time address can have got.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 4096
"""The longest body of a request; the longest that the page sends is a few dozen."""

POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Not "no-referrer": a form would then be sent with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer: nothing is loaded from elsewhere, run from within a page, framed or kept."""

_WELCOME = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>ccmn review</title>'
    '<link rel="icon" href="data:,"><meta http-equiv="refresh" content="0; url=/">'
    '<p><a href="/">To the review</a></p></html>'
)


class RefusedError(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Guard:
    """The door of an ASGI application.

    Parameters
    ----------
    app : ASGI application
    hosts : iterable of str
        What the header Host may say, such as ``127.0.0.1:8000``.
    token : str
        What the address must hold at the first visit. It is good for one visit: after that the cookie counts.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._token: str | None = token
        self._secret = secrets.token_urlsafe(32)
        # Cookies know no ports: two reviews on one machine must not take each other's.
        self.cookie = f"ccmn_review_{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            self._check_origin(scope["method"], headers)
            welcome = self._welcome(scope)
            if welcome is not None:
                await welcome(scope, receive, _with_policy(send))
                return
            self._check_cookie(headers)
            body = await _short_body(headers, receive)
        except RefusedError as refused:
            answer = PlainTextResponse(f"{refused.reason}\n", refused.status)
            await answer(scope, receive, _with_policy(send))
            return
        await self._app(scope, _replay(body), _with_policy(send))

    def _check_host(self, headers: Headers) -> None:
        if headers.getlist("host") != [headers.get("host")] or headers.get("host") not in self._hosts:
            raise RefusedError(421, "this page is to be had at the address that ccmn review printed, and at no other")

    def _check_origin(self, method: str, headers: Headers) -> None:
        origin = headers.get("origin")
        changes = method not in ("GET", "HEAD")
        own = origin is not None and origin.removeprefix("http://") in self._hosts and origin.startswith("http://")
        if (origin is not None and not own) or (changes and not own):
            raise RefusedError(403, "refused: this was asked for by another page")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RefusedError(403, "refused: this was asked for by another page; type the address instead")

    def _welcome(self, scope: Scope) -> Response | None:
        """The first visit, with the token in the address: the cookie in exchange, and on to a clean address."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if scope["path"] != "/" or scope["method"] != "GET" or given is None:
            return None
        if self._has_cookie(Headers(scope=scope)):
            return HTMLResponse(_WELCOME)
        if self._token is None or not secrets.compare_digest(given[0].encode(), self._token.encode()):
            raise RefusedError(403, "this address is good for one visit, which is over; start ccmn review again")
        self._token = None
        answer = HTMLResponse(_WELCOME)
        answer.set_cookie(self.cookie, self._secret, httponly=True, samesite="strict", path="/")
        return answer

    def _check_cookie(self, headers: Headers) -> None:
        if not self._has_cookie(headers):
            raise RefusedError(403, "open the address that ccmn review printed last, token included")

    def _has_cookie(self, headers: Headers) -> bool:
        crumbs = (crumb.strip().partition("=") for crumb in headers.get("cookie", "").split(";"))
        given = next((value for name, _, value in crumbs if name == self.cookie), "")
        return secrets.compare_digest(given.encode(), self._secret.encode())


async def _short_body(headers: Headers, receive: Receive) -> bytes:
    """The whole body, given up on as soon as it is too long."""
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > MOST_BYTES:
        raise RefusedError(413, f"too long: at most {MOST_BYTES} bytes are read")
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body", False))
        if len(body) > MOST_BYTES:
            raise RefusedError(413, f"too long: at most {MOST_BYTES} bytes are read")
    return body


def _replay(body: bytes) -> Receive:
    """The body that was read, for the application."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _with_policy(send: Send) -> Send:
    """Put the headers of the policy on every answer."""
    extra = [(name.lower().encode(), value.encode()) for name, value in POLICY.items()]

    async def send_with_policy(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *extra]}
        await send(message)

    return send_with_policy
