"""Progress of a training: reported to an application, or one line per epoch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from ccmn._progress import show_phases
from ccmn.training.batches import Batches
from ccmn.training.loop import EpochProgress
from ccmn.training.stream import Stream, StreamProgress

OnEpoch = Callable[[EpochProgress], None] | None


@contextlib.contextmanager
def show_progress(verbose: int, criterion: str, batches: Batches) -> Iterator[OnEpoch]:
    """Yield the callback for the end of an epoch; a stream of rows also reports them.

    With ``verbose=1``, they report the progress; with ``verbose=2``, they print one line per epoch. The progress of a
    stream counts rows, that of rows in memory counts epochs.
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
    if verbose < 1:
        yield None
        return
    with show_phases(verbose) as on_progress:
        if isinstance(batches, Stream):
            batches.on_progress = lambda rows: on_progress(
                f"epoch {rows.epoch + 1}", rows.rows, rows.total, _rows_per_second(rows)
            )
            yield None
        else:
            yield lambda epoch: on_progress("training", epoch.epoch + 1, epoch.epochs, _epoch_values(epoch, criterion))


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
