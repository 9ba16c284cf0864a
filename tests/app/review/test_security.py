"""Access control: which requests are rejected, and which are accepted."""

import pytest

pytest.importorskip("starlette", reason="ccmn review requires starlette: pip install 'ccmn[app]'")

from app.review.http_client import HOST, TOKEN, make_client, sign_in

URLS = ["/", "/row/0", "/picture/0", "/static/review.js", "/training", "/nothing"]


@pytest.fixture
def client(session):
    return make_client(session)


@pytest.fixture
def signed_in(client):
    return sign_in(client)


@pytest.mark.parametrize("url", URLS)
def test_nothing_is_shown_without_the_token(client, url):
    response = client.get(url)
    assert response.status == 403
    assert "sea" not in response.text


@pytest.mark.parametrize("query", ["?token=", "?token=wrong", "?token", "?token=%C3%A9", f"?token=a&token={TOKEN}"])
def test_wrong_tokens_are_rejected(client, query):
    assert client.get(f"/{query}").status == 403
    assert not client.cookies


def test_the_token_is_exchanged_once_for_a_protected_cookie(client):
    response = client.get(f"/?token={TOKEN}")
    cookie = response.headers["set-cookie"].lower()
    assert response.status == 200
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/").status == 200
    assert client.get(f"/?token={TOKEN}").status == 200  # same browser
    client.cookies.clear()
    assert client.get(f"/?token={TOKEN}").status == 403  # another browser
    assert client.get("/").status == 403


def test_cookies_of_another_server_are_rejected(session, signed_in):
    other = make_client(session)
    other.cookies = signed_in.cookies
    assert other.get("/").status == 403
    signed_in.cookies = dict.fromkeys(signed_in.cookies, "guessed")
    assert signed_in.get("/").status == 403


HOSTS = ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "localhost", None]
ORIGINS = ["http://evil.example", "null", "https://127.0.0.1:8000", "http://127.0.0.1:8000.evil.example", ""]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        # DNS rebinding: a foreign name that resolves to this machine.
        *(({"host": host, "origin": f"http://{host}"}, 421) for host in HOSTS),
        *(({"origin": origin}, 403) for origin in ORIGINS),
        *(({"sec_fetch_site": site}, 403) for site in ("cross-site", "same-site")),
    ],
)
def test_requests_of_other_pages_are_rejected(signed_in, session, headers, status):
    assert signed_in.post("/row/0/answer", {"label": 0, "answer": "yes"}, **headers).status == status
    for url in ("/row/0", "/picture/0"):
        assert signed_in.get(url, **headers).status == status
    assert session.store.answers() == []


def test_long_bodies_are_rejected_and_not_read_to_the_end(signed_in, session):
    assert signed_in.post("/row/0/answer", {"label": 0, "answer": "yes", "rest": "x" * 4096}).status == 413
    assert signed_in.n_chunks_read == 0  # rejected because of its Content-Length
    cookie = "; ".join(f"{name}={value}" for name, value in signed_in.cookies.items())
    headers = {"host": HOST, "origin": f"http://{HOST}", "cookie": cookie, "transfer-encoding": "chunked"}
    chunks = [b"label=0&answer=yes", *(b"x" * 1000 for _ in range(100))]
    assert signed_in.send("POST", "/row/0/answer", chunks, headers).status == 413
    assert signed_in.n_chunks_read == 4096 // 1000 + 2
    assert session.store.answers() == []


@pytest.mark.parametrize("length", ["-1", "1e3", "99999999999", "abc"])
def test_invalid_lengths_are_rejected(signed_in, length):
    assert signed_in.post("/undo", content_length=length).status == 413


@pytest.mark.parametrize(
    "url",
    [
        "/static/../session.py",
        "/static/..%2Fsession.py",
        "/static/%2e%2e/%2e%2e/pyproject.toml",
        "/static//etc/passwd",
        "/static/session.py",
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
def test_invalid_urls_are_not_found(signed_in, url):
    assert signed_in.get(url).status == 404


@pytest.mark.parametrize("start", ["/row/", "/picture/", "/go/", "/static/"])
def test_long_urls_are_rejected(signed_in, start):
    """Python does not convert numbers of more than 4300 digits."""
    assert signed_in.get(start + "9" * 5000).status == 414


def test_every_response_has_the_security_headers(signed_in):
    for response in (signed_in.get("/row/0"), signed_in.get("/nothing"), signed_in.get("/", host="evil.example")):
        policy = response.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
        assert response.headers["cache-control"] == "no-store"


def test_links_of_reports_lead_to_a_row(session):
    """A report is a file: the browser sends no cookie with its links, and the response must not contain data."""
    client = make_client(session)
    response = client.get("/go/7", sec_fetch_site="cross-site")
    assert response.status == 200
    assert "url=/rows?row=7" in response.text
    assert "sea" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert client.get("/rows?row=7", sec_fetch_site="cross-site").status == 403
    assert client.get("/go/7", host="evil.example").status == 421
    for url in ("/go/x", "/go/7/..", "/go/1234567890"):
        assert client.get(url).status == 403
    assert client.post("/go/7").status == 403
    assert session.store.length() == 0


def test_error_page_of_a_browser_that_is_not_signed_in_says_what_to_do(client):
    page = client.get("/", accept="text/html").text
    assert "open the URL that <code>ccmn review</code> printed last" in page
    assert 'href="/"' not in page  # the link would lead to the same error
