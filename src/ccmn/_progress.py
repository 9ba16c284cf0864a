"""Progress of long computations: the library reports it, and an application may draw it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

N_LINES = 10
"""Without an application, this many lines per phase are printed."""


class OnProgress(Protocol):
    """Callback with the phase of a computation, its finished steps, all steps, and a text about the latest step."""

    def __call__(self, phase: str, done: float, total: float, details: str = "") -> None:
        """Show the progress."""


_displays: list[Callable[[], AbstractContextManager[OnProgress]]] = []


@contextmanager
def drawn_by(display: Callable[[], AbstractContextManager[OnProgress]]) -> Iterator[None]:
    """Let an application draw all progress: ``display()`` is a context manager that returns the callback."""
    _displays.append(display)
    try:
        yield
    finally:
        _displays.pop()


@contextmanager
def show_phases(verbose: int) -> Iterator[OnProgress]:
    """Yield the callback of a computation; without an application, it prints lines on stderr if ``verbose`` > 0."""
    if verbose < 1:
        yield lambda phase, done, total, details="": None
    elif _displays:
        with _displays[-1]() as on_progress:
            yield on_progress
    else:
        printed: list[tuple[str, int]] = []

        def print_line(phase: str, done: float, total: float, details: str = "") -> None:
            part = phase, int(N_LINES * done / total) if total else 0
            if part not in printed[-1:]:
                printed.append(part)
                text = f"{phase}: {done:,.0f} of {total:,.0f}" + (f", {details}" if details else "")
                print(text, file=sys.stderr, flush=True)

        yield print_line
