"""SQLite store of a review: queue, random sample and answers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
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

_COMPLETE_ROWS = """
SELECT row FROM sample LEFT JOIN (SELECT row, label, answer FROM answers WHERE position >= 0) USING (row, label)
GROUP BY row HAVING COUNT(answer) = COUNT(*)
"""
_PROGRESS = f"""
SELECT COUNT(DISTINCT row), COUNT(*), (SELECT COUNT(DISTINCT row) FROM sample),
    (SELECT COUNT(*) FROM ({_COMPLETE_ROWS}))
FROM answers
"""
_LATEST = "(SELECT *, MAX(id) FROM decisions WHERE NOT undone GROUP BY row, label, reviewer)"
"""Latest answers of each reviewer."""
_LATEST_ACTION = "SELECT MAX(action) FROM decisions WHERE NOT undone AND reviewer = ?"


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
    row INTEGER, label INTEGER, PRIMARY KEY (row, label)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (           -- history of all answers, including undone ones
    id INTEGER PRIMARY KEY AUTOINCREMENT, action INTEGER NOT NULL,
    position INTEGER NOT NULL, row INTEGER NOT NULL, label INTEGER NOT NULL,
    answer TEXT NOT NULL, reviewer TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0, at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS decisions_by_entry ON decisions (row, label);
CREATE INDEX IF NOT EXISTS decisions_by_action ON decisions (action);
CREATE VIEW IF NOT EXISTS answers AS             -- current answers: the latest ones
    SELECT row, label, answer, position, MAX(id) FROM decisions WHERE NOT undone GROUP BY row, label;
CREATE TABLE IF NOT EXISTS notes (
    row INTEGER, reviewer TEXT, note TEXT NOT NULL, PRIMARY KEY (row, reviewer)
) WITHOUT ROWID;
"""
    version: ClassVar[int] = 3

    def __init__(self, path: PathLike, metadata: Mapping[str, Any]) -> None:
        super().__init__(path)
        try:
            with self._transaction() as execute:
                for name, value in metadata.items():
                    execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, json.dumps(value)))
                    (stored,) = execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
                    if stored != json.dumps(value):
                        raise ValueError(
                            f"{path} contains decisions about other data: {name} is {self._from_json(stored)!r} in the "
                            f"file and {value!r} in the data; use another folder (--out) or the same data"
                        )
        except BaseException:
            self.close()
            raise

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

    def item(self, position: int | None) -> QueueItem | None:
        """Return the item at a position of the queue; None if there is none."""
        query = "SELECT position, row, stream, asked FROM items WHERE position = ?"
        for where, row, stream, asked in self._query(query, (position,)):
            labels = self._from_json(asked)
            if not isinstance(labels, list):
                raise self._not_a_store(f"the labels at position {position} are not a list")
            return QueueItem(where, row, stream, tuple(labels))
        return None

    def position_of(self, row: int, stream: Stream) -> int | None:
        """Return the position of a row in a list; None if it is not in the list."""
        ((found,),) = self._query("SELECT MAX(position) FROM items WHERE row = ? AND stream = ?", (row, stream))
        return None if found is None else int(found)

    def neighbor(self, position: int, stream: Stream, step: int) -> QueueItem | None:
        """Return the item after (``step`` 1) or before (-1) a position in one list; None if there is none."""
        end, comparison = ("MIN", ">") if step > 0 else ("MAX", "<")
        query = f"SELECT {end}(position) FROM items WHERE position {comparison} ? AND stream = ?"
        ((found,),) = self._query(query, (position, stream))
        return self.item(found)

    def length(self) -> int:
        """Return the number of items in the queue."""
        return int(self._query("SELECT COALESCE(MAX(position) + 1, 0) FROM items")[0][0])

    def queued_rows(self) -> set[int]:
        """Return the rows in the queue."""
        return {row for (row,) in self._query("SELECT DISTINCT row FROM items")}

    def append(self, item: QueueItem) -> None:
        """Append an item; do nothing if the position is taken."""
        with self._transaction() as execute:
            added = execute("INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?)", (*item[:3], json.dumps(item.asked)))
            for label in item.asked if added.rowcount and item.stream == "random" else ():
                execute("INSERT OR IGNORE INTO sample VALUES (?, ?)", (item.row, label))

    # -- answers

    def record(
        self, item: QueueItem, answers: Mapping[int, Answer], *, reviewer: str = "", only_open: bool = False
    ) -> None:
        """Store answers of a reviewer for labels of a row as one action.

        With ``only_open``, labels that have an answer of this reviewer are skipped. The latest answer of all reviewers
        is the current one.
        """
        with self._transaction() as execute:
            current = dict(execute("SELECT label, answer FROM answers WHERE row = ?", (item.row,)).fetchall())
            query = "SELECT label, answer FROM decisions WHERE row = ? AND reviewer = ? AND NOT undone ORDER BY id"
            own = dict(execute(query, (item.row, reviewer)).fetchall())
            changed = [
                (item.row, label, value)
                for label, value in answers.items()
                if not (own.get(label) == value == current.get(label) or (only_open and label in own))
            ]
            _add(execute, item.position, changed, reviewer)

    def record_many(self, answers: Sequence[tuple[int, int, Answer]], *, reviewer: str = "") -> int:
        """Store answers (row, label, answer) that a reviewer gives at once, as one action; return their number.

        Labels that have an answer are skipped. The answers do not count for rates.
        """
        with self._transaction() as execute:
            known = set(execute("SELECT row, label FROM answers").fetchall())
            added = [answer for answer in answers if answer[:2] not in known]
            _add(execute, BULK_POSITION, added, reviewer)
        return len(added)

    def undo(self, reviewer: str = "") -> tuple[int, int] | None:
        """Undo the latest action of a reviewer and restore the previous answers.

        Returns the position in the queue and the first label of the action, or None without an action.
        """
        with self._transaction() as execute:
            (action,) = execute(_LATEST_ACTION, (reviewer,)).fetchone()
            execute("UPDATE decisions SET undone = 1 WHERE action = ?", (action,))
            query = "SELECT position, label FROM decisions WHERE action = ? ORDER BY id"
            found: tuple[int, int] | None = execute(query, (action,)).fetchone()
        return found

    def can_undo(self, reviewer: str = "") -> bool:
        """Return whether there is an action of a reviewer to undo."""
        return self._query(_LATEST_ACTION, (reviewer,))[0][0] is not None

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
        source, own = "answers", ""
        if reviewer is not None:
            source, own = "decisions", " AND NOT undone AND reviewer = ? ORDER BY id"
        query = f"SELECT label, answer FROM {source} WHERE row = ? AND position >= ?{own}"
        values = (row, BULK_POSITION if bulk else 0)
        return dict(self._query(query, values if reviewer is None else (*values, reviewer)))

    def answered_rows(self) -> set[int]:
        """Return the rows with an answer."""
        return {row for (row,) in self._query("SELECT DISTINCT row FROM answers")}

    def reviewer_answers(self) -> list[ReviewerAnswer]:
        """Return the latest answer of each reviewer for each label, sorted by row, label and reviewer."""
        return [ReviewerAnswer(*found) for found in self._query(f"SELECT row, label, reviewer, answer FROM {_LATEST}")]

    def agreement(self) -> list[tuple[str, int, int, int]]:
        """Compare the answers of the reviewers with each other; "unsure" answers are not compared.

        Returns the name of each reviewer, and the numbers of answers, of labels shared with another reviewer, and of
        equal answers among these.
        """
        return self._query(f"""
SELECT one.reviewer, COUNT(DISTINCT one.id), COUNT(other.id), COALESCE(SUM(one.answer = other.answer), 0)
FROM {_LATEST} AS one LEFT JOIN {_LATEST} AS other ON one.row = other.row AND one.label = other.label
    AND one.reviewer != other.reviewer AND one.answer != 'unsure' AND other.answer != 'unsure'
GROUP BY one.reviewer ORDER BY one.reviewer
""")

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

    def progress(self) -> dict[str, int]:
        """Return the numbers of rows with an answer, of answers, of random rows, and of complete random rows."""
        return dict(zip(("rows", "answers", "drawn", "counted"), self._query(_PROGRESS)[0]))


def _add(execute: Execute, position: int, answers: Sequence[tuple[int, int, Answer]], reviewer: str) -> None:
    """Add answers (row, label, answer) as one action."""
    (action,) = execute("SELECT COALESCE(MAX(action), 0) + 1 FROM decisions").fetchone()
    for row, label, value in answers:
        check_choice(value, "answer", ANSWERS)
        values = (action, position, row, label, value, reviewer, time.time())
        columns = "action, position, row, label, answer, reviewer, at"
        execute(f"INSERT INTO decisions ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)
