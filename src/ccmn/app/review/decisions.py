"""SQLite store of a review: queue, random sample and answers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from ccmn._files import PathLike
from ccmn._sqlite import Execute, SQLiteStore
from ccmn._validation import check_choice

Answer = Literal["yes", "no", "unsure"]
"""Answer to the question whether a label applies to a row."""

ANSWERS: tuple[Answer, ...] = get_args(Answer)

Stream = Literal["suspicious", "random", "selected"]
"""List that a row was chosen from: the suspicious rows, the random sample, or the list of rows of the reviewer."""

BULK_POSITION = -1
"""Position of suggestions that were accepted for many rows at once, which nobody looked at one by one."""

TOTALS = ("rows", "answers", "drawn", "counted")
"""Numbers of rows with an answer, of answers, of rows in the random sample, and of complete rows in that sample."""

_COMPLETE_ROWS = """
SELECT row FROM sample LEFT JOIN (SELECT row, label, answer FROM answers WHERE position >= 0) USING (row, label)
GROUP BY row HAVING COUNT(answer) = COUNT(*)
"""

_HISTORY = """
SELECT row, label, COALESCE(name, ''), answer, position FROM decisions LEFT JOIN reviewers ON decision = id
WHERE NOT undone
"""
_ROW_HISTORY = f"{_HISTORY} AND row = ? ORDER BY id"
_LATEST_ACTION = """
SELECT action FROM decisions LEFT JOIN reviewers ON decision = id WHERE NOT undone AND COALESCE(name, '') = ?
ORDER BY action DESC LIMIT 1
"""


class QueueItem(NamedTuple):
    """Position in the queue: a row, the reason why it is shown, and the labels in question."""

    position: int
    row: int
    stream: Stream
    asked: tuple[int, ...]


class LabelAnswer(NamedTuple):
    """Current answer for one label of one row, and the list that the row was chosen from."""

    row: int
    label: int
    answer: Answer
    chosen: str = ""
    """A value of ``Stream``, or "bulk" for a suggestion that was accepted for many rows at once."""


class AnswerCount(NamedTuple):
    """Number of complete rows of the random sample with this given label and this answer."""

    label: int
    given: int
    answer: Answer
    n_rows: int


class ReviewerAnswer(NamedTuple):
    """Latest answer of one reviewer for one label of one row."""

    row: int
    label: int
    reviewer: str
    answer: Answer


class Note(NamedTuple):
    """Remark of a reviewer about a row."""

    row: int
    reviewer: str
    text: str


class UndoneAction(NamedTuple):
    """Position in the queue and labels of an action that was undone."""

    position: int
    labels: tuple[int, ...]


class DecisionStore(SQLiteStore):
    """SQLite file with the answers of a review.

    Each method is one transaction. Threads, browser tabs and processes may share the file.

    Parameters
    ----------
    path : path
        File of the store. It is created if it does not exist. A file with other contents is not modified.
    metadata : mapping of str to JSON value
        Description of the reviewed data. A file with the answers for other data is rejected.

    Raises
    ------
    OSError
        If the file cannot be opened, read or written.
    ValueError
        If the file is damaged, is not a store of decisions, or contains the answers for other data.
    """

    kind: ClassVar[str] = "store of review decisions"
    schema: ClassVar[str] = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);  -- metadata as JSON
CREATE TABLE IF NOT EXISTS items (
    position INTEGER PRIMARY KEY, row INTEGER NOT NULL, stream TEXT NOT NULL,
    asked TEXT NOT NULL                -- JSON list of label numbers, in display order
);
CREATE TABLE IF NOT EXISTS sample (    -- labels in question on the rows of the random sample
    row INTEGER, label INTEGER, given INTEGER,   -- 0, 1 or null (not observed)
    PRIMARY KEY (row, label)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (           -- history of all answers, including undone ones
    id INTEGER PRIMARY KEY AUTOINCREMENT, action INTEGER NOT NULL,
    position INTEGER NOT NULL, row INTEGER NOT NULL, label INTEGER NOT NULL,
    answer TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0, at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS decisions_by_entry ON decisions (row, label);
CREATE INDEX IF NOT EXISTS decisions_by_action ON decisions (action);
CREATE TABLE IF NOT EXISTS answers (             -- current answers
    row INTEGER, label INTEGER, answer TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (row, label)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reviewers (           -- reviewer of a decision; decisions without name have no entry
    decision INTEGER PRIMARY KEY, name TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS notes (
    row INTEGER, reviewer TEXT, note TEXT NOT NULL, PRIMARY KEY (row, reviewer)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tallies (             -- updated by each transaction, so that pages need not count
    label INTEGER, given INTEGER, answer TEXT, times INTEGER NOT NULL, PRIMARY KEY (label, given, answer)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID;
"""

    def __init__(self, path: PathLike, metadata: Mapping[str, Any]) -> None:
        super().__init__(path)
        try:
            self._check_metadata(metadata)
        except BaseException:
            self.close()
            raise

    def _check_metadata(self, metadata: Mapping[str, Any]) -> None:
        with self._transaction() as execute:
            for name, value in metadata.items():
                execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, json.dumps(value)))
                (stored,) = execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
                if stored != json.dumps(value):
                    raise ValueError(
                        f"{self.path} contains decisions about other data: {name} is {self._from_json(stored)!r} in "
                        f"the file and {value!r} in the data; use another folder (--out) or the same data"
                    )

    # -- metadata

    def metadata(self, name: str) -> Any:
        """Return a stored JSON value; None if the name is unknown."""
        rows = self._query("SELECT value FROM facts WHERE name = ?", (name,))
        return self._from_json(rows[0][0]) if rows else None

    def set_metadata(self, name: str, value: Any) -> None:
        """Store a JSON value under a name."""
        with self._transaction() as execute:
            execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    # -- queue

    def item(self, position: int) -> QueueItem | None:
        """Return the item at a position of the queue; None beyond its end."""
        rows = self._query("SELECT position, row, stream, asked FROM items WHERE position = ?", (position,))
        if not rows:
            return None
        _, row, stream, asked = rows[0]
        labels = self._from_json(asked)
        if not isinstance(labels, list):
            raise self._not_a_store(f"the labels at position {position} are not a list")
        return QueueItem(position, row, stream, tuple(labels))

    def position_of(self, row: int, stream: Stream) -> int | None:
        """Return the position of a row in a list; None if it is not in the list."""
        (found,) = self._query("SELECT MAX(position) FROM items WHERE row = ? AND stream = ?", (row, stream))
        return None if found[0] is None else int(found[0])

    def neighbor(self, position: int, stream: Stream, step: int) -> QueueItem | None:
        """Return the item after (``step`` 1) or before (-1) a position in one list; None if there is none."""
        comparison, order = (">", "ASC") if step > 0 else ("<", "DESC")
        query = (
            f"SELECT position FROM items WHERE position {comparison} ? AND stream = ? ORDER BY position {order} LIMIT 1"
        )
        found = self._query(query, (position, stream))
        return self.item(found[0][0]) if found else None

    def length(self) -> int:
        """Return the number of items in the queue."""
        return int(self._query("SELECT COALESCE(MAX(position) + 1, 0) FROM items")[0][0])

    def queued_rows(self) -> set[int]:
        """Return the rows in the queue."""
        return {row for (row,) in self._query("SELECT DISTINCT row FROM items")}

    def append(self, item: QueueItem, given: Sequence[int | None]) -> None:
        """Append an item with the given values of its labels; do nothing if the position is taken."""
        with self._transaction() as execute, _update_counts(execute, item.row):
            added = execute("INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?)", (*item[:3], json.dumps(item.asked)))
            if added.rowcount and item.stream == "random":
                for label, value in zip(item.asked, given):
                    execute("INSERT OR IGNORE INTO sample VALUES (?, ?, ?)", (item.row, label, value))

    # -- answers

    def record(
        self, item: QueueItem, answers: Mapping[int, Answer], *, reviewer: str = "", only_open: bool = False
    ) -> None:
        """Store answers of a reviewer for labels of a row as one action.

        With ``only_open``, labels that have an answer of this reviewer are skipped. The latest answer of all reviewers
        is the current one.
        """
        for value in answers.values():
            check_choice(value, "answer", ANSWERS)
        with self._transaction() as execute, _update_counts(execute, item.row):
            (action,) = execute("SELECT COALESCE(MAX(action), 0) + 1 FROM decisions").fetchone()
            current = dict(execute("SELECT label, answer FROM answers WHERE row = ?", (item.row,)).fetchall())
            own = _own_answers(execute(_ROW_HISTORY, (item.row,)).fetchall(), reviewer)
            for label, value in answers.items():
                if (own.get(label) == value == current.get(label)) or (only_open and label in own):
                    continue
                added = execute(
                    "INSERT INTO decisions (action, position, row, label, answer, at) VALUES (?, ?, ?, ?, ?, ?)",
                    (action, item.position, item.row, label, value, time.time()),
                )
                if reviewer:
                    execute("INSERT INTO reviewers VALUES (?, ?)", (added.lastrowid, reviewer))
                execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (item.row, label, value, item.position))

    def record_many(self, answers: Sequence[tuple[int, int, Answer]], *, reviewer: str = "") -> int:
        """Store answers (row, label, answer) that a reviewer gives at once, as one action; return their number.

        Labels that have an answer are skipped. The answers do not count for rates.
        """
        stored = 0
        with self._transaction() as execute:
            (action,) = execute("SELECT COALESCE(MAX(action), 0) + 1 FROM decisions").fetchone()
            for row, label, value in answers:
                if execute("SELECT 1 FROM answers WHERE row = ? AND label = ?", (row, label)).fetchone():
                    continue
                with _update_counts(execute, row):
                    added = execute(
                        "INSERT INTO decisions (action, position, row, label, answer, at) VALUES (?, ?, ?, ?, ?, ?)",
                        (action, BULK_POSITION, row, label, value, time.time()),
                    )
                    if reviewer:
                        execute("INSERT INTO reviewers VALUES (?, ?)", (added.lastrowid, reviewer))
                    execute("INSERT INTO answers VALUES (?, ?, ?, ?)", (row, label, value, BULK_POSITION))
                stored += 1
        return stored

    def undo(self, reviewer: str = "") -> UndoneAction | None:
        """Undo the latest action of a reviewer and restore the previous answers; return None without an action."""
        with self._transaction() as execute:
            found = execute(_LATEST_ACTION, (reviewer,)).fetchone()
            if found is None:
                return None
            (action,) = found
            parts = execute("SELECT position, row, label FROM decisions WHERE action = ?", (action,)).fetchall()
            execute("UPDATE decisions SET undone = 1 WHERE action = ?", (action,))
            for changed in dict.fromkeys(row for _, row, _ in parts):
                with _update_counts(execute, changed):
                    for _, row, label in parts:
                        if row == changed:
                            _restore_previous(execute, row, label)
            return UndoneAction(parts[0][0], tuple(label for _, _, label in parts))

    def can_undo(self, reviewer: str = "") -> bool:
        """Return whether there is an action of a reviewer to undo."""
        return bool(self._query(_LATEST_ACTION, (reviewer,)))

    def answers(self) -> list[LabelAnswer]:
        """Return all current answers, sorted by row and label."""
        query = """
SELECT answers.row, label, answer, COALESCE(stream, 'bulk') FROM answers LEFT JOIN items USING (position) ORDER BY 1, 2
"""
        return [LabelAnswer(*found) for found in self._query(query)]

    def row_answers(self, row: int, reviewer: str | None = None, *, bulk: bool = True) -> dict[int, Answer]:
        """Return the current answers of a row by label; with ``reviewer``, the latest answers of this reviewer.

        Without ``bulk``, answers for many rows at once are left out.
        """
        least = BULK_POSITION if bulk else 0
        if reviewer is None:
            query = "SELECT label, answer FROM answers WHERE row = ? AND position >= ?"
            return dict(self._query(query, (row, least)))
        history = self._query(_ROW_HISTORY, (row,))
        return _own_answers([entry for entry in history if entry[4] >= least], reviewer)

    def answered_rows(self) -> set[int]:
        """Return the rows with an answer."""
        return {row for (row,) in self._query("SELECT DISTINCT row FROM answers")}

    def reviewer_answers(self) -> list[ReviewerAnswer]:
        """Return the latest answer of each reviewer for each label, sorted by row, label and reviewer."""
        history = self._query(f"{_HISTORY} ORDER BY id")
        latest = {(row, label, name): answer for row, label, name, answer, _ in history}
        return [ReviewerAnswer(*key, answer) for key, answer in sorted(latest.items())]

    # -- notes

    def notes(self, row: int | None = None) -> list[Note]:
        """Return the notes of a row, or of all rows."""
        condition, values = ("", ()) if row is None else ("WHERE row = ?", (row,))
        return [Note(*found) for found in self._query(f"SELECT row, reviewer, note FROM notes {condition}", values)]

    def set_note(self, row: int, reviewer: str, text: str) -> None:
        """Store the note of a reviewer about a row; an empty text deletes it."""
        with self._transaction() as execute:
            if text:
                execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (row, reviewer, text))
            else:
                execute("DELETE FROM notes WHERE row = ? AND reviewer = ?", (row, reviewer))

    # -- random sample

    def sampled_rows(self) -> list[int]:
        """Return the complete rows of the random sample: every label in question has an answer."""
        return [row for (row,) in self._query(_COMPLETE_ROWS)]

    def sampled_answers(self) -> list[LabelAnswer]:
        """Return the answers of the complete rows of the random sample."""
        query = f"SELECT row, label, answer FROM sample JOIN answers USING (row, label) WHERE row IN ({_COMPLETE_ROWS})"
        return [LabelAnswer(*found) for found in self._query(f"{query} ORDER BY row, label")]

    def sampled_counts(self) -> list[AnswerCount]:
        """Count the complete rows of the random sample by label, given value and answer, without missing values."""
        query = "SELECT label, given, answer, times FROM tallies WHERE times"
        return [AnswerCount(*found) for found in self._query(query)]

    def progress(self) -> dict[str, int]:
        """Return the numbers that ``TOTALS`` names."""
        return {**dict.fromkeys(TOTALS, 0), **dict(self._query("SELECT name, times FROM totals"))}


