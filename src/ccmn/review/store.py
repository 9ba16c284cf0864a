"""Decisions in SQLite: what was answered stays, whatever happens to the tab or the server."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from ccmn._validation import check_choice
from ccmn.data.files import PathLike

Answer = Literal["yes", "no", "unsure"]
"""Does the label belong to the row?"""

ANSWERS: tuple[Answer, ...] = get_args(Answer)

Stream = Literal["random", "suspicious"]
"""Why a row was put before somebody: by lot, or because labels of it look wrong."""

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);  -- JSON
CREATE TABLE IF NOT EXISTS items (
    position INTEGER PRIMARY KEY, row INTEGER NOT NULL, stream TEXT NOT NULL,
    asked TEXT NOT NULL                -- JSON: numbers of the labels, in the order in which they are shown
);
CREATE TABLE IF NOT EXISTS sample (    -- what was drawn by lot, entry by entry
    row INTEGER, label INTEGER, given INTEGER,   -- 0, 1 or null: not observed
    PRIMARY KEY (row, label)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (           -- everything that was ever said, also what was taken back
    id INTEGER PRIMARY KEY AUTOINCREMENT, action INTEGER NOT NULL,
    position INTEGER NOT NULL, row INTEGER NOT NULL, label INTEGER NOT NULL,
    answer TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0, at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS decisions_by_entry ON decisions (row, label);
CREATE INDEX IF NOT EXISTS decisions_by_action ON decisions (action);
CREATE TABLE IF NOT EXISTS answers (             -- what holds now
    row INTEGER, label INTEGER, answer TEXT NOT NULL, PRIMARY KEY (row, label)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tallies (             -- kept up to date by every transaction: a page must not count anew
    label INTEGER, given INTEGER, answer TEXT, times INTEGER NOT NULL, PRIMARY KEY (label, given, answer)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID;
"""
_COMPLETE = """
SELECT row FROM sample LEFT JOIN answers USING (row, label) GROUP BY row HAVING COUNT(answer) = COUNT(*)
"""
TOTALS = ("rows", "answers", "drawn", "counted")
"""Numbers of rows with an answer, of answers, of rows drawn by lot, and of rows that count for rates."""
_WAIT = 60.0


class Item(NamedTuple):
    """A place in the queue: a row, why it is there, and the labels that are asked about."""

    position: int
    row: int
    stream: Stream
    asked: tuple[int, ...]


class Entry(NamedTuple):
    """What holds for one label of one row."""

    row: int
    label: int
    answer: Answer


class Tally(NamedTuple):
    """How often a label that was given so was answered so, on the rows that count."""

    label: int
    given: int
    answer: Answer
    times: int


class Undone(NamedTuple):
    """What was taken back: where, and the labels it was about."""

    position: int
    labels: tuple[int, ...]


