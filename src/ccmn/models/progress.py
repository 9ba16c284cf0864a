"""Progress of a fit: a bar on a terminal, a line an epoch on request, nothing otherwise."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from ccmn.training import Passed, Progress


@contextlib.contextmanager
def progress_of(verbose: int, criterion: str) -> Iterator[Callable[[Progress], None] | None]:
    """What to call after each epoch. verbose=1: a bar, on a terminal only; verbose=2: a line, anywhere."""
    if verbose >= 2:
        yield lambda p: print(_line(p, criterion), file=sys.stderr, flush=True)
    elif verbose == 1 and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda p: bar.update(task, total=p.epochs, completed=p.epoch + 1, description=_figures(p, criterion))
    else:
        yield None


@contextlib.contextmanager
def stream_progress_of(
    verbose: int, criterion: str
) -> Iterator[tuple[Callable[[Progress], None] | None, Callable[[Passed], None] | None]]:
    """What to call after each epoch, and while rows pass by: rows a second, on a terminal as they come."""
    if verbose >= 2:
        latest: list[Passed] = []
        yield (
            lambda p: print(f"{_line(p, criterion)}, {_speed(latest[-1])}", file=sys.stderr, flush=True),
            lambda passed: latest.__setitem__(slice(None), [passed]),
        )
    elif verbose == 1 and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(), TextColumn("{task.description}"))
        with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None, epoch=1)

            def tell(p: Progress) -> None:
                bar.console.print(_line(p, criterion))

            def passed(p: Passed) -> None:
                bar.update(task, total=p.total, completed=p.rows, epoch=p.epoch + 1, description=_speed(p))

            yield tell, passed
    else:
        yield None, None


def _speed(passed: Passed) -> str:
    return f"{passed.rows / max(passed.seconds, 1e-9):,.0f} rows/s"


def _figures(progress: Progress, criterion: str) -> str:
    """The figures of the run that is best this epoch."""
    if progress.criterion is None:
        return f"loss {float(progress.loss.min()):.4f}"
    best = int(progress.criterion[0].argmin())
    return f"loss {float(progress.loss[0, best]):.4f}, validation {criterion} {float(progress.criterion[0, best]):.4f}"


def _line(progress: Progress, criterion: str) -> str:
    return f"epoch {progress.epoch + 1}/{progress.epochs}: {_figures(progress, criterion)}"
