"""Where there is no Ray cluster: told at once, and why. (What needs a cluster: tests/cluster.)"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from ccmn.experiments import on_ray, ray_cluster
from ccmn.experiments.ray_cluster import connected


def init(address, **_):
    """What Ray says where its versions differ."""
    raise RuntimeError(f"Version mismatch: The cluster was started with: Ray: 1.0; {address}")


@pytest.fixture
def fake_ray(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))


@contextmanager
def server(reply):
    """Something that listens on this machine and answers any greeting so; its address."""
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


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"ccmn\[ray\]"), connected():
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:123456", "ray://127.0.0.1:1"])
def test_an_address_where_nothing_is(fake_ray, address):
    with pytest.raises(OSError, match=r"no Ray cluster at.*HOST:PORT"), connected(address):
        pass


@pytest.mark.parametrize("reply", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"", b"hello"])
def test_an_address_where_something_else_is(fake_ray, reply):
    with server(reply) as address, pytest.raises(OSError, match=r"no Ray cluster at .*not Ray"), connected(address):
        pass


def test_an_address_that_never_answers(fake_ray, monkeypatch):
    monkeypatch.setattr(ray_cluster, "_PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OSError, match=r"no Ray cluster at .*timed out"), connected(address):
            pass


def test_other_versions_there_than_here(fake_ray):
    """The greeting is answered as by a gRPC server: with nine bytes of settings."""
    with (
        server(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))) as address,
        pytest.raises(OSError, match=r"cannot use the Ray cluster.*Version mismatch"),
        connected(address),
    ):
        pass


def test_the_environment_names_the_cluster(fake_ray, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(OSError, match=r"no Ray cluster at 127\.0\.0\.1:1"), connected():
        pass


def test_a_machine_with_another_ccmn():
    with pytest.raises(RuntimeError, match="install the same"):
        on_ray._run_one(None, (), (), "cpu", "0.0.0")
