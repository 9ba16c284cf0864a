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
from http import HTTPStatus
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 4096
"""Maximum length of a request body. The app itself sends a few dozen bytes."""

MAX_PATH_LENGTH = 200
"""Maximum length of the path of a URL. Longer numbers than Python converts would be an error of the server."""

MAX_SECONDS = 10.0
"""Maximum time for the body of a request, and between two requests of a connection."""

TEMPLATES = Environment(
    loader=PackageLoader("ccmn.app.review"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
ERROR_STYLE = resources.files("ccmn.app.review").joinpath("static", "error.css").read_text("utf-8")
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it to the application."""
        if scope["type"] != "http":
            return
        request, send, body = Request(scope), _with_security_headers(send), b""
        try:
            response = self._answer(request)
            if response is None:
                body = await asyncio.wait_for(_read_body(request.headers, receive), MAX_SECONDS)
        except HTTPException as rejected:
            response = error_response(request.headers, rejected.status_code, rejected.detail)
        except asyncio.TimeoutError:
            response = PlainTextResponse("The request took too long.\n", 408, {"Connection": "close"})
        if response is not None:
            await response(scope, receive, send)
            return

        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)

    def _answer(self, request: Request) -> Response | None:
        """Reject a request, or answer a link and the sign-in; None for requests to the application."""
        headers, path, signed_in = request.headers, request.scope["path"], self._has_cookie(request)
        if headers.getlist("host") != [headers.get("host")] or headers.get("host") not in self._hosts:
            raise HTTPException(421, "Invalid Host header: open the URL printed by `ccmn review`.")
        if len(path) > MAX_PATH_LENGTH:
            raise HTTPException(414, f"URL too long: at most {MAX_PATH_LENGTH} characters are accepted.")
        # Reports are files, therefore a browser treats their links as cross-site requests and sends no cookie. The
        # page contains nothing but the row number of the URL, and requests the row as the web app itself.
        link = re.fullmatch(r"/go/([0-9]{1,9})", path)
        if link is not None and request.method == "GET":
            return _forward(f"/rows?row={link[1]}")
        self._check_origin(request)
        tokens = request.query_params.getlist("token") if (path, request.method) == ("/", "GET") else []
        if tokens:
            return _forward("/") if signed_in else self._sign_in(tokens[0])
        if not signed_in:
            raise HTTPException(403, "Not signed in: open the URL that `ccmn review` printed last.")
        return None

    def _check_origin(self, request: Request) -> None:
        origin = request.headers.get("origin")
        own = origin is not None and origin.startswith("http://") and origin.removeprefix("http://") in self._hosts
        if not own and (origin is not None or request.method not in ("GET", "HEAD")):
            raise HTTPException(403, "Invalid Origin header: the request comes from another web page.")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise HTTPException(
                403, "Cross-site request rejected: enter the URL printed by `ccmn review` in the address bar."
            )

    def _sign_in(self, token: str) -> Response:
        """Exchange the token for the cookie and lead to a URL without token."""
        if self._token is None:
            raise HTTPException(403, "This one-time link has already been used. Run `ccmn review` again for a new one.")
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            raise HTTPException(403, "Invalid token: open the URL that `ccmn review` printed last.")
        self._token, response = None, _forward("/")
        response.set_cookie(self.cookie, self._secret, httponly=True, samesite="strict")
        return response

    def _has_cookie(self, request: Request) -> bool:
        return secrets.compare_digest(request.cookies.get(self.cookie, "").encode(), self._secret.encode())


def _forward(url: str) -> Response:
    """Return a page that requests a URL as the web app itself."""
    return HTMLResponse(TEMPLATES.get_template("login.html").render(url=url))


def error_response(headers: Mapping[str, str], status: int, reason: str) -> Response:
    """Return a page with an error for a browser, and one line of text for other clients."""
    if "text/html" not in headers.get("accept", ""):
        return PlainTextResponse(f"{reason}\n", status)
    page = TEMPLATES.get_template("error.html").render(
        title=ERROR_TITLES.get(status) or HTTPStatus(status).phrase.capitalize(),
        reason=Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(reason)))),
        signed_in=status not in (403, 421),
        style=Markup(ERROR_STYLE),
    )
    return HTMLResponse(page, status)


async def _read_body(headers: Headers, receive: Receive) -> bytes:
    """Read the request body; stop as soon as it is too long."""
    too_long = HTTPException(413, f"Request body too long: at most {MAX_BODY_BYTES} bytes are accepted.")
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
