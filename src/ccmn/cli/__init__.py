"""The command line: one short function per sub-command, which parses, calls and prints."""

from ccmn.cli.app import app, main

__all__ = ["app", "main"]
