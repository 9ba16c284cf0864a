"""Every folder's index knows every member: a file that is in no index cannot be reached by name."""

from __future__ import annotations

import pytest

from ccmn._registry import Catalogue


def test_reads_like_a_mapping():
    table = Catalogue("fruit", {"apple": 1, "pear": 2})
    assert list(table) == ["apple", "pear"]
    assert len(table) == 2
    assert "apple" in table
    assert "plum" not in table
    assert repr(table) == "Catalogue(fruit: apple, pear)"


def test_unknown_names():
    table = Catalogue("fruit", {"apple": 1, "pear": 2})
    with pytest.raises(ValueError, match=r"unknown fruit 'aple'; did you mean 'apple'\? Known: apple, pear"):
        table["aple"]
    with pytest.raises(ValueError, match=r"unknown fruit 'xyz'\. Known: apple, pear"):
        table["xyz"]
    with pytest.raises(ValueError, match="unknown fruit 7"):
        table[7]
