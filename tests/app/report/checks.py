"""Checks for every HTML page: well-formed, self-contained, without scripts except its own."""

import base64
import hashlib
import re
from html.parser import HTMLParser

_EMPTY = {"meta", "link", "img", "line", "circle", "rect"}
_PAGE = {"html", "head", "title", "style", "body", "h1", "h2", "h3", "nav", "section", "div", "article"}
_TEXT = {"p", "b", "i", "a", "ul", "li", "span", "small", "blockquote", "details", "summary", "table", "tr", "th", "td"}
_TAGS = _EMPTY | _PAGE | _TEXT | {"svg", "text", "g", "polyline", "main", "code", "script"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag, attrs):
        assert tag in _TAGS, f"unexpected <{tag}>"
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            assert not name.startswith("on"), f"{name} on <{tag}>"
            assert name != "src" or value.startswith("data:image/png;base64,")
            assert name != "href" or value.startswith(("#", "data:,", "http://127.0.0.1:8765/go/"))
            assert name != "style" or "url" not in value
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def check_page(page: str) -> _Reader:
    """Check a page; return its texts and how often each tag occurs."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert "default-src 'none'" in page
    assert "@import" not in page
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page
    return reader
