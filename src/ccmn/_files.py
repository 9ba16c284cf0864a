"""Safe file access: checked paths, bounded text reading, atomic writing, fingerprints and checksums.

Input files are untrusted. A small compressed file can unpack to many gigabytes and a header can declare any size.
:func:`unpacked_limit` bounds what a reader may unpack from a file; readers compare declared sizes with it before they
allocate memory.

Files are written under a temporary name, synchronized to disk and renamed. The name of the temporary file follows from
that of the file, so that a process that is killed leaves at most one, which the next writer overwrites.
"""

from __future__ import annotations

import difflib
import errno
import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PathLike = str | os.PathLike[str]

DEFAULT_MAX_UNPACKED_BYTES = 1 << 30
"""A file may always unpack to 1 GiB, whatever its own size."""
MAX_UNPACKED_RATIO = 20
"""A file may unpack to 20 times its own size. Real tables compress to between a half and a tenth."""
MAX_MEMORY_FRACTION = 0.25
"""A file never unpacks to more than this fraction of the memory of the machine (or of its container)."""
BYTES_VARIABLE = "CCMN_MAX_BYTES"
"""Environment variable that replaces all of these limits by a number of bytes."""
MAX_LINE_CHARACTERS = 1 << 27
"""Longer lines of text are rejected: a row of ten million features fits."""


def check_file(path: PathLike) -> Path:
    """Return the path of an existing regular file; folders, pipes and devices are rejected."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no file {path}{_similar_file(path)}") from None
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, an embedded NUL
        raise ValueError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path} is a folder; expected the path of a file")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is a pipe or a device; expected a regular file")
    return path


def _similar_file(path: Path) -> str:
    """Return a question that names a file in the same folder with a similar name; empty if there is none."""
    try:
        names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:  # no permission to list the folder
        names = []
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.75)
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def data_name(path: Path) -> str:
    """Return the name of the data in a file: the file name without its suffixes.

    >>> data_name(Path("folder/tmc2007-500.arff.gz"))
    'tmc2007-500'
    """
    return Path(path.name.removesuffix(".gz")).stem


@contextmanager
def prefix_errors(place: object) -> Iterator[None]:
    """Prefix the message of every ``ValueError`` raised inside with a file name, or a file name and a line.

    >>> with prefix_errors("data.csv, line 7"):
    ...     float("red")
    Traceback (most recent call last):
    ValueError: data.csv, line 7: could not convert string to float: 'red'
    """
    try:
        yield
    except ValueError as error:
        kind = type(error) if isinstance(error, (UnpackedSizeError, ColumnError)) else ValueError
        raise kind(f"{place}: {error}") from None


def unpacked_limit(path: Path) -> int:
    """Return how many bytes the content of a file may take in memory.

    The default is 1 GiB or 20 times the size of the file, whichever is larger, but at most a quarter of the memory.
    The environment variable ``CCMN_MAX_BYTES`` replaces it.
    """
    given = os.environ.get(BYTES_VARIABLE)
    if not given:
        unpacked = max(DEFAULT_MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO * path.stat().st_size)
        return int(min(unpacked, MAX_MEMORY_FRACTION * _memory_bytes()))
    if not given.isdecimal():
        raise ValueError(f"{BYTES_VARIABLE} must be a number of bytes; got {given!r}")
    return int(given)


@cache
def _memory_bytes() -> float:
    """Return the memory of the machine, or of the container if it has less; infinity if it is not known."""
    sizes = []
    with suppress(ValueError, OSError, AttributeError):  # Windows has no sysconf
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # no container, or "max"
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes, default=float("inf"))


class ColumnError(ValueError):
    """A column that cannot have the role that an option gives it."""


class UnpackedSizeError(ValueError):
    """Error for content that would take more memory than allowed."""


def check_unpacked_size(size: int, limit: int) -> None:
    """Reject content that takes more than ``limit`` bytes in memory."""
    if size > limit:
        raise UnpackedSizeError(
            f"the content takes {size} bytes in memory, more than the limit of {limit}. If you trust this file, set "
            f"the environment variable {BYTES_VARIABLE} to a larger number of bytes."
        )


class _BoundedReader(io.RawIOBase):
    """A binary stream that fails once more than a number of bytes has been read from it."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream, self._limit, self._count = stream, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._stream.read(len(buffer))
        self._count += len(block)
        check_unpacked_size(self._count, self._limit)
        buffer[: len(block)] = block
        return len(block)


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Open a UTF-8 text file, decompressed if its name ends in ``.gz``, within the limit of :func:`unpacked_limit`.

    A byte order mark is skipped. Damaged content becomes a ``ValueError`` that names the file.
    """
    try:
        with open(path, "rb") as packed:
            stream: Any = packed
            if path.suffix.lower() == ".gz":
                stream = io.BufferedReader(_BoundedReader(gzip.GzipFile(fileobj=packed), unpacked_limit(path)), 1 << 16)
            with io.TextIOWrapper(stream, encoding="utf-8-sig") as text:
                yield text
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason}). Save the table as CSV UTF-8, convert the file (iconv -f "
            "WINDOWS-1252 -t UTF-8), or check its suffix."
        ) from None
    except UnpackedSizeError as error:
        raise UnpackedSizeError(f"{path}: {error}") from None
    except gzip.BadGzipFile:
        raise ValueError(f"{path} is not compressed with gzip (or is damaged), although its name ends in .gz") from None
    except (EOFError, zlib.error):
        raise ValueError(f"{path} is damaged: its compressed data end too early or are not valid") from None


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, decompressed if its name ends in ``.gz``."""
    with open_text(path) as stream:
        while line := stream.readline(MAX_LINE_CHARACTERS + 1):
            if len(line) > MAX_LINE_CHARACTERS:
                raise ValueError(f"{path} has a line of more than {MAX_LINE_CHARACTERS} characters")
            if "\0" in line:
                raise ValueError(
                    f"{path} contains NUL characters, as UTF-16 text does. Save the table as CSV UTF-8, or convert the "
                    "file (iconv -f UTF-16LE -t UTF-8)."
                )
            yield line


