"""Progress of a training: reported to an application, or one line per epoch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from ccmn._progress import show_phases
from ccmn.training.batches import Batches
from ccmn.training.loop import EpochProgress
from ccmn.training.stream import Stream


@contextlib.contextmanager
def show_progress(verbose: int, criterion: str, batches: Batches) -> Iterator[Callable[[EpochProgress], None] | None]:
    """Yield the callback for the end of an epoch, which reports it, or prints a line with ``verbose=2``.

    The progress of a stream counts rows, that of rows in memory counts epochs.
    """
    with show_phases(verbose) as on_progress:
        speed: list[str] = []

        def on_rows(epoch: int, rows: int, total: int, seconds: float) -> None:
            speed[:] = [f"{rows / max(seconds, 1e-9):,.0f} rows/s"]
            if verbose == 1:
                on_progress(f"epoch {epoch + 1}", rows, total, *speed)

        def on_epoch(progress: EpochProgress) -> None:
            values = f"loss {float(progress.loss.min()):.4f}"
            if progress.criterion is not None:
                best = int(progress.criterion[0].argmin())
                value = float(progress.criterion[0, best])
                values = f"loss {float(progress.loss[0, best]):.4f}, validation {criterion} {value:.4f}"
            if verbose > 1:
                line = f"epoch {progress.epoch + 1}/{progress.epochs}: {', '.join([values, *speed])}"
                print(line, file=sys.stderr, flush=True)
            elif not isinstance(batches, Stream):
                on_progress("training", progress.epoch + 1, progress.epochs, values)

        if isinstance(batches, Stream):
            batches.on_progress = on_rows
        yield on_epoch
