from __future__ import annotations

import pytest

from ccmn.cli import output


@pytest.mark.parametrize(
    ("on_path", "called", "told"),
    [
        ("/usr/bin/ccmn", "/usr/bin/ccmn", "ccmn"),
        (None, ".venv/bin/ccmn", ".venv/bin/ccmn"),
        (None, "src/ccmn/__main__.py", "python -m ccmn"),
    ],
)
def test_a_command_that_is_told_can_be_typed(monkeypatch, on_path, called, told):
    monkeypatch.setattr(output.shutil, "which", lambda name: on_path)
    monkeypatch.setattr(output.sys, "argv", [called, "demo"])
    assert output.own_name() == told
