from __future__ import annotations

import socket
import sys

import pytest

from ccmn.review.server import check_host, check_installed, serve


@pytest.mark.parametrize("host", ["127.0.0.1", "192.168.1.5", "::1"])
def test_addresses(host):
    assert check_host(host) == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "example.org", "127.0.0.1:80", "localhost"])
def test_addresses_that_are_none(host):
    with pytest.raises(ValueError, match=r"every address|an address of this machine"):
        check_host(host)


def test_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(ImportError, match=r"pip install 'ccmn\[review\]'"):
        check_installed()


def test_a_port_that_is_taken(session):
    pytest.importorskip("uvicorn", reason="the review page needs uvicorn: pip install 'ccmn[review]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, told = taken.getsockname()[1], []
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1, port {port}: .*try another --port"):
            serve(session, None, told.append, port=port)
    assert told == []
