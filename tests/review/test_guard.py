"""Who is let in: each way of asking that must be refused, and the one that is not."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("starlette", reason="the review page needs starlette: pip install 'ccmn[review]'")

from ccmn.review.guard import MOST_BYTES, POLICY
from review.browser import HOST, TOKEN, enter, make_browser

ADDRESSES = ["/", "/row/0", "/picture/0", "/static/review.js", "/training", "/nothing"]


@pytest.fixture
def outside(session):
    return make_browser(session)


@pytest.fixture
def inside(outside):
    return enter(outside)


@pytest.mark.parametrize("address", ADDRESSES)
def test_without_the_token_nothing_is_shown(outside, address):
    answer = outside.get(address)
    assert answer.status == 403
    assert "sea" not in answer.text


@pytest.mark.parametrize("query", ["?token=", "?token=wrong", "?token", "?token=%C3%A9", f"?token=a&token={TOKEN}"])
def test_a_wrong_token_is_refused(outside, query):
    assert outside.get(f"/{query}").status == 403
    assert not outside.cookies


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(outside):
    answer = outside.get(f"/?token={TOKEN}")
    cookie = answer.headers["set-cookie"].lower()
    assert answer.status == 200
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert outside.get("/row/0").status in (200, 404)


def test_the_token_is_good_for_one_visit(outside):
    enter(outside)
    assert outside.get(f"/?token={TOKEN}").status == 200  # the same browser
    outside.cookies.clear()
    assert outside.get(f"/?token={TOKEN}").status == 403  # another one
    assert outside.get("/").status == 403


def test_a_cookie_of_another_run_is_refused(session, inside):
    other = make_browser(session)
    other.cookies = inside.cookies
    assert other.get("/").status == 403
    inside.cookies = dict.fromkeys(inside.cookies, "guessed")
    assert inside.get("/").status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "localhost", None]
)
def test_another_host_is_refused(inside, host):
    """A foreign name that resolves to this machine (DNS rebinding) is not this page."""
    assert inside.get("/row/0", host=host).status == 421
    assert inside.post("/undo", host=host, origin=f"http://{host}").status == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8000", "http://127.0.0.1:8000.evil.example", ""]
)
def test_another_origin_is_refused(inside, session, origin):
    assert inside.post("/row/0/answer", {"label": 0, "answer": "yes"}, origin=origin).status == 403
    assert inside.get("/row/0", origin=origin).status == 403
    assert session.store.entries() == []


def test_a_change_without_an_origin_is_refused(inside, session):
    assert inside.post("/row/0/answer", {"label": 0, "answer": "yes"}, origin=None).status == 403
    assert inside.ask("DELETE", "/row/0", b"", {}).status == 403
    assert session.store.entries() == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_makes_the_browser_fetch_is_refused(inside, site):
    assert inside.get("/picture/0", sec_fetch_site=site).status == 403


def test_localhost_is_the_same_machine(inside):
    assert inside.get("/training", host="localhost:8000", origin="http://localhost:8000").status == 200


def test_long_bodies_are_refused(inside, session):
    assert inside.post("/row/0/answer", {"label": 0, "answer": "yes", "rest": "x" * MOST_BYTES}).status == 413
    assert inside.read == 0  # by what was announced
    assert session.store.entries() == []


def test_long_bodies_without_a_length_are_not_read_to_the_end(inside, session):
    cookie = "; ".join(f"{name}={value}" for name, value in inside.cookies.items())
    headers = {"host": HOST, "origin": f"http://{HOST}", "cookie": cookie, "transfer-encoding": "chunked"}
    answer = inside.raw("POST", "/row/0/answer", [b"label=0&answer=yes", *(b"x" * 1000 for _ in range(100))], headers)
    assert answer.status == 413
    assert inside.read == MOST_BYTES // 1000 + 2
    assert session.store.entries() == []


@pytest.mark.parametrize("length", ["-1", "1e3", "99999999999", "abc"])
def test_odd_lengths_are_refused(inside, length):
    assert inside.post("/undo", content_length=length).status == 413


@pytest.mark.parametrize(
    "address",
    [
        "/static/../store.py",
        "/static/..%2Fstore.py",
        "/static/%2e%2e/%2e%2e/pyproject.toml",
        "/static//etc/passwd",
        "/static/store.py",
        "/static/",
        "/picture/..%2F..%2Fetc%2Fpasswd",
        "/picture/-1",
        "/picture/99999999999999999999999",
        "/row/99999999999999999999999",
        "/row/7",
        "/row/-1",
        "/row/0x1",
        "/%00",
    ],
)
def test_addresses_that_lead_nowhere(inside, address):
    assert inside.get(address).status == 404


def test_every_answer_carries_the_policy(inside):
    for answer in (inside.get("/row/0"), inside.get("/nothing"), inside.get("/", host="evil.example")):
        for name, value in POLICY.items():
            assert answer.headers[name.lower()] == value
    policy = POLICY["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_web_sockets_are_not_spoken(inside):
    asyncio.run(inside.app({"type": "websocket"}, None, None))  # neither answered nor an error
