"""Tests of the read-only registries."""

from __future__ import annotations

import pytest

from ccmn._registry import Registry


def test_registry_is_a_mapping():
    table = Registry("fruit", {"apple": 1, "pear": 2})
    assert list(table) == ["apple", "pear"]
    assert len(table) == 2
    assert "apple" in table
    assert "plum" not in table
    assert repr(table) == "Registry(fruit: apple, pear)"


def test_unknown_name_lists_the_known_ones():
    table = Registry("fruit", {"apple": 1, "pear": 2})
    with pytest.raises(ValueError, match=r"unknown fruit 'aple'; did you mean 'apple'\? Known: apple, pear"):
        table["aple"]
    with pytest.raises(ValueError, match=r"unknown fruit 'xyz'\. Known: apple, pear"):
        table["xyz"]
    with pytest.raises(ValueError, match="unknown fruit 7"):
        table[7]
