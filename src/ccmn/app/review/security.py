"""Access control of the web app: one browser, the printed URL, and short requests.

Any web page in the browser can send requests to a server on this machine. A request is therefore answered only if its
Host header names the address of the server (protection against DNS rebinding), if it comes from the web app itself
(protection against cross-site requests), and if it carries a cookie that is issued once, in exchange for the token in
the printed URL.

Starlette's ``TrustedHostMiddleware`` is not used because it ignores the port and answers with status 400 instead of
421, and because Starlette has no middleware for the other checks.

Requests whose body arrives too slowly are answered with status 408. uvicorn limits the number of connections, the time
between two requests and the length of a head.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from html import escape
from http import HTTPStatus
from importlib import resources
from string import Template
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 4096
"""Maximum length of a request body. The app itself sends a few dozen bytes."""

MAX_PATH_LENGTH = 200
"""Maximum length of the path of a URL. Longer numbers than Python converts would be an error of the server."""

MAX_SECONDS = 10.0
"""Maximum time for the body of a request, and between two requests of a connection."""

ERROR_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --rule: #d5d9df; --soft: #f3f5f8; --accent: #0b57b0; --on-accent: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14171b; --rule: #3a414b; --soft: #1d2228; --accent: #7ab4ff; --on-accent: #10151b; } }
body { font: 16px/1.6 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0; }
header { font-weight: 700; padding: .6rem 1rem; border-bottom: 1px solid var(--rule); font-size: 15px; }
main { max-width: 38rem; margin: 12vh auto; padding: 1.2rem 1.6rem; border: 1px solid var(--rule); border-radius: 8px; }
h1 { font-size: 1.35rem; margin: 0 0 .6rem; } code { background: var(--soft); padding: .1em .35em; border-radius: 4px; }
a { display: inline-block; background: var(--accent); color: var(--on-accent); font-weight: 600; text-decoration: none; padding: .4rem 1.1rem; border-radius: 4px; }
a:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
@media (max-width: 42rem) { main { margin: 6vh 1rem; } }
"""  # noqa: E501
"""Style sheet of error pages. It is part of the page, because a browser without cookie gets no other file."""

_ERROR_STYLE_HASH = base64.b64encode(hashlib.sha256(ERROR_STYLE.encode()).digest()).decode()

ERROR_TITLES = {
    400: "This request cannot be answered",
    403: "This page is not open",
    404: "This page does not exist",
    405: "This page does not exist",
    500: "A file could not be read or written",
}
"""Titles of error pages by status code."""

CONTINUE = 'Your answers are saved.</p><p><a href="/">Continue the review</a>'
SIGN_IN = "Your answers are saved. If the server has stopped, run the same <code>ccmn review</code> command again."
"""Advice on error pages, for browsers that are signed in and for other browsers."""

SECURITY_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{_ERROR_STYLE_HASH}'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # With "no-referrer", browsers would submit forms with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response: no external resources, no inline scripts, no frames, no caching."""


