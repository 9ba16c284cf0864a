"""A Ray cluster to run on: connected to, or started here; an address where there is none is refused at once."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

RETRIES = 5
"""How often a task is run again whose machine was lost; it repeats itself, since its seed is its own."""
_PATIENCE = 10.0
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of HTTP/2 opens with, and its settings (none)."""
_SETTINGS = 4


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """The module ray, connected; a connection that was there before is used, and kept.

    Parameters
    ----------
    address : HOST:PORT of a cluster's head, optional
        Else that of the environment variable RAY_ADDRESS; else a cluster of this machine alone, which ends with it.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("this runs on Ray, which is not installed: pip install 'ccmn[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_answers(address)
    own = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **own)
    except (RuntimeError, ConnectionError) as error:  # among them: other versions of Ray or Python there than here
        raise OSError(f"cannot use the Ray cluster at {address}: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Ray itself would wait for minutes where nothing answers, or something else than Ray."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit() or os.environ.get("RAY_USE_TLS") == "1":
        return  # a word of Ray's own ("auto", "local"); or the greeting would have to be encrypted
    try:
        if not _speaks_http2(host, int(port)):
            raise OSError("what answers there is not Ray")
    except (OSError, OverflowError) as error:
        raise OSError(f"there is no Ray cluster at {address} ({error}): give its head's HOST:PORT") from None


def _speaks_http2(host: str, port: int) -> bool:
    """Does a server answer as gRPC servers do, Ray's among them: with its settings for HTTP/2?"""
    with socket.create_connection((host, port), timeout=_PATIENCE) as connection:
        connection.sendall(_HTTP2_GREETING)
        head = connection.recv(9, socket.MSG_WAITALL)
    return len(head) == 9 and head[3] == _SETTINGS
