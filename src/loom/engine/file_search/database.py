"""The file of the index: SQLite, a cache that may be deleted at any time.

Each transcript has a row with its size and time, so what changed is known. Its messages have
consecutive keys. For each term and transcript there is one row with who has the term.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from loom.errors import StoreError

FORMAT = "2"  # of the tables, and of the rules that make terms of a message
BUSY_SECONDS = 10
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.MismatchError)
_SCHEMA = """
    CREATE TABLE about (format TEXT);
    CREATE TABLE files (key INTEGER PRIMARY KEY, path BLOB UNIQUE, size INT, changed INT,
        reason TEXT, unknown INT, first INT, documents INT, length INT, authors TEXT);
    CREATE TABLE sessions (key INTEGER PRIMARY KEY, file INT, number INT, title TEXT, format TEXT);
    CREATE INDEX sessions_file ON sessions (file);
    CREATE TABLE documents (key INTEGER PRIMARY KEY, file INT, session INT, place INT, role TEXT,
        author TEXT, created INT, length INT, tokens INT, handle TEXT, body BLOB);
    CREATE INDEX documents_file ON documents (file, created, key);
    CREATE INDEX documents_session ON documents (session, place);
    CREATE INDEX documents_handle ON documents (handle);
    CREATE TABLE terms (term TEXT, file INT, documents INT, data BLOB, PRIMARY KEY (term, file))
        WITHOUT ROWID;
    CREATE INDEX terms_file ON terms (file);
    CREATE TABLE vectors (embedder TEXT, key INT, data BLOB, PRIMARY KEY (embedder, key))
        WITHOUT ROWID;
"""


class IndexDatabase:
    """A connection to the file. A damaged file, or one of another version, is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with raise_store_errors(path):
            self._make_file()
            try:
                self._connection = self._open()
            except _DAMAGED:
                self._remove()
                self._make_file()
                self._connection = self._open()

    def all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with raise_store_errors(self._path):
            return self._connection.execute(sql, values).fetchall()

    def run_many(self, sql: str, rows: Any) -> None:
        with raise_store_errors(self._path):
            self._connection.executemany(sql, rows)

    @contextmanager
    def write(self) -> Iterator[None]:
        """One transaction: all or nothing."""
        with raise_store_errors(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(apsw.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        self._connection.close()

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(os.fspath(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(BUSY_SECONDS * 1000)
            # A cache need not be safe from power cuts.
            connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                connection.execute(_SCHEMA)
                connection.execute("INSERT INTO about VALUES (?)", (FORMAT,))
            connection.execute("COMMIT")
            if connection.execute("SELECT format FROM about").fetchall() != [(FORMAT,)]:
                raise apsw.MismatchError("another version of Loom made it")
            connection.execute("CREATE TEMP TABLE chosen (file INTEGER PRIMARY KEY)")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_file(self) -> None:
        """An empty file that only its owner can read, for it holds what the transcripts say."""
        for folder in reversed([folder for folder in self._path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))

    def _remove(self) -> None:
        for end in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}{end}")


@contextmanager
def raise_store_errors(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the system as one line that names the file."""
    try:
        yield
    except apsw.BusyError as error:
        raise StoreError(f"the index of transcripts {path} is locked by another program") from error
    except (*_DAMAGED, apsw.Error, OSError) as error:
        line = str(error).partition("\n")[0].removeprefix(f"{type(error).__name__}: ")
        raise StoreError(
            f"the index of transcripts {path} cannot be read or written ({line}); free some space "
            "there, or delete it: it is made again"
        ) from error