@contextmanager
def atomic_write(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a binary stream whose content replaces ``path`` when the block ends without an error.

    The content is written to a temporary file in the same folder, synchronized to disk and renamed. After a crash, a
    power failure or an error, ``path`` is either the old file or the complete new one. The temporary file is removed
    on errors. An existing file keeps its permissions. Operating system errors, such as a full disk, name ``path``.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist; create it to write {path.name}")
    temporary = path.with_name(f".{path.name}.part")
    descriptor = -1
    try:
        descriptor = _open_locked(temporary)
        with suppress(OSError, AttributeError):  # a new file; Windows
            os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
        with os.fdopen(os.dup(descriptor), "wb") as stream:
            yield stream
        os.fsync(descriptor)
        if fcntl is None:
            os.close(descriptor)  # Windows renames closed files only
        os.replace(temporary, path)
        _synchronize_names(path.parent)
    except BaseException as error:
        if descriptor >= 0:
            temporary.unlink(missing_ok=True)
        named = os.fsdecode(getattr(error, "filename", None) or temporary)
        if isinstance(error, OSError) and error.errno is not None and named == str(temporary):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    finally:
        with suppress(OSError):  # already closed
            os.close(descriptor)


def _open_locked(path: Path) -> int:
    """Open an empty file that no other writer writes or renames until it is closed."""
    while True:
        descriptor, kept = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), False
        try:
            with suppress(OSError, AttributeError):  # a file system without locks; Windows
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):  # another writer has renamed the file in between
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    os.ftruncate(descriptor, 0)
                    kept = True
                    return descriptor
        finally:
            if not kept:
                os.close(descriptor)  # with the lock, for which others may wait


def _synchronize_names(folder: Path) -> None:
    """Write the names in a folder to disk, so that a renamed file survives a power failure."""
    if fcntl is None:  # Windows synchronizes only files
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot synchronize folders
            raise
    finally:
        os.close(descriptor)


@contextmanager
def private_files() -> Iterator[None]:
    """Let the process create files and folders that only the current user can read (0600 and 0700)."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def checksum(content: bytes | Path) -> str:
    """Return the SHA-256 checksum of bytes or of a file, as 64 hexadecimal digits.

    The format of the checksums of model files and of the dataset catalog, and of the label checksum of a review.
    """
    if isinstance(content, Path):
        with content.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    return hashlib.sha256(content).hexdigest()


def fingerprint(*values: Any) -> str:
    """Return 16 hexadecimal digits that identify arrays and other values by content.

    They are keys of stored experiment results, so they must not change: SHA-256 over ``repr((shape, dtype))`` and the
    bytes in C order of every array, the three arrays of a sparse matrix with 64-bit indices, or the ``repr`` of
    another value. ``None`` is skipped.

    >>> import numpy as np
    >>> fingerprint(np.zeros(3), None) == fingerprint(np.zeros(3)) != fingerprint(np.zeros((3, 1)))
    True
    """
    import numpy as np

    digest = hashlib.sha256()
    for value in values:
        if hasattr(value, "indptr"):
            arrays = [value.indptr.astype(np.int64), value.indices.astype(np.int64), value.data]
        elif hasattr(value, "__array__"):
            arrays = [np.asarray(value)]
        else:
            digest.update(b"" if value is None else repr(value).encode())
            continue
        for array in arrays:
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array))  # type: ignore[arg-type]  # a buffer
    return digest.hexdigest()[:16]
