"""Command line: each command parses its options, calls the library and prints the result."""

import io
import sys

APP_PACKAGES = ("typer", "rich", "jinja2", "starlette", "uvicorn", "pyarrow", "pooch", "markupsafe", "click")
"""Packages of the extra ``app``."""
INSTALL_APP = 'pip install "ccmn[app]"'


def main() -> None:
    """Run the command line: the entry point of the console script and of ``python -m ccmn``.

    Characters that the terminal cannot show, and bytes in file names that are not UTF-8, are printed by their codes.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from ccmn.app.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in APP_PACKAGES:
            raise
        sys.exit(f"ccmn: the command line requires {error.name}: {INSTALL_APP}")
    app(prog_name="ccmn")


__all__ = ["main"]
