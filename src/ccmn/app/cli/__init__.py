"""Command line: each command parses its options, calls the library and prints the result."""

from __future__ import annotations

import sys

APP_PACKAGES = ("typer", "rich", "jinja2", "starlette", "uvicorn", "pyarrow", "pooch", "markupsafe", "click")
"""Packages of the extra ``app``."""
INSTALL_APP = 'pip install "ccmn[app]"'


def main() -> None:
    """Run the command line: the entry point of the console script and of ``python -m ccmn``."""
    try:
        from ccmn.app.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in APP_PACKAGES:
            raise
        sys.exit(f"ccmn: the command line requires {error.name}: {INSTALL_APP}")
    app(prog_name="ccmn")


__all__ = ["main"]
