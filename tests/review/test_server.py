from __future__ import annotations

import socket
import sys

import pytest

from ccmn.review.server import check_host, check_installed, serve


@pytest.mark.parametrize("host", ["127.0.0.1", "192.168.1.5", "::1"])
def test_valid_hosts(host):
    assert check_host(host) == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "example.org", "127.0.0.1:80", "localhost"])
def test_invalid_hosts(host):
    with pytest.raises(ValueError, match=r"all addresses|must be an IP address"):
        check_host(host)


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(ImportError, match="pip install starlette uvicorn"):
        check_installed()


def test_port_in_use(session):
    pytest.importorskip("uvicorn", reason="ccmn review requires uvicorn: pip install starlette uvicorn")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, urls = taken.getsockname()[1], []
        with pytest.raises(OSError, match=f"127.0.0.1, port {port}: .*try another --port"):
            serve(session, None, urls.append, port=port)
    assert urls == []