class RejectedRequestError(Exception):
    """Request that is rejected, with status code and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class AccessControl:
    """ASGI middleware that checks each request and adds the security headers to each response.

    Parameters
    ----------
    app : ASGI application
        Application to protect.
    hosts : iterable of str
        Permitted Host headers, such as ``127.0.0.1:8000``.
    token : str
        Token of the printed URL. It is valid once; the browser that used it is then recognized by its cookie.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._token: str | None = token
        self._secret = secrets.token_urlsafe(32)
        # Browsers share cookies between ports: two reviews on one machine need cookies with different names.
        self.cookie = f"ccmn_review_{secrets.token_hex(4)}"
        self._login_page = _read_template("login.html")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it to the application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        send = _with_security_headers(send)
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            if len(scope["path"]) > MAX_PATH_LENGTH:
                raise RejectedRequestError(414, f"URL too long: at most {MAX_PATH_LENGTH} characters are accepted.")
            link = _followed_link(scope)
            if link is not None:
                await link(scope, receive, send)
                return
            self._check_origin(scope["method"], headers)
            login = self._login(scope, headers)
            if login is not None:
                await login(scope, receive, send)
                return
            if not self._has_cookie(headers):
                raise RejectedRequestError(403, "Not signed in: open the URL that `ccmn review` printed last.")
            body = await asyncio.wait_for(_read_body(headers, receive), MAX_SECONDS)
        except RejectedRequestError as rejected:
            response = error_response(Headers(scope=scope), rejected.status, rejected.reason)
            await response(scope, receive, send)
            return
        except asyncio.TimeoutError:
            late = PlainTextResponse("The request took too long.\n", 408, {"Connection": "close"})
            await late(scope, receive, send)
            return

        async def replay() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    def _check_host(self, headers: Headers) -> None:
        if headers.getlist("host") != [headers.get("host")] or headers.get("host") not in self._hosts:
            raise RejectedRequestError(421, "Invalid Host header: open the URL printed by `ccmn review`.")

    def _check_origin(self, method: str, headers: Headers) -> None:
        origin = headers.get("origin")
        own = origin is not None and origin.startswith("http://") and origin.removeprefix("http://") in self._hosts
        modifies = method not in ("GET", "HEAD")
        if (origin is not None and not own) or (modifies and not own):
            raise RejectedRequestError(403, "Invalid Origin header: the request comes from another web page.")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RejectedRequestError(
                403, "Cross-site request rejected: enter the URL printed by `ccmn review` in the address bar."
            )

    def _login(self, scope: Scope, headers: Headers) -> Response | None:
        """Exchange the token in the URL for the cookie and redirect to a URL without token; None without token."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if scope["path"] != "/" or scope["method"] != "GET" or given is None:
            return None
        response = HTMLResponse(self._login_page)
        if self._has_cookie(headers):
            return response
        if self._token is None:
            raise RejectedRequestError(
                403, "This one-time link has already been used. Run `ccmn review` again for a new one."
            )
        if not secrets.compare_digest(given[0].encode(), self._token.encode()):
            raise RejectedRequestError(403, "Invalid token: open the URL that `ccmn review` printed last.")
        self._token = None
        response.set_cookie(self.cookie, self._secret, httponly=True, samesite="strict", path="/")
        return response

    def _has_cookie(self, headers: Headers) -> bool:
        cookies = (cookie.strip().partition("=") for cookie in headers.get("cookie", "").split(";"))
        given = next((value for name, _, value in cookies if name == self.cookie), "")
        return secrets.compare_digest(given.encode(), self._secret.encode())


def _followed_link(scope: Scope) -> Response | None:
    """Return a page that leads from a link in a report to a row; None for other requests.

    Reports are files, therefore a browser treats their links as cross-site requests and sends no cookie. The page
    contains nothing but the row number of the URL, and requests the row as the web app itself.
    """
    found = re.fullmatch(r"/go/([0-9]{1,9})", scope["path"])
    if found is None or scope["method"] != "GET":
        return None
    return HTMLResponse(_read_template("login.html").replace("url=/", f"url=/rows?row={found[1]}"))


def error_response(headers: Mapping[str, str], status: int, reason: str) -> Response:
    """Return a page with an error for a browser, and one line of text for other clients."""
    if "text/html" not in headers.get("accept", ""):
        return PlainTextResponse(f"{reason}\n", status)
    title = ERROR_TITLES.get(status) or HTTPStatus(status).phrase.capitalize()
    page = Template(_read_template("error.html")).substitute(
        title=escape(title),
        reason=re.sub("`([^`]*)`", r"<code>\1</code>", escape(reason)),
        advice=SIGN_IN if status in (403, 421) else CONTINUE,
        style=ERROR_STYLE,
    )
    return HTMLResponse(page, status)


def _read_template(name: str) -> str:
    return resources.files("ccmn.app.review").joinpath("templates", name).read_text("utf-8")


async def _read_body(headers: Headers, receive: Receive) -> bytes:
    """Read the request body; stop as soon as it is too long."""
    too_long = RejectedRequestError(413, f"Request body too long: at most {MAX_BODY_BYTES} bytes are accepted.")
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > MAX_BODY_BYTES:
        raise too_long
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body", False))
        if len(body) > MAX_BODY_BYTES:
            raise too_long
    return body


def _with_security_headers(send: Send) -> Send:
    """Return a ``send`` that adds the security headers to every response."""
    extra = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *extra]}
        await send(message)

    return send_with_headers
