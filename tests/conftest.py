"""Settings and fixtures of all tests. hypothesis has no deadline: tests may be slow on a busy machine."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ccmn", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ccmn")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the datasets of the paper."""
    folder = os.environ.get("CCMN_DATA")
    if not folder:
        pytest.skip("requires the datasets of the paper: set CCMN_DATA to their folder")
    return Path(folder)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder, an empty cache and no server."""
    monkeypatch.delenv("CCMN_DATA", raising=False)
    monkeypatch.setenv("CCMN_MIRROR", "http://127.0.0.1:1")
    monkeypatch.setenv("CCMN_CACHE", str(tmp_path / "cache"))
