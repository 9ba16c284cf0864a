"""Progress display: a bar on a terminal, or one line per epoch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from ccmn.training.batches import Batches
from ccmn.training.loop import EpochProgress
from ccmn.training.stream import Stream, StreamProgress

OnEpoch = Callable[[EpochProgress], None] | None


@contextlib.contextmanager
def show_progress(verbose: int, criterion: str, batches: Batches) -> Iterator[OnEpoch]:
    """Yield the callback for the end of an epoch; a stream of rows also reports them.

    With ``verbose=1``, they draw a progress bar if stderr is a terminal; with ``verbose=2``, they print one line per
    epoch. The progress bar of a stream counts rows, that of rows in memory counts epochs.
    """
    if verbose >= 2:
        latest: list[StreamProgress] = []

        def print_epoch(progress: EpochProgress) -> None:
            speed = f", {_rows_per_second(latest[-1])}" if latest else ""
            print(f"{_epoch_line(progress, criterion)}{speed}", file=sys.stderr, flush=True)

        if isinstance(batches, Stream):
            batches.on_progress = lambda progress: latest.__setitem__(slice(None), [progress])
        yield print_epoch
        return
    if verbose < 1 or not sys.stderr.isatty():
        yield None
        return
    stream = isinstance(batches, Stream)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    head = (TextColumn("epoch {task.fields[epoch]}"), BarColumn()) if stream else (TextColumn("training"), BarColumn())
    columns = (*head, *(() if stream else (MofNCompleteColumn(),)), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, epoch=1)

        def update_epoch(progress: EpochProgress) -> None:
            if stream:
                bar.console.print(_epoch_line(progress, criterion))
                return
            description = _epoch_values(progress, criterion)
            bar.update(task, total=progress.epochs, completed=progress.epoch + 1, description=description)

        def update_rows(progress: StreamProgress) -> None:
            description = _rows_per_second(progress)
            bar.update(
                task, total=progress.total, completed=progress.rows, epoch=progress.epoch + 1, description=description
            )

        if isinstance(batches, Stream):
            batches.on_progress = update_rows
        yield update_epoch


@contextlib.contextmanager
def show_phases(verbose: int) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback for the phases of a fit without epochs: their name, finished steps and all steps.

    It draws one progress bar if ``verbose`` is positive and stderr is a terminal.
    """
    if verbose < 1 or not sys.stderr.isatty():
        yield lambda phase, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)
        current = [""]

        def update(phase: str, done: int, total: int) -> None:
            if current != [phase]:
                bar.reset(task, total=total, description=phase, visible=True)
                current[:] = [phase]
            bar.update(task, completed=done)

        yield update


def _rows_per_second(progress: StreamProgress) -> str:
    """Return the speed as text."""
    return f"{progress.rows / max(progress.seconds, 1e-9):,.0f} rows/s"


def _epoch_line(progress: EpochProgress, criterion: str) -> str:
    """Return the line of an epoch."""
    return f"epoch {progress.epoch + 1}/{progress.epochs}: {_epoch_values(progress, criterion)}"


def _epoch_values(progress: EpochProgress, criterion: str) -> str:
    """Return loss and criterion of the run that is best in this epoch."""
    if progress.criterion is None:
        return f"loss {float(progress.loss.min()):.4f}"
    best = int(progress.criterion[0].argmin())
    return f"loss {float(progress.loss[0, best]):.4f}, validation {criterion} {float(progress.criterion[0, best]):.4f}"
