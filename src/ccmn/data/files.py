"""Files in and out: text lines that never fail without naming the file, and writing that is whole or not at all."""

from __future__ import annotations

import gzip
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PathLike = str | os.PathLike[str]


def check_file(path: PathLike) -> Path:
    """The path of a file that is there."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the path of a file")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    return path


def data_name(path: Path) -> str:
    """What data read from a file are called: the file's name without its suffixes.

    >>> data_name(Path("folder/tmc2007-500.arff.gz"))
    'tmc2007-500'
    """
    return Path(path.name.removesuffix(".gz")).stem


@contextmanager
def blame(place: object) -> Iterator[None]:
    """Put the file (and the line) in front of what a check inside has to say.

    >>> with blame("data.csv, line 7"):
    ...     float("red")
    Traceback (most recent call last):
    ValueError: data.csv, line 7: could not convert string to float: 'red'
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, compressed where its name ends in .gz."""
    opener: Callable[..., IO[str]] = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as stream:
            yield from stream
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason}); convert it, or check its suffix") from None
    except gzip.BadGzipFile:
        raise ValueError(f"{path} is not compressed with gzip (or is damaged), though its name ends in .gz") from None
    except (EOFError, zlib.error):
        raise ValueError(f"{path} is damaged: its compressed data end too early or are not valid") from None


@contextmanager
def whole_file(path: PathLike) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name when it is complete, and not at all when writing fails.

    It is written under a temporary name in the same folder, so that the last step is a renaming.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as stream:
            yield stream
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
