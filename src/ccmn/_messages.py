"""What users see beside results: warnings at their own line, and the progress of long computations."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

N_LINES = 10
"""Without an application, this many lines per phase are printed."""
_NOT_THE_USER = ("ccmn", "joblib", "sklearn")
_warned: set[tuple[str, int, str, int]] = set()


class NoiseWarning(UserWarning):
    """Category of the warnings of ccmn.

    Examples
    --------
    >>> import warnings
    >>> import ccmn
    >>> warnings.simplefilter("ignore", ccmn.NoiseWarning)
    """


def warn(message: str, category: type[Warning] = NoiseWarning) -> None:
    """Issue a warning at the first line of the call stack outside of ccmn and scikit-learn.

    In a grid search or a cross-validation, each caller in ccmn warns once per line of the user.
    """
    caller = frame = sys._getframe(1)
    searched = False
    while (
        frame.f_back is not None and (module := frame.f_globals.get("__name__", "")).partition(".")[0] in _NOT_THE_USER
    ):
        searched |= module.startswith("sklearn.model_selection")
        frame = frame.f_back
    if searched:
        place = (caller.f_code.co_filename, caller.f_lineno, frame.f_code.co_filename, frame.f_lineno)
        if place in _warned:
            return
        _warned.add(place)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


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
