import errno
import socket
import threading
from queue import Queue

import pytest

from ccmn.app import review


def test_port_in_use(session):
    pytest.importorskip("uvicorn", reason="ccmn review requires uvicorn: pip install 'ccmn[app]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, urls = taken.getsockname()[1], []
        with pytest.raises(OSError, match=f"127.0.0.1, port {port}: Address already in use; try another --port"):
            review.serve(session, None, urls.append, port=port)
    assert urls == []


def test_port_that_another_server_takes_before_this_one_listens(session, monkeypatch):
    """Two servers that start at once can both bind the preferred port; the second one then cannot listen."""

    def listen_once_in_vain(listener, *backlog):
        monkeypatch.undo()
        raise OSError(errno.EADDRINUSE, "in use")

    def stop(url):
        raise RuntimeError(url)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        preferred = free.getsockname()[1]
    monkeypatch.setattr("ccmn.app.review.server.PREFERRED_PORT", preferred)
    monkeypatch.setattr(socket.socket, "listen", listen_once_in_vain)
    with pytest.raises(RuntimeError, match=rf"http://127\.0\.0\.1:(?!{preferred}/)\d+/\?token="):
        review.serve(session, None, stop)


@pytest.fixture
def address(session, monkeypatch):
    """Host and port of a running server that waits for clients for half a second."""
    uvicorn = pytest.importorskip("uvicorn", reason="ccmn review requires uvicorn: pip install 'ccmn[app]'")
    monkeypatch.setattr("ccmn.app.review.security.MAX_SECONDS", 0.5)
    monkeypatch.setattr("ccmn.app.review.server.MAX_SECONDS", 0.5)
    servers, urls = [], Queue()
    run = uvicorn.Server.run
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: (servers.append(server), run(server, sockets)))
    thread = threading.Thread(target=review.serve, args=(session, None, urls.put), daemon=True)
    thread.start()
    url = urls.get(timeout=30)
    yield "127.0.0.1", int(url.partition("/?")[0].rpartition(":")[2])
    servers[0].should_exit = True
    thread.join(30)
    assert not thread.is_alive()


HEAD = b"POST /undo HTTP/1.1\r\nHost: %b\r\n"


class TestSlowClients:
    def test_unfinished_body_is_answered_with_408(self, address, session):
        with pytest.MonkeyPatch.context() as patch, socket.create_connection(address, timeout=30) as client:
            patch.setattr("ccmn.app.review.security.AccessControl._has_cookie", lambda *_: True)
            host = f"{address[0]}:{address[1]}".encode()
            client.sendall(HEAD % host + b"Origin: http://%b\r\nContent-Length: 10\r\n\r\na=" % host)
            answer = b""
            while part := client.recv(10_000):
                answer += part
        assert b" 408 " in answer

    def test_others_are_served_meanwhile(self, address):
        waiting = [socket.create_connection(address, timeout=30) for _ in range(50)]
        for client in waiting:
            client.sendall(b"GET / HTTP/1.1\r\n")
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: other\r\n\r\n")
            assert b" 421 " in client.recv(10_000)
        for client in waiting:
            while client.recv(10_000):  # a request that is not finished in time is dropped
                pass
            client.close()

    def test_number_of_connections_is_limited(self, address):
        clients = [socket.create_connection(address, timeout=30) for _ in range(64 + 8)]
        clients[-1].sendall(b"GET / HTTP/1.1\r\nHost: other\r\n\r\n")
        assert b" 503 " in clients[-1].recv(10_000)
        for client in clients:
            client.close()

    def test_long_heads_are_rejected(self, address):
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: other\r\nX: " + b"x" * (1 << 14))
            assert b" 400 " in client.recv(10_000)
