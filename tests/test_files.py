"""Atomic writing, fingerprints, and limits on what input files unpack to."""

import errno
import gzip
import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse

from ccmn._files import (
    atomic_write,
    check_file,
    fingerprint,
    private_files,
    text_lines,
    unpacked_limit,
)


def test_atomic_write_replaces_a_file(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes(b"old")
    with atomic_write(path) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with atomic_write(str(path)) as stream, io.TextIOWrapper(stream, encoding="utf-8") as text:
        text.write("text")
    assert path.read_bytes() == b"text"
    assert os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_failed_write_keeps_the_old_file(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_bytes(b"old")

    def write():
        with atomic_write(path) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_write_errors_name_the_target(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist; create it to write file\.txt"):
        atomic_write(tmp_path / "nowhere" / "file.txt").__enter__()
    with pytest.raises(OSError, match=r"No space left on device: '.*/file\.txt'"), atomic_write(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    path.mkdir()
    with pytest.raises(IsADirectoryError, match=r"'.*/file\.txt'"), atomic_write(path) as stream:
        stream.write(b"new")
    other = FileNotFoundError(errno.ENOENT, "No such file", "other.txt")
    with pytest.raises(FileNotFoundError, match=r"other\.txt"), atomic_write(tmp_path / "new.txt"):
        raise other
    assert os.listdir(tmp_path) == ["file.txt"]


def test_several_writers_wait_for_each_other(tmp_path):
    """A file is always one of the written files, also if a stream is closed before the block ends."""
    path, contents = tmp_path / "file.txt", ["x" * size for size in (10, 100_000)]

    def write(number):
        with atomic_write(path) as stream, io.TextIOWrapper(stream, encoding="utf-8") as text:
            text.write(contents[number % 2])

    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(write, range(100)):
            assert path.read_text() in contents
    assert os.listdir(tmp_path) == ["file.txt"]


def test_permissions(tmp_path):
    path = tmp_path / "file.txt"

    def mode(path):
        return path.stat().st_mode & 0o777

    before = os.umask(0o022)
    try:
        with atomic_write(path):
            pass
        assert mode(path) == 0o644
        path.chmod(0o640)
        with atomic_write(path), private_files():
            pass
        assert mode(path) == 0o640
        with private_files(), atomic_write(tmp_path / "private"):
            (tmp_path / "folder").mkdir()
        assert mode(tmp_path / "private") == 0o600
        assert mode(tmp_path / "folder") == 0o700
    finally:
        os.umask(before)


def stored_key(*matrices):
    """Compute the key of stored experiment results step by step."""
    digest = hashlib.sha256()
    for M in matrices:
        sparse = scipy.sparse.issparse(M)
        for array in [M.indptr.astype(np.int64), M.indices.astype(np.int64), M.data] if sparse else [M]:
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def test_fingerprint_keeps_the_keys_of_stored_results():
    X = scipy.sparse.random(20, 5, 0.3, format="csr", random_state=0)
    Y = np.asfortranarray(np.arange(60.0).reshape(20, 3))[::2]
    assert fingerprint(X, Y, None) == stored_key(X, Y)
    assert fingerprint(np.arange(3), np.float32(1.5), np.zeros((0, 4))) == stored_key(
        np.arange(3), np.array(1.5, np.float32), np.zeros((0, 4))
    )
    assert fingerprint(np.arange(4, dtype=np.float32).reshape(2, 2)) == "1b2e9fb981a1dd06"


def test_fingerprint_distinguishes_values():
    X = np.zeros((2, 3))
    values = [(X,), (X.T,), (X.astype(np.float32),), (X, "a"), (X, "b"), (X, 1), (X, 1.0), (X, X)]
    assert len({fingerprint(*v) for v in values}) == len(values)
    assert fingerprint(scipy.sparse.csr_array(X)) == fingerprint(scipy.sparse.csr_matrix(X))


def test_only_regular_files_are_accepted(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    for path in (tmp_path / "pipe.csv", "/dev/zero", "/dev/null"):
        with pytest.raises(ValueError, match="is a pipe or a device; expected a regular file"):
            check_file(path)
    with pytest.raises(ValueError, match="is a folder"):
        check_file(tmp_path)
    for path in (tmp_path / "loop.csv", "x" * 5000, "a\0b"):
        with pytest.raises(ValueError, match="cannot be opened"):
            check_file(path)
    for path in (tmp_path / "no.csv", "/dev/null/no.csv"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            check_file(path)


def test_limit_of_unpacked_bytes(tmp_path, monkeypatch):
    path = tmp_path / "file.txt.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000))
    monkeypatch.setattr("ccmn._files._memory_bytes", lambda: 1 << 40)
    assert unpacked_limit(path) == 1 << 30
    monkeypatch.setattr("ccmn._files._memory_bytes", lambda: 1000)
    assert unpacked_limit(path) == 250
    monkeypatch.setattr("ccmn._files._memory_bytes", lambda: float("inf"))
    monkeypatch.setattr("ccmn._files.DEFAULT_MAX_UNPACKED_BYTES", 10)
    assert unpacked_limit(path) == 20 * path.stat().st_size
    with pytest.raises(ValueError, match=r"file\.txt\.gz: .* more than the limit of .*CCMN_MAX_BYTES"):
        list(text_lines(path))
    monkeypatch.setenv("CCMN_MAX_BYTES", "5000")
    assert len(list(text_lines(path))) == 1000
    monkeypatch.setenv("CCMN_MAX_BYTES", "much")
    with pytest.raises(ValueError, match="must be a number of bytes; got 'much'"):
        list(text_lines(path))


def test_limit_of_line_length(tmp_path, monkeypatch):
    monkeypatch.setattr("ccmn._files.MAX_LINE_CHARACTERS", 10)
    path = tmp_path / "file.txt"
    path.write_text("123456789\n1234567890\n")
    with pytest.raises(ValueError, match=r"file\.txt has a line of more than 10 characters"):
        list(text_lines(path))


def test_a_file_with_a_similar_name_is_suggested(tmp_path):
    (tmp_path / "tickets.csv").write_text("")
    with pytest.raises(FileNotFoundError, match=r"did you mean .*tickets\.csv\?"):
        check_file(tmp_path / "ticket.csv")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*other\.npz$"):
        check_file(tmp_path / "other.npz")
