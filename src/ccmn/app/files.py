"""Atomic writing of text and of tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    from ccmn._files import atomic_write

    with atomic_write(path) as stream:
        stream.write(text.encode(errors="backslashreplace"))  # names of files may not be UTF-8


def write_csv(table: DataFrame, path: Path, float_format: str | None = None) -> None:
    """Write a table as CSV."""
    from ccmn._files import atomic_write

    with atomic_write(path) as stream:
        table.to_csv(stream, index=False, float_format=float_format, lineterminator="\n")
