"""Base class of the stores that keep their rows in one SQLite file."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import Self

Execute = Callable[..., sqlite3.Cursor]

LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that writes to the same file."""


class SQLiteStore:
    """SQLite file with a versioned schema, which threads and processes may share.

    Subclasses define the ``kind``, a noun phrase for error messages, and the ``schema``, ``CREATE ... IF NOT EXISTS``
    statements whose ``version`` is kept in the file, and use :meth:`_transaction` and :meth:`_query`. Every error of
    SQLite, at opening or later, becomes a one-line error that names the file: ``OSError`` for failures of the system
    (disk full, no permission, locked), ``ValueError`` for a file that is damaged or is not such a store.

    The file is created if it does not exist. A file with other contents is not modified.
    """

    kind: ClassVar[str]
    schema: ClassVar[str]
    version: ClassVar[int] = 1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder; expected the file of a {self.kind}")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"folder {self.path.parent} does not exist; create it to store {self.path.name}")
        self._lock = threading.RLock()
        with self._errors():
            # The lock serializes the threads, so that they can share the connection.
            self._connection = sqlite3.connect(
                self.path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
            )
        try:
            self._initialize()
        except BaseException:
            self._connection.close()
            raise

    def _initialize(self) -> None:
        """Check that the file is empty or has the schema; create the schema in an empty file."""
        # Check before the change to WAL, which would modify a file with other contents.
        with self._transaction("DEFERRED") as execute:
            (version,) = execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if version not in (0, self.version):
            raise self._not_a_store(f"its format version is {version}; expected {self.version}")
        if (tables or version) and not (version and tables & {*re.findall(r"TABLE IF NOT EXISTS (\w+)", self.schema)}):
            raise self._not_a_store("it contains other tables")
        with self._errors():  # with FULL, committed rows survive a power failure
            self._connection.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE;"
                f"{self.schema}; PRAGMA user_version = {self.version}; COMMIT;"
            )

    @contextmanager
    def _transaction(self, mode: str = "IMMEDIATE") -> Iterator[Execute]:
        """Run statements in one transaction: all of them are stored, or none."""
        with self._lock, self._errors():
            self._connection.execute(f"BEGIN {mode}")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back already after some errors, for example if the disk is full.
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise

    def _query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock, self._errors():
            return self._connection.execute(statement, values).fetchall()

    def _from_json(self, text: Any) -> Any:
        try:
            return json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise self._not_a_store(str(error)) from None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of SQLite as one-line errors that name the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            # An unexpected schema and undecodable text are also operational errors, like failures of the system.
            if str(error).startswith(("no such ", "table ", "Could not decode", "malformed")):
                raise self._not_a_store(str(error)) from None
            raise OSError(f"cannot use the {self.kind} {self.path}: {error}") from None
        except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
            raise  # a defect of the caller, such as a closed store or an unsupported type
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite cites damaged text in its messages
            raise self._not_a_store(str(error)) from None

    def _not_a_store(self, reason: str) -> ValueError:
        """Return the error for a file that cannot be read as a store."""
        reason = " ".join(reason.split())  # SQLite cites statements of several lines
        return ValueError(f"{self.path} is not a {self.kind} or is damaged ({reason}); use another path")

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._errors():
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
