from __future__ import annotations

import pytest

from ccmn.cli import output


@pytest.mark.parametrize(
    ("on_path", "called", "expected"),
    [
        ("/usr/bin/ccmn", "/usr/bin/ccmn", "ccmn"),
        (None, ".venv/bin/ccmn", ".venv/bin/ccmn"),
        (None, "src/ccmn/__main__.py", "python -m ccmn"),
    ],
)
def test_program_name(monkeypatch, on_path, called, expected):
    monkeypatch.setattr(output.shutil, "which", lambda name: on_path)
    monkeypatch.setattr(output.sys, "argv", [called, "demo"])
    assert output.program_name() == expected