class DecisionStore:
    """A file of decisions. Every method is one transaction; threads, tabs and processes may share it.

    Parameters
    ----------
    path : path
        Made if it is not there. A file that is something else is refused, not touched.
    facts : mapping
        What the decisions are about (JSON-safe); a file that holds decisions about something else is refused.
    """

    def __init__(self, path: PathLike, facts: Mapping[str, Any]) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {self.path.parent} to keep {self.path.name} in")
        self._lock = threading.RLock()
        # The server's threads take turns by the lock.
        self._connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(f"cannot keep decisions in {self.path}: {error}") from None
            raise ValueError(f"{self.path} is not a file of decisions ({error}); name another folder") from None
        try:
            self._check_facts(facts)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")  # a power cut, too, loses nothing that was answered
        with self._transaction() as run:
            (version,) = run("PRAGMA user_version").fetchone()
            tables = run("SELECT name FROM sqlite_master").fetchall()
            if version not in (0, _FORMAT) or (version == 0 and tables):
                raise sqlite3.DatabaseError("it holds other tables" if version == 0 else f"its format is {version}")
            for statement in _SCHEMA.split(";"):
                run(statement)
            run(f"PRAGMA user_version = {_FORMAT}")

    def _check_facts(self, facts: Mapping[str, Any]) -> None:
        with self._transaction() as run:
            for name, value in facts.items():
                run("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, json.dumps(value)))
                (known,) = run("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
                if known != json.dumps(value):
                    raise ValueError(
                        f"the decisions in {self.path} are about other data: {name} is {json.loads(known)!r} there and "
                        f"{value!r} here; name another folder with --out, or review the same data again"
                    )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Run statements, all or none of them, while nobody else writes."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    # -- facts

    def fact(self, name: str) -> Any:
        """Something kept beside the decisions; None where it is not known."""
        found = self._query("SELECT value FROM facts WHERE name = ?", (name,))
        return json.loads(found[0][0]) if found else None

    def keep_fact(self, name: str, value: Any) -> None:
        """Keep something JSON-safe beside the decisions."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    # -- the queue

    def item(self, position: int) -> Item | None:
        """A place in the queue."""
        found = self._query("SELECT position, row, stream, asked FROM items WHERE position = ?", (position,))
        return _item(found[0]) if found else None

    def length(self) -> int:
        """How many places the queue has so far."""
        return int(self._query("SELECT COALESCE(MAX(position) + 1, 0) FROM items")[0][0])

    def drawn(self) -> int:
        """How many rows were drawn by lot so far."""
        return self.progress()["drawn"]

    def queued_rows(self) -> set[int]:
        """The rows that stand in the queue."""
        return {row for (row,) in self._query("SELECT DISTINCT row FROM items")}

    def append(self, item: Item, given: Sequence[int | None]) -> None:
        """Put a row at the end of the queue, with the labels given for what is asked; nothing if the place is taken."""
        with self._transaction() as run, _counting(run, item.row):
            added = run("INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?)", (*item[:3], json.dumps(item.asked)))
            if added.rowcount and item.stream == "random":
                for label, value in zip(item.asked, given):
                    run("INSERT OR IGNORE INTO sample VALUES (?, ?, ?)", (item.row, label, value))

    # -- decisions

    def answer(self, item: Item, answers: Mapping[int, Answer], *, open_only: bool = False) -> None:
        """Keep answers about labels of a row, as one action; ``open_only``: those without an answer, no others."""
        for value in answers.values():
            check_choice(value, "an answer", ANSWERS)
        with self._transaction() as run, _counting(run, item.row):
            (action,) = run("SELECT COALESCE(MAX(action), 0) + 1 FROM decisions").fetchone()
            held = dict(run("SELECT label, answer FROM answers WHERE row = ?", (item.row,)).fetchall())
            for label, value in answers.items():
                if held.get(label) == value or (open_only and label in held):
                    continue
                run(
                    "INSERT INTO decisions (action, position, row, label, answer, at) VALUES (?, ?, ?, ?, ?, ?)",
                    (action, item.position, item.row, label, value, time.time()),
                )
                run("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (item.row, label, value))

    def undo(self) -> Undone | None:
        """Take back the latest action that stands: what held before it holds again. None: there is none."""
        with self._transaction() as run:
            (action,) = run("SELECT MAX(action) FROM decisions WHERE NOT undone").fetchone()
            if action is None:
                return None
            parts = run("SELECT position, row, label FROM decisions WHERE action = ?", (action,)).fetchall()
            run("UPDATE decisions SET undone = 1 WHERE action = ?", (action,))
            with _counting(run, parts[0][1]):  # an action is about one row
                for _, row, label in parts:
                    _restore(run, row, label)
            return Undone(parts[0][0], tuple(label for _, _, label in parts))

    def can_undo(self) -> bool:
        """Is there an action to take back?"""
        return bool(self._query("SELECT 1 FROM decisions WHERE NOT undone LIMIT 1"))

    # -- what they come to

    def answers_of(self, row: int) -> dict[int, Answer]:
        """What holds for the labels of a row."""
        return dict(self._query("SELECT label, answer FROM answers WHERE row = ?", (row,)))

    def entries(self) -> list[Entry]:
        """Everything that holds, by row and label."""
        return [Entry(*found) for found in self._query("SELECT row, label, answer FROM answers ORDER BY row, label")]

    def sampled_rows(self) -> list[int]:
        """The rows that count for rates: drawn by lot, and every label asked about has an answer."""
        return [row for (row,) in self._query(_COMPLETE)]

    def sampled_entries(self) -> list[Entry]:
        """What was asked and holds on the rows that count for rates."""
        query = f"SELECT row, label, answer FROM sample JOIN answers USING (row, label) WHERE row IN ({_COMPLETE})"
        return [Entry(*found) for found in self._query(f"{query} ORDER BY row, label")]

    def tallies(self) -> list[Tally]:
        """Given and answered, counted on the rows that count for rates; what was not observed is left out."""
        return [Tally(*found) for found in self._query("SELECT label, given, answer, times FROM tallies WHERE times")]

    def progress(self) -> dict[str, int]:
        """The totals."""
        return {**dict.fromkeys(TOTALS, 0), **dict(self._query("SELECT name, times FROM totals"))}

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> DecisionStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _item(found: tuple[int, int, Stream, str]) -> Item:
    position, row, stream, asked = found
    return Item(position, row, stream, tuple(json.loads(asked)))


@contextmanager
def _counting(run: Any, row: int) -> Iterator[None]:
    """Keep tallies and totals up to date with what happens to a row."""
    change = _standing(run, row)
    yield
    after = _standing(run, row)
    after.subtract(change)
    for key, times in after.items():
        if times and isinstance(key, str):
            run(
                "INSERT INTO totals VALUES (?, ?) ON CONFLICT DO UPDATE SET times = times + excluded.times",
                (key, times),
            )
        elif times:
            run(
                "INSERT INTO tallies VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET times = times + excluded.times",
                (*key, times),
            )


def _standing(run: Any, row: int) -> Counter[str | tuple[int, int, str]]:
    """What a row adds to the totals, and to the tallies if it counts for rates."""
    answers = dict(run("SELECT label, answer FROM answers WHERE row = ?", (row,)).fetchall())
    sample = run("SELECT label, given FROM sample WHERE row = ?", (row,)).fetchall()
    complete = bool(sample) and all(label in answers for label, _ in sample)
    totals = zip(TOTALS, (bool(answers), len(answers), bool(sample), complete))
    found: Counter[str | tuple[int, int, str]] = Counter(dict(totals))
    if complete:
        found.update((label, given, answers[label]) for label, given in sample if given is not None)
    return found


def _restore(run: Any, row: int, label: int) -> None:
    """What was said before the latest decision, which was taken back, holds again."""
    before = run(
        "SELECT answer FROM decisions WHERE row = ? AND label = ? AND NOT undone ORDER BY id DESC LIMIT 1", (row, label)
    ).fetchone()
    run("DELETE FROM answers WHERE row = ? AND label = ?", (row, label))
    if before is not None:
        run("INSERT INTO answers VALUES (?, ?, ?)", (row, label, *before))
