"""The server of the review page: where it listens, and the one-time address at which it is opened."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

from ccmn.review.retrain import Retraining
from ccmn.review.session import Session

LOCAL = "127.0.0.1"


def check_installed() -> None:
    """Refuse early, and say what is to be installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ImportError("the review page needs starlette and uvicorn: pip install 'ccmn[review]'") from None


def check_host(host: str) -> str:
    """An address of this machine; not "every address", since requests must name the one that they are for.

    >>> check_host("0.0.0.0")
    Traceback (most recent call last):
    ValueError: 0.0.0.0 stands for every address: name the one that will be typed into the browser
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"the host must be an address of this machine, such as {LOCAL}; got {host!r}") from None
    if address.is_unspecified:
        raise ValueError(f"{host} stands for every address: name the one that will be typed into the browser")
    return host


def serve(
    session: Session, retraining: Retraining, tell: Callable[[str], None], host: str = LOCAL, port: int = 0
) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    session, retraining
        What is served.
    tell : callable
        Called with the address to open, once it can be opened.
    host : str
        The address to listen at, which is the only one that is answered to (127.0.0.1: ``localhost``, too).
    port : int
        0: one that is free.
    """
    check_installed()
    import uvicorn

    from ccmn.review.app import make_app
    from ccmn.review.guard import Guard

    family = socket.AF_INET6 if ":" in check_host(host) else socket.AF_INET
    # By the protocol's name asyncio knows that small answers are to be sent at once: without it each takes 40 ms more.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise OSError(f"cannot listen at {host}, port {port}: {error.strerror}; try another --port") from None
        place = f"{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        hosts = {place, place.replace(LOCAL, "localhost")}
        token = secrets.token_urlsafe(24)
        app = Guard(make_app(session, retraining), hosts, token)
        listener.listen()
        tell(f"http://{place}/?token={token}")
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
        with suppress(KeyboardInterrupt):  # which is how it is ended
            uvicorn.Server(config).run(sockets=[listener])
