"""Ray engine without a cluster: clear errors. Tests with a cluster are in tests/cluster."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from ccmn.paper import ray_engine
from ccmn.paper.ray_engine import connected


def init(address, **_):
    """Raise the error of Ray for different versions."""
    raise RuntimeError(f"Version mismatch: The cluster was started with: Ray: 1.0; {address}")


@pytest.fixture
def fake_ray(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))


@contextmanager
def server(reply):
    """Start a server that sends a reply to any request, and return its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                connection.sendall(reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def test_ray_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="pip install ray"), connected():
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:123456", "ray://127.0.0.1:1"])
def test_nothing_listens_at_the_address(fake_ray, address):
    with pytest.raises(OSError, match=r"no Ray cluster at.*HOST:PORT"), connected(address):
        pass


@pytest.mark.parametrize("reply", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"", b"hello"])
def test_another_server_listens_at_the_address(fake_ray, reply):
    with server(reply) as address, pytest.raises(OSError, match=r"no Ray cluster at .*not Ray"), connected(address):
        pass


def test_server_does_not_answer(fake_ray, monkeypatch):
    monkeypatch.setattr(ray_engine, "_CONNECTION_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OSError, match=r"no Ray cluster at .*timed out"), connected(address):
            pass


def test_version_mismatch(fake_ray):
    """The server answers like a gRPC server, with a SETTINGS frame of nine bytes."""
    with (
        server(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))) as address,
        pytest.raises(OSError, match=r"cannot use the Ray cluster.*Version mismatch"),
        connected(address),
    ):
        pass


def test_address_from_the_environment(fake_ray, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(OSError, match=r"no Ray cluster at 127\.0\.0\.1:1"), connected():
        pass


def test_node_with_another_version_of_ccmn():
    with pytest.raises(RuntimeError, match="install the same version"):
        ray_engine._run_task(None, (), (), "cpu", "0.0.0")
