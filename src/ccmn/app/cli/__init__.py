"""Command line: each command parses its options, calls the library and prints the result."""

from ccmn.app.cli.app import app, main

__all__ = ["app", "main"]
