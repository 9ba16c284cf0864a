"""Base class of the SQLite stores: transactions, and one-line errors that name the file."""

import sqlite3
import subprocess
import sys

import pytest

from ccmn._sqlite import SQLiteStore


class Notes(SQLiteStore):
    kind = "note store"
    schema = """
    CREATE TABLE IF NOT EXISTS notes (
        name TEXT PRIMARY KEY,  -- a comment; with a semicolon
        value TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS notes_by_value ON notes (value)
    """

    def add(self, *names, value="{}"):
        with self._transaction() as execute:
            for name in names:
                execute("INSERT INTO notes VALUES (?, ?)", (name, value))

    def names(self):
        return [name for (name,) in self._query("SELECT name FROM notes ORDER BY name")]

    def values(self):
        return [self._from_json(value) for (value,) in self._query("SELECT value FROM notes")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "notes.db"


def assert_rejected(path, message="is not a note store or is damaged"):
    """Check that a file cannot be opened and read, with a message of one line."""
    with pytest.raises(ValueError, match=rf"notes\.db {message}") as error, Notes(path) as store:
        store.values()
    assert "\n" not in str(error.value)


def test_failed_transaction_stores_nothing(path):
    with Notes(path) as store:
        with pytest.raises(ValueError, match="UNIQUE"):
            store.add("a", "a")
        assert store.names() == []
        store.add("a")  # the store remains usable
        assert store.names() == ["a"]


def test_file_that_is_not_a_database(path):
    content = b"not a database, but long enough for SQLite to read a header" * 30
    path.write_bytes(content)
    assert_rejected(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [
        # The header and the schema are on the first page; damage behind it is reported when it is read.
        lambda content: content[:6000],
        lambda content: content[:4096] + b"\xff" * 60_000,
        lambda content: content.replace(b"{}", b"{,"),  # JSON
        # SQLite cites the statement, which has several lines, and a name that is no text.
        lambda content: content.replace(b"value TEXT NOT NULL", b"value TEXT NOT [ULL"),
        lambda content: content.replace(b"INDEX notes_by_value ON notes", b"INDEX notes_by_value ON \xf6\xff\xfees"),
    ],
)
def test_damaged_file(path, damage):
    with Notes(path) as store:
        store.add(*map(str, range(2000)))
    path.write_bytes(damage(path.read_bytes()))
    assert_rejected(path)


def test_path_without_a_file(path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Notes(path.parent / "none" / "notes.db")
    path.mkdir()
    with pytest.raises(IsADirectoryError, match=r"notes\.db is a folder"):
        Notes(path)


def test_other_version(path):
    with Notes(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    assert_rejected(path, ".*version is 7; expected 1")


@pytest.mark.parametrize("version", [0, 1])
def test_other_database_is_not_modified(path, version):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.execute(f"PRAGMA user_version = {version}")
    other.close()
    content = path.read_bytes()
    assert_rejected(path, ".*other tables")
    assert path.read_bytes() == content


def test_disk_full(path):
    with Notes(path) as store:
        store.add("a")
        (pages,) = store._query("PRAGMA page_count")[0]
        store._query(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(OSError, match=r"notes\.db: database or disk is full") as error:
            store.add("b", value="x" * 100_000)
        assert "\n" not in str(error.value)
        assert store.names() == ["a"]
        store._query("PRAGMA max_page_count = 100000")
        store.add("b")
        assert store.names() == ["a", "b"]


def test_processes_create_the_same_store(path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_sqlite import Notes; "
        "store = Notes(sys.argv[2]); store.add(sys.argv[3]); store.close()"
    )
    folder = __file__.rpartition("/")[0]
    processes = [subprocess.Popen([sys.executable, "-c", code, folder, path, str(i)]) for i in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    with Notes(path) as store:
        assert store.names() == ["0", "1", "2", "3"]
