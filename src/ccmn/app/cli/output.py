"""Output of commands: JSON, tables, progress and HTML reports."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ccmn._progress import OnProgress
    from ccmn.app.report.facts import Report
    from ccmn.app.report.instances import Show
    from ccmn.data import MultiLabelData
    from ccmn.data.preprocessing import TablePreprocessor
    from ccmn.estimation import NoiseRates

MIN_TABLE_WIDTH = 120
"""Tables in files and pipes have at least this number of columns, so that they are not cut off."""

MAX_CACHE_BYTES = 1 << 28
"""Results of earlier commands are kept up to this size; the oldest ones are removed."""

CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        envvar="CCMN_RESULTS",
        help="Folder that keeps estimated rates and out-of-fold probabilities, so that the next command on the same "
        "data does not compute them again.",
    ),
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="HTML", help="Write a self-contained HTML report to this file.")
]
PictureSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Show rows as pictures of HEIGHTxWIDTH (gray) or HEIGHTxWIDTHx3 (color) pixels, as 16x24."
    ),
]


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, with null for NaN and infinity."""
    typer.echo(json.dumps(_finite(value), allow_nan=False, ensure_ascii=False))


def _finite(value: Any) -> Any:
    """Return a JSON value with None in place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(table: Any) -> None:
    """Print a table of rich."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, MIN_TABLE_WIDTH)
    console.print(table)


@contextmanager
def draw_progress() -> Iterator[OnProgress]:
    """Draw the progress of the current phase as a bar on stderr, only in terminals."""
    if not sys.stderr.isatty():
        yield lambda phase, done, total, details="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    counts = TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[details]}")
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1, visible=False, details="")
        current = [""]

        def update(phase: str, done: float, total: float, details: str = "") -> None:
            if current != [phase]:
                bar.reset(task, total=total, description=phase, visible=True)
                current[:] = [phase]
            bar.update(task, completed=done, total=total, details=details)

        yield update


def read_picture_size(text: str | None) -> tuple[int, ...] | None:
    """Return the value of ``--picture``.

    >>> read_picture_size("16x24"), read_picture_size("32x32x3")
    ((16, 24), (32, 32, 3))
    """
    if text is None:
        return None
    from ccmn._pictures import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"--picture: {error}") from error


def row_display(
    data: MultiLabelData, Y: Any, size: tuple[int, ...] | None, folder: Path, table: TablePreprocessor | None = None
) -> Show:
    """Return how a report shows a row: as a picture, as the start of its text, or by its informative columns.

    Picture files are searched in ``folder``. ``table`` is the preprocessing of the columns, if there is any.
    """
    import numpy as np

    from ccmn._containers import to_dense_array
    from ccmn.app.report.instances import image_files, informative_columns, informative_features, pictures, snippets

    if size is not None:
        return pictures(data.X, size)
    if data.images is not None:
        return image_files(list(data.images), folder)
    if data.texts is not None:
        return snippets(list(data.texts))
    labels = to_dense_array(Y).astype(np.float64)
    if data.cells is not None and table is not None:
        columns = [step.column for step in table.steps_ for _ in step.names]
        return informative_columns(data.X, labels, data.cells, columns)
    return informative_features(data.X, labels, data.feature_names)


class ResultCache:
    """Noise rates and out-of-fold probabilities in a folder, named by the content that they were computed from.

    A result is computed again if the data, an option or the version of ccmn changes, or if its file is damaged.

    Parameters
    ----------
    folder : Path or None
        Folder, which is created if it does not exist; None computes everything.
    random_state : int
        Random seed of the command.
    """

    def __init__(self, folder: Path | None, random_state: int) -> None:
        from ccmn._random import as_generator

        self._folder = folder
        self.seed = int(as_generator(random_state).integers(2**31))  # as in CCMNClassifier.fit and audit_labels
        if folder is not None:
            folder.mkdir(exist_ok=True)

    def rates(self, X: Any, Y: Any, noise_type: str, trusted: Any = None) -> NoiseRates:
        """Return the estimated rates, with a progress bar in terminals if they are not stored."""
        import numpy as np

        from ccmn.estimation import NoiseRates, estimate_noise

        settings = ("rates", noise_type, None if trusted is None else [part.tolist() for part in trusted])
        path = self._path(X, Y, settings)
        stored = self._read(path)
        if stored is not None and stored.dtype.kind == "U" and not stored.ndim:
            with suppress(ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
                known = NoiseRates.from_dict(json.loads(str(stored)))
                if known.noise.n_labels == Y.shape[1]:
                    return known
        with draw_progress() as on_progress:
            on_progress("noise rates", 0, 1)
            rates = estimate_noise(X, Y, noise_type=noise_type, trusted=trusted, random_state=self.seed)
        assert isinstance(rates, NoiseRates)  # no groups are given
        self._write(path, np.array(json.dumps(rates.to_dict())))
        return rates

    def probabilities(self, X: Any, Y: Any) -> NDArray[Any]:
        """Return the out-of-fold probabilities of the noisy labels."""
        import numpy as np

        from ccmn.app.issues import predict_out_of_fold

        path = self._path(X, Y, ("out of fold",))
        stored = self._read(path)
        valid = stored is not None and stored.shape == Y.shape and stored.dtype == np.float64
        if stored is not None and valid and ((stored >= 0) & (stored <= 1)).all():
            return stored
        with draw_progress() as on_progress:
            on_progress("out-of-fold probabilities", 0, 1)
            computed = predict_out_of_fold(X, Y, self.seed)
        self._write(path, computed)
        return computed

    def _path(self, X: Any, Y: Any, settings: tuple[Any, ...]) -> Path | None:
        """Return the file of a result, by its content."""
        if self._folder is None:
            return None
        from ccmn._files import fingerprint
        from ccmn._version import __version__

        names = [str(name) for name in getattr(Y, "columns", ())]
        return self._folder / f"{fingerprint(X, Y, names, settings, self.seed, __version__)}.npy"

    def _read(self, path: Path | None) -> NDArray[Any] | None:
        """Return a stored array; None if there is none or if it is damaged."""
        import numpy as np

        if path is None or not path.is_file():
            return None
        try:
            return np.array(np.load(path, mmap_mode="r", allow_pickle=False))  # never larger than the file
        except Exception:  # damaged content can make the parser fail in any way
            return None

    def _write(self, path: Path | None, result: NDArray[Any]) -> None:
        """Store an array atomically, then remove the oldest results beyond the size limit."""
        import numpy as np

        from ccmn._files import atomic_write

        if path is None:
            return
        with atomic_write(path) as stream:
            np.save(stream, result, allow_pickle=False)
        total = 0
        for file, status in sorted(_stored_files(path.parent), key=lambda entry: entry[1].st_mtime, reverse=True):
            total += status.st_size
            if total > MAX_CACHE_BYTES and file != path:
                file.unlink(missing_ok=True)


def _stored_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files of a cache with their properties; other files in the folder belong to the user."""
    for file in folder.iterdir():
        if re.fullmatch(r"[0-9a-f]{16}\.npy", file.name):
            with suppress(OSError):  # deleted by another process
                yield file, file.lstat()


def write_report(report: Report, path: Path) -> None:
    """Write a report as an HTML page."""
    from ccmn.app.report.html import report_page

    write_text(path, report_page(report))


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    from ccmn._files import atomic_write

    with atomic_write(path) as stream:
        stream.write(text.encode(errors="backslashreplace"))  # names of files may not be UTF-8
