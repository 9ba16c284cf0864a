import pytest

from app.review.example import make_session


@pytest.fixture
def session(tmp_path):
    """Return a new review of the example data."""
    session = make_session(tmp_path / "review")
    yield session
    session.close()