def _own_answers(history: Sequence[tuple[int, int, str, Answer, int]], reviewer: str) -> dict[int, Answer]:
    """Return the latest answers of a reviewer by label, from the decisions about one row."""
    return {label: answer for _, label, name, answer, _ in history if name == reviewer}


@contextmanager
def _update_counts(execute: Execute, row: int) -> Iterator[None]:
    """Add the change that a block makes to a row to the tables of counts."""
    before = _row_counts(execute, row)
    yield
    change = _row_counts(execute, row)
    change.subtract(before)
    for key, times in change.items():
        if times:
            table, values = ("totals", (key,)) if isinstance(key, str) else ("tallies", key)
            execute(
                f"INSERT INTO {table} VALUES ({'?, ' * len(values)}?) "
                "ON CONFLICT DO UPDATE SET times = times + excluded.times",
                (*values, times),
            )


def _row_counts(execute: Execute, row: int) -> Counter[str | tuple[int, int, str]]:
    """Return what a row contributes to the totals and, if it is complete, to the counts of the sample."""
    answers = dict(execute("SELECT label, answer FROM answers WHERE row = ?", (row,)).fetchall())
    sample = execute("SELECT label, given FROM sample WHERE row = ?", (row,)).fetchall()
    query = "SELECT label FROM answers WHERE row = ? AND position >= 0"
    looked_at = {label for (label,) in execute(query, (row,)).fetchall()}
    complete = bool(sample) and all(label in looked_at for label, _ in sample)
    totals = zip(TOTALS, (bool(answers), len(answers), bool(sample), complete))
    counts: Counter[str | tuple[int, int, str]] = Counter(dict(totals))
    if complete:
        counts.update((label, given, answers[label]) for label, given in sample if given is not None)
    return counts


def _restore_previous(execute: Execute, row: int, label: int) -> None:
    """Replace the current answer by the latest one that is not undone, if there is one."""
    previous = execute(
        "SELECT answer, position FROM decisions WHERE row = ? AND label = ? AND NOT undone ORDER BY id DESC LIMIT 1",
        (row, label),
    ).fetchone()
    execute("DELETE FROM answers WHERE row = ? AND label = ?", (row, label))
    if previous is not None:
        execute("INSERT INTO answers VALUES (?, ?, ?, ?)", (row, label, *previous))
