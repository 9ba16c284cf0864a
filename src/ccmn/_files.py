"""Safe file access: checked paths, bounded text reading, atomic writing, fingerprints and checksums.

Input files are untrusted. A small compressed file can unpack to many gigabytes and a header can declare any size.
:func:`unpacked_limit` bounds what a reader may unpack from a file; readers compare declared sizes with it before they
allocate memory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse

PathLike = str | os.PathLike[str]

DEFAULT_MAX_UNPACKED_BYTES = 1 << 30
"""A file may always unpack to 1 GiB, whatever its own size."""
MAX_UNPACKED_RATIO = 20
"""A file may unpack to 20 times its own size. Real tables compress to between a half and a tenth."""
UNPACKED_VARIABLE = "CCMN_MAX_UNPACKED_BYTES"
"""Environment variable that replaces both limits by a number of bytes."""
MAX_LINE_CHARACTERS = 1 << 27
"""Longer lines of text are rejected: a row of ten million features fits."""
_HASH_BLOCK_BYTES = 1 << 24
"""Arrays are hashed in blocks of 16 MiB so that no copy of a non-contiguous array is made."""


def check_file(path: PathLike) -> Path:
    """Return the path of an existing regular file; folders, pipes and devices are rejected."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, an embedded NUL
        raise ValueError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path} is a folder; expected the path of a file")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is a pipe or a device; expected a regular file")
    return path


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
        raise ValueError(f"{place}: {error}") from None


def unpacked_limit(path: Path) -> int:
    """Return how many bytes the content of a file may take in memory.

    The default is 1 GiB or 20 times the size of the file, whichever is larger. The environment variable
    ``CCMN_MAX_UNPACKED_BYTES`` replaces it.
    """
    given = os.environ.get(UNPACKED_VARIABLE)
    if not given:
        return max(DEFAULT_MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO * path.stat().st_size)
    if not given.isdecimal():
        raise ValueError(f"{UNPACKED_VARIABLE} must be a number of bytes; got {given!r}")
    return int(given)


class UnpackedSizeError(ValueError):
    """Error for content that would take more memory than allowed."""


def check_unpacked_size(size: int, limit: int) -> None:
    """Reject content that takes more than ``limit`` bytes in memory."""
    if size > limit:
        raise UnpackedSizeError(
            f"the content takes {size} bytes in memory, more than the limit of {limit}. If you trust this file, set "
            f"the environment variable {UNPACKED_VARIABLE} to a larger number of bytes."
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
        raise ValueError(f"{path} is not UTF-8 text ({error.reason}); convert it, or check its suffix") from None
    except UnpackedSizeError as error:
        raise ValueError(f"{path}: {error}") from None
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
            yield line


@contextmanager
def atomic_write(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a binary stream whose content replaces ``path`` when the block ends without an error.

    The content is written to a temporary file in the same folder, synchronized to disk and renamed. After a crash or
    an error ``path`` is either the old file or the complete new one, and the temporary file is removed on errors.
    Operating system errors, such as a full disk, name ``path``.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist; create it to write {path.name}")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as stream:
            yield stream
        with open(temporary, "rb+") as stream:  # text wrappers around the stream have closed it
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


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

    The format of the dataset keys in stores of experiment results, which must not change: SHA-256 over
    ``repr((shape, dtype))`` and the bytes in C order of every array, cut to 16 digits. Sparse matrices count as their
    three arrays, with 64-bit indices, so that equal matrices agree. ``None`` is skipped. Anything that is not an
    array contributes its ``repr``.

    >>> fingerprint(np.zeros(3), None) == fingerprint(np.zeros(3)) != fingerprint(np.zeros((3, 1)))
    True
    """
    digest = hashlib.sha256()
    for value in values:
        if value is None:
            continue
        if not (is_sparse(value) or hasattr(value, "__array__")):
            digest.update(repr(value).encode())
            continue
        for array in _arrays(value):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            blocks = 1 + array.nbytes // _HASH_BLOCK_BYTES
            for block in np.array_split(array, min(blocks, len(array))) if array.size and array.ndim else [array]:
                digest.update(block.tobytes())
    return digest.hexdigest()[:16]


def _arrays(value: Any) -> list[NDArray[Any]]:
    """Return the arrays that a matrix consists of."""
    if not is_sparse(value):
        return [np.asarray(value)]
    return [value.indptr.astype(np.int64), value.indices.astype(np.int64), value.data]
