"""A Python without pandas and without the command line's libraries, as on a machine with a bare image."""

from __future__ import annotations

import subprocess
import sys

_REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pandas", "typer", "rich", "matplotlib", "pyarrow", "pooch"}:
            raise ImportError(f"{name} is not to be had here")
sys.meta_path.insert(0, Refuse())
"""


def run_bare(code: str, *arguments: str) -> str:
    """What the code prints."""
    command = [sys.executable, "-c", _REFUSE + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
