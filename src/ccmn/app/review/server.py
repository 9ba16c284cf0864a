"""Local server of the review: address, port and one-time URL."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ccmn.app.review.retraining import Retraining
from ccmn.app.review.security import MAX_SECONDS, AccessControl
from ccmn.app.review.session import ReviewSession
from ccmn.app.review.web_app import make_app

HOST = "127.0.0.1"
"""Address of the server: other machines cannot reach it."""

MAX_CONNECTIONS = 64
"""Further connections are answered with status 503: a browser opens about six."""

MAX_HEAD_BYTES = 1 << 14
"""Maximum length of the head of a request."""

PREFERRED_PORT = 8765
"""Port that is used if it is free and no other one is requested. The links of audit reports lead to it."""


class PatientConnection(H11Protocol):
    """Connection that is closed if the head of the next request is not complete in time."""

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait_after(None)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait_after(self.cycle)
        super().on_response_complete()

    def _wait_after(self, last: object) -> None:
        self.loop.call_later(MAX_SECONDS, lambda: self.transport.close() if self.cycle is last else None)


def serve(
    session: ReviewSession,
    retraining: Retraining,
    on_start: Callable[[str], None],
    port: int = 0,
    next_command: str = "",
) -> None:
    """Serve the web app of a review until interrupted with Ctrl-C.

    Parameters
    ----------
    session : ReviewSession
        Review to serve.
    retraining : Retraining
        Background job that the web app starts.
    on_start : callable
        Called with the one-time URL when the server accepts connections.
    port : int, default=0
        Port to listen on; 0 selects 8765, or another free port if it is in use.
    next_command : str, default=""
        Command that uses the exported files, which the page shows.

    Raises
    ------
    OSError
        If the server cannot listen on this port.
    """
    with _listen(port) as listener:
        address = f"{HOST}:{listener.getsockname()[1]}"
        hosts = {address, address.replace(HOST, "localhost")}
        token = secrets.token_urlsafe(24)
        app = AccessControl(make_app(session, retraining, next_command), hosts, token)
        on_start(f"http://{address}/?token={token}")
        config = uvicorn.Config(
            app,
            http=PatientConnection,
            timeout_keep_alive=int(MAX_SECONDS),
            limit_concurrency=MAX_CONNECTIONS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
        )
        with suppress(KeyboardInterrupt):  # Ctrl-C is the regular way to stop the server
            uvicorn.Server(config).run(sockets=[listener])


def _listen(port: int) -> socket.socket:
    """Return a socket that listens on the port; 0 selects the preferred one, or a free one if it is in use."""
    try:
        listener = socket.create_server((HOST, port or PREFERRED_PORT))
    except OSError as error:
        if port:
            reason = str(error.strerror).partition(" (")[0]  # Python adds the address
            raise OSError(f"cannot listen on {HOST}, port {port}: {reason}; try another --port") from None
        listener = socket.create_server((HOST, 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each small response takes 40 ms longer
    return listener
