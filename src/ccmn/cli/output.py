"""What commands print: one JSON object, or something for people (rich)."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import typer


def print_json(value: Any) -> None:
    """One line of JSON; numbers that JSON does not have (NaN, infinity) become null."""
    typer.echo(json.dumps(_finite(value), allow_nan=False, ensure_ascii=False))


def show(table: Any) -> None:
    """A table on the screen; the width of a file or a pipe is no reason to cut it."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)


def own_name() -> str:
    """What to type for this program: a command told to somebody must work as it stands, on the path or not."""
    called = Path(sys.argv[0])
    if shutil.which("ccmn"):
        return "ccmn"
    return str(called) if called.stem == "ccmn" else "python -m ccmn"


def error_console() -> Any:
    """Where progress is shown: stderr, and only if that is a terminal."""
    from rich.console import Console

    return Console(stderr=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
