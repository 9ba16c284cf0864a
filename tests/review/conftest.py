"""A review of a small table, its decisions in a temporary folder."""

from __future__ import annotations

import pytest

from review.table import make_session


@pytest.fixture
def session(tmp_path):
    """A review that has just begun."""
    begun = make_session(tmp_path / "review")
    yield begun
    begun.close()
