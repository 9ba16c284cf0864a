"""Results in SQLite: what is stored stays, whatever happens to the process."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ccmn.data.files import PathLike
from ccmn.experiments.cells import Cell

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    table_name TEXT NOT NULL, protocol TEXT NOT NULL, dataset TEXT NOT NULL, method TEXT NOT NULL,
    repeat INTEGER NOT NULL, n INTEGER NOT NULL, recipe TEXT NOT NULL,
    outcome TEXT NOT NULL,    -- JSON: values, what was chosen, learning curves; {} for a failure
    error TEXT NOT NULL,
    seconds REAL NOT NULL,    -- of the stack it was part of, shared among its cells
    machine TEXT NOT NULL,    -- JSON: device, versions
    finished REAL NOT NULL    -- seconds since 1970
)
"""
_WAIT = 60.0


@dataclass(frozen=True)
class Result:
    """A cell that was run: what it came to, or why it failed."""

    cell: Cell
    outcome: dict[str, Any] = field(default_factory=dict)
    """``values``, ``chosen`` and ``curves`` as in ``fleet.Outcome``."""
    error: str = ""
    seconds: float = 0.0
    machine: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Did it end in an error?"""
        return bool(self.error)


class ResultStore:
    """A file of results, one row per cell.

    A row is written once and not changed after; the first of two processes that finish the same cell wins, and the
    other's is dropped. Failures alone are replaced, by a later try.

    Parameters
    ----------
    path : path
        Made if it is not there. A file that is something else is refused, not touched.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {self.path.parent} to keep {self.path.name} in")
        self._connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(f"cannot use {self.path} as a store of results: {error}") from None
            raise ValueError(f"{self.path} is not a store of results ({error}); name another file") from None

    def _open(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")  # a power cut, too, loses nothing that was reported
        with self._transaction():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")}
            if version not in (0, _FORMAT) or (version == 0 and tables):
                raise sqlite3.DatabaseError("it holds other tables" if version == 0 else f"its format is {version}")
            self._connection.execute(_SCHEMA)
            self._connection.execute(f"PRAGMA user_version = {_FORMAT}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def append(self, results: Iterable[Result]) -> None:
        """Store results, all or none: the cells of one stack, which were trained together, are done together."""
        rows = [_to_row(result) for result in results]
        marks = ", ".join("?" * len(rows[0])) if rows else ""
        with self._transaction():
            self._connection.executemany(
                f"INSERT INTO results VALUES ({marks}) ON CONFLICT (key) DO UPDATE SET status = excluded.status, "
                "outcome = excluded.outcome, error = excluded.error, seconds = excluded.seconds, "
                "machine = excluded.machine, finished = excluded.finished WHERE results.status = 'failed'",
                rows,
            )

    def missing(self, cells: Sequence[Cell], *, retry_failed: bool = False) -> list[Cell]:
        """Those of the cells that have no result yet; failures count as results unless they are to be tried again."""
        query = "SELECT key FROM results" + (" WHERE status = 'done'" if retry_failed else "")
        known = {key for (key,) in self._connection.execute(query)}
        return [cell for cell in cells if cell.key not in known]

    def results(self) -> Iterator[Result]:
        """Every result, in an order that does not depend on the order in which they came."""
        rows = self._connection.execute(
            "SELECT table_name, protocol, dataset, method, repeat, n, recipe, outcome, error, seconds, machine "
            "FROM results ORDER BY table_name, protocol, dataset, method, repeat, key"
        )
        for *cell, outcome, error, seconds, machine in rows:
            yield Result(Cell(*cell), json.loads(outcome), error, seconds, json.loads(machine))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _to_row(result: Result) -> tuple[Any, ...]:
    cell = asdict(result.cell)
    return (
        result.cell.key,
        "failed" if result.failed else "done",
        *cell.values(),
        json.dumps(result.outcome),
        result.error,
        result.seconds,
        json.dumps(result.machine),
        time.time(),
    )
