"""Progress of a long fit: one line on a terminal, on stderr; nothing anywhere else."""

from __future__ import annotations

import sys
from types import TracebackType

from typing_extensions import Self


class Progress:
    """``with Progress("training", verbose) as progress: progress.show(done, total)``."""

    def __init__(self, what: str, verbose: int) -> None:
        self.what, self.shown = what, bool(verbose) and sys.stderr.isatty()

    def show(self, done: int, total: int) -> None:
        if self.shown:
            print(f"\r{self.what}: {done}/{total}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self.shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
