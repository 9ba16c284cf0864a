"""Safe file access: checked paths, bounded text reading, atomic writing, fingerprints and checksums.

Input files are untrusted. A small compressed file can unpack to many gigabytes and a header can declare any size.
:func:`unpacked_limit` bounds what a reader may unpack from a file; readers compare declared sizes with it before they
allocate memory.

Files and folders are written under a temporary name, synchronized to disk and renamed. The writer locks the temporary
file, so that the next writer of the same file can delete what a killed process has left.
"""

from __future__ import annotations

import ctypes
import difflib
import errno
import gzip
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # not imported at run time: commands check paths before they import large libraries
    from numpy.typing import NDArray

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows, where a file in use cannot be deleted
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
_HASH_BLOCK_BYTES = 1 << 24
"""Arrays are hashed in blocks of 16 MiB so that no copy of a non-contiguous array is made."""


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
        kind = next((kept for kept in (UnpackedSizeError, ColumnError) if isinstance(error, kept)), ValueError)
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
            yield line


@contextmanager
def atomic_write(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a binary stream whose content replaces ``path`` when the block ends without an error.

    The content is written to a temporary file in the same folder, synchronized to disk and renamed. After a crash, a
    power failure or an error, ``path`` is either the old file or the complete new one. The temporary file is removed
    on errors; if the process is killed, the next write of ``path`` removes it. An existing file keeps its permissions.
    Operating system errors, such as a full disk, name ``path``.
    """
    path = Path(path)
    with _temporary(path) as (temporary, descriptor), _errors_name(path, temporary):
        with suppress(OSError, AttributeError):  # a new file; Windows
            os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
        with os.fdopen(os.dup(descriptor), "wb") as stream:
            yield stream
        os.fsync(descriptor)
        if fcntl is None:
            os.close(descriptor)  # Windows renames closed files only
        os.replace(temporary, path)
        _sync_folder(path.parent)


def write_folder(path: PathLike, contents: Mapping[str, bytes]) -> None:
    """Write a folder of files so that a reader finds the old folder or the complete new one, also after a crash.

    The files are written to a temporary folder, which is synchronized to disk and renamed. An existing folder is
    exchanged with it in one operation. A folder with other files is rejected.
    """
    path = Path(path)
    if path.exists() and any(child.name not in contents for child in path.iterdir()):
        raise ValueError(f"folder {path} contains files that are not part of a model; choose another name")
    with _temporary(path, folder=True) as (temporary, _), _errors_name(path, temporary):
        for name, content in contents.items():
            with open(temporary / name, "xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        _sync_folder(temporary)
        try:
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.rename(temporary, path)
        except OSError as error:  # another writer may have created the folder meanwhile
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            _exchange(temporary, path)
        _sync_folder(path.parent)


@contextmanager
def private_files() -> Iterator[None]:
    """Let the process create files and folders that only the current user can read (0600 and 0700)."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _temporary(path: Path, folder: bool = False) -> Iterator[tuple[Path, int]]:
    """Create a locked temporary file or folder next to ``path``; yield it and its descriptor, and delete it at the end.

    Temporary files of killed processes, which are not locked, are deleted first.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist; create it to write {path.name}")
    remove_stale(path)
    with _errors_name(path):
        temporary, descriptor = _create_temporary(path, folder)
    try:
        yield temporary, descriptor
    finally:
        with suppress(OSError):  # already closed
            os.close(descriptor)
        _delete(temporary)


def _create_temporary(path: Path, folder: bool) -> tuple[Path, int]:
    """Create a file or folder with a temporary name and lock it; another process may delete it before it is locked."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        if folder:
            temporary.mkdir()
            try:
                descriptor = -1 if fcntl is None else os.open(temporary, os.O_RDONLY)
            except FileNotFoundError:  # deleted by another writer
                continue
        else:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            descriptor = os.open(temporary, flags, 0o666)
        deleting = False
        try:
            _lock(descriptor)
        except BlockingIOError:  # another writer takes it for stale
            deleting = True
        except OSError:  # a file system without locks
            pass
        if temporary.exists() and not deleting:
            return temporary, descriptor
        os.close(descriptor)


def remove_stale(path: Path) -> None:
    """Delete temporary files and folders of ``path`` whose writer was killed; a living writer has locked them."""
    pattern = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{8}")
    names = os.listdir(path.parent) if path.parent.is_dir() else []
    for temporary in (path.with_name(name) for name in names if pattern.fullmatch(name)):
        with suppress(OSError):  # in use, deleted by another process, or not permitted
            descriptor = os.open(temporary, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
            try:
                _lock(descriptor)
                _delete(temporary)
            finally:
                os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock an open file or folder until it is closed; raise ``OSError`` if it is already locked."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _delete(path: Path) -> None:
    """Delete a file or folder if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Synchronize the names in a folder to disk, so that a renamed file survives a power failure."""
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
def _errors_name(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Name ``path`` in errors of the operating system that name no file, a temporary one, or a file inside it."""
    try:
        yield
    except OSError as error:
        named = None if error.filename is None else Path(os.fsdecode(error.filename))
        own = named is None or temporary is None or named == temporary or named.parent == temporary
        if error.errno is None or not own:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def _exchange(first: Path, second: Path) -> None:
    """Exchange two folders in one operation of the operating system: ``renameat2`` (Linux), ``renamex_np`` (macOS)."""
    library: Any = None if sys.platform == "win32" else ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(-100, names[0], -100, names[1], 2)  # AT_FDCWD, RENAME_EXCHANGE
    elif hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, 2)  # RENAME_SWAP
    else:
        failed = True
    if failed:
        number = ctypes.get_errno() or errno.ENOTSUP
        raise OSError(number, "An existing folder cannot be replaced atomically here; delete it, or save to a file")


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

    >>> import numpy as np
    >>> fingerprint(np.zeros(3), None) == fingerprint(np.zeros(3)) != fingerprint(np.zeros((3, 1)))
    True
    """
    import numpy as np

    from ccmn._containers import is_sparse

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
    import numpy as np

    from ccmn._containers import is_sparse

    if not is_sparse(value):
        return [np.asarray(value)]
    return [value.indptr.astype(np.int64), value.indices.astype(np.int64), value.data]
