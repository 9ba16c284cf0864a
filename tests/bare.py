"""Run code in a Python process without pandas and without the libraries of the command line."""

from __future__ import annotations

import subprocess
import sys

_REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pandas", "typer", "rich", "matplotlib", "pyarrow", "pooch"}:
            raise ImportError(f"{name} is not available")
sys.meta_path.insert(0, Refuse())
"""


def run_bare(code: str, *arguments: str) -> str:
    """Return what the code prints; optional libraries cannot be imported in its process."""
    command = [sys.executable, "-c", _REFUSE + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
