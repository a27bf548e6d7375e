"""SQLite through apsw, called directly: a few connections that read, one that writes, and errors
that say the way out.

Rules: a connection is never used by two threads at once, nor by a process that did not open it.
Reading changes no byte of the file, so whoever looks at what is stored first can still refuse it.
What was acknowledged is on disk.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from loom.errors import StoreError
from loom.stores.sql.database import (
    NoticeListener,
    Reader,
    Row,
    Writer,
    busy_seconds,
    fill_tokens,
    text_of,
)

MEMORY = ":memory:"
_MAX_IDLE_READERS = 8  # connections kept for the next reader
_MAX_LOG_BYTES = 16 * 2**20  # a long import must not leave a log of its own size behind
_TOKENS = {
    "serial": "INTEGER PRIMARY KEY",
    "bytes": "BLOB",
    "binary": "",
    "each": "(SELECT value FROM json_each($N))",
    "each_int": "(SELECT value FROM json_each($N))",
    "lock": "",  # a write has the whole database to itself
    "node_key": "INTEGER PRIMARY KEY",
    "node_tail": "",
    "by_tree": "CREATE INDEX nodes_tree ON nodes (tree)",  # and by seq, the key of the table
    "clustered": " WITHOUT ROWID",
    "each_pair": "(SELECT json_extract(value, '$[0]') AS tree, json_extract(value, '$[1]') AS seq "
    "FROM json_each($N))",
}
_AS_BYTES = (
    "typeof({name}) = 'text', CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) "
    "ELSE {name} END"
)
_PARAMETER = re.compile(r"\$(\d+)")

# What a value may do wrong on its way into a statement: half a surrogate pair, a number past 64
# bits. On its way out: no UTF-8.
_REFUSED = (apsw.Error, UnicodeError, OverflowError)

# Closing a file drops every lock this process has on it, SQLite's too: so while one thread makes
# the file, none may open it.
_opening = threading.Lock()

# Connections of a parent process: closing them here could touch files that the parent is using.
_abandoned: list[object] = []


def _after_fork() -> None:
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _spell(sql: str) -> str:
    return _PARAMETER.sub(r"?\1", fill_tokens(sql, _TOKENS))


@contextmanager
def _closing(cursor: apsw.Cursor) -> Iterator[None]:
    """A statement that is left half read keeps its snapshot, and with it the log."""
    try:
        yield
    finally:
        cursor.close(True)


class _SqliteTransaction:
    """What runs inside one transaction."""

    def __init__(self, database: "SqliteDatabase", connection: apsw.Connection) -> None:
        self._database = database
        self._connection = connection
        self._reserved = 0
        self.failure: StoreError | None = None

    def all(self, sql: str, *values: Any) -> list[Row]:
        spelled = self._ready(sql)
        try:
            cursor = self._connection.execute(spelled, values)
            with _closing(cursor):
                return cursor.fetchall()
        except _REFUSED as error:
            raise self._remember_failure(error) from error

    def first_row(self, sql: str, *values: Any) -> Row | None:
        spelled = self._ready(sql)
        try:
            cursor = self._connection.execute(spelled, values)
            with _closing(cursor):
                row: Row | None = cursor.fetchone()
            return row
        except _REFUSED as error:
            raise self._remember_failure(error) from error

    def all_garbled(self, sql: str, *values: Any) -> list[Row]:
        spelled = self._ready(sql)
        try:
            cursor = self._connection.execute(spelled, values)
            with _closing(cursor):
                names = [f"c{number}" for number, _ in enumerate(cursor.get_description())]
            columns = ", ".join(_AS_BYTES.format(name=name) for name in names)
            found = self.all(
                f"WITH found ({', '.join(names)}) AS ({spelled}) SELECT {columns} FROM found",
                *values,
            )
        except _REFUSED as error:
            raise self._remember_failure(error) from error
        pairs = (zip(row[::2], row[1::2], strict=True) for row in found)
        return [
            tuple(text_of(value) if is_text else value for is_text, value in row) for row in pairs
        ]

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        spelled = self._ready(sql)
        try:
            self._connection.executemany(spelled, rows)
        except _REFUSED as error:
            raise self._remember_failure(error) from error

    def reserve(self, count: int) -> Sequence[int]:
        found = self.first_row("SELECT max(seq) FROM nodes")
        first = max(self._reserved, (found and found[0]) or 0) + 1
        self._reserved = first + count - 1
        return range(first, first + count)

    def _ready(self, sql: str) -> str:
        if self.failure:
            raise self.failure
        return _spell(sql)

    def _remember_failure(self, error: Exception) -> StoreError:
        told = self._database.explain(error)
        # SQLite undoes the whole transaction on some errors, and would then commit each later
        # statement by itself. A text that cannot be read is no such error, and who goes around it
        # may read on.
        if not isinstance(error, UnicodeDecodeError):
            self.failure = told
        return told


class _Connections:
    """What one process has open."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.readers: list[apsw.Connection] = []
        self.writer: apsw.Connection | None = None
        self.writing = threading.RLock()
        self.file: tuple[int, int] | None = None


class SqliteDatabase:
    """A file, or `:memory:`, which is one connection that all threads take in turn."""

    name = "sqlite"

    def __init__(self, path: str) -> None:
        self._memory = path == MEMORY
        if self._memory:
            self._path = path
        else:
            self._path = os.path.abspath(os.path.expanduser(path))
        self.address = self._path
        self._busy = busy_seconds()
        self._closed = False
        self._connections = _Connections()

    @contextmanager
    def read(self) -> Iterator[Reader]:
        if self._memory:
            with self.write() as writer:
                yield writer
            return
        held = self._own()
        connection = self._reader(held)
        try:
            yield from self._transaction(connection, "BEGIN", "COMMIT", "ROLLBACK")
        finally:
            self._give_back(held, connection)

    @contextmanager
    def write(self) -> Iterator[Writer]:
        with self._writing() as connection:
            if connection.in_transaction and not self._memory:
                raise StoreError(
                    f"{self.address} is already being written by this thread; let that block end "
                    "first"
                )
            # in memory all share the one connection, so a read is around this
            if connection.in_transaction:
                yield from self._transaction(
                    connection,
                    "SAVEPOINT inner",
                    "RELEASE inner",
                    "ROLLBACK TO inner; RELEASE inner",
                )
            else:
                yield from self._transaction(connection, "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK")

    def _transaction(
        self, connection: apsw.Connection, begin: str, commit: str, undo: str
    ) -> Iterator[_SqliteTransaction]:
        statements = _SqliteTransaction(self, connection)
        try:
            connection.execute(begin)
        except apsw.Error as error:
            raise self.explain(error) from error
        try:
            yield statements
            # who only reads may well continue after an error
            if statements.failure and begin != "BEGIN":
                raise statements.failure
            try:
                connection.execute(commit)
            except apsw.Error as error:
                raise self.explain(error) from error
        except BaseException:
            # the first error is the one to hear of; SQLite may have undone everything already
            with suppress(apsw.Error):
                if connection.in_transaction:
                    connection.execute(undo)
            raise

    def listen(self, channel: str, wake: Callable[[], None]) -> NoticeListener | None:
        return None

    def size(self) -> int:
        if self._memory:
            with self.read() as reader:
                found = reader.first_row(
                    "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
                )
            if found:
                return int(found[0])
            return 0
        try:
            return sum(
                os.path.getsize(file)
                for file in (self._path, self._path + "-wal")
                if os.path.exists(file)
            )
        except OSError as error:
            raise self.explain(error) from error

    def check(self) -> list[str]:
        try:
            with self.read() as reader:
                rows = reader.all("PRAGMA integrity_check")
        except StoreError as error:
            if isinstance(error.__cause__, apsw.CorruptError | apsw.NotADBError):
                return [str(error.__cause__)]
            raise
        lines = [line for row in rows for line in str(row[0]).splitlines()]
        if lines == ["ok"]:
            return []
        return lines

    def shed(self) -> None:
        with self._writing() as connection:
            try:
                # Overwriting what is deleted is not enough: a page that was split earlier may hold
                # a second copy of a row.
                connection.execute("VACUUM")
                blocked = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            except apsw.Error as error:
                raise self.explain(error) from error
        if blocked:
            raise StoreError(
                f"{self.address}: another process is reading deleted data, so the log still "
                "contains it; let it finish and try "
                "again"
            )

    def close(self) -> None:
        self._closed = True
        held = self._own()
        with held.writing:
            while held.readers:
                held.readers.pop().close()
            if held.writer:
                held.writer.close()
                held.writer = None

    # Connections

    def _own(self) -> _Connections:
        """The connections of this process; those of a parent are left alone."""
        if self._connections.process != os.getpid():
            _abandoned.append(self._connections)
            if self._memory:
                raise StoreError(
                    "an in-memory store stays in the process that opened it; give a path to share "
                    "one"
                )
            self._connections = _Connections()
        return self._connections

    def _reader(self, held: _Connections) -> apsw.Connection:
        self._same_file(held)
        try:
            return held.readers.pop()
        except IndexError:
            return self._connect(held, "PRAGMA query_only = ON")

    def _give_back(self, held: _Connections, connection: apsw.Connection) -> None:
        if held.process != os.getpid():
            _abandoned.append(connection)
            return
        # A connection to a file taken as unchanging must not outlive one read of it.
        if (
            self._closed
            or connection.in_transaction
            or len(held.readers) >= _MAX_IDLE_READERS
            or connection.open_flags & apsw.SQLITE_OPEN_URI
        ):
            connection.close(True)
        else:
            held.readers.append(connection)

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        held = self._own()
        # Threads of one process queue here, woken at once; SQLite would have each of them sleep and
        # ask again.
        if not held.writing.acquire(timeout=self._busy):
            raise self.explain(apsw.BusyError())
        try:
            self._same_file(held)
            if held.writer is None:
                held.writer = self._connect(
                    held, "PRAGMA secure_delete = ON", "PRAGMA synchronous = FULL"
                )
                self._log_ahead(held.writer)
            yield held.writer
        finally:
            held.writing.release()

    def _same_file(self, held: _Connections) -> None:
        """Somebody may have removed or replaced the file; what is written to the old one would
        never be seen again.
        """
        if self._closed:
            raise StoreError(f"{self.address} was closed; open it again")
        if held.file and held.file != self._file():
            raise StoreError(
                f"{self.address} was removed or replaced while it was open; open it again"
            )

    def _file(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _connect(self, held: _Connections, *settings: str) -> apsw.Connection:
        try:
            with _opening:
                if not self._memory and not os.path.exists(self._path):
                    _make(self._path)
                connection = self._open(
                    self._path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
                )
            for setting in settings:
                connection.execute(setting)
        except (apsw.Error, OSError, ValueError) as error:
            raise self.explain(error) from error
        held.file = None if self._memory else self._file()
        return connection

    def _open(self, path: str, flags: int) -> apsw.Connection:
        connection = apsw.Connection(path, flags=flags)
        connection.set_busy_timeout(int(self._busy * 1000))
        try:
            connection.execute("PRAGMA schema_version").fetchall()  # opening alone reads nothing
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            connection.close()
            # A folder that cannot be written to has no room for SQLite's shared memory. With
            # nothing left in the log, the file alone is the whole truth and can be read as it is.
            if flags & apsw.SQLITE_OPEN_URI or self._has_log() or _may_write(path):
                raise
            return self._open(
                f"{Path(path).as_uri()}?immutable=1",
                apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def _has_log(self) -> bool:
        log = self._path + "-wal"
        return os.path.exists(log) and os.path.getsize(log) > 0

    def _log_ahead(self, connection: apsw.Connection) -> None:
        """Readers never wait for a writer. The setting is kept in the file, so this does something
        once in its life.
        """
        end = time.monotonic() + self._busy
        while not self._memory and not connection.readonly("main"):
            try:
                if connection.execute("PRAGMA journal_mode").fetchall() != [("wal",)]:
                    connection.execute("PRAGMA journal_mode = WAL").fetchall()
                connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}").fetchall()
                return
            except apsw.BusyError as error:  # here SQLite does not wait by itself
                if time.monotonic() > end:
                    raise self.explain(error) from error
                time.sleep(0.01)
            except apsw.Error as error:
                raise self.explain(error) from error

    # Errors

    def explain(self, error: Exception) -> StoreError:
        """An error of SQLite or of the system in one line: which store, what is wrong, the way
        out.
        """
        return StoreError(f"{self.address} {_explain(error, self._path, self._busy)}")


def _make(path: str) -> None:
    """An empty file that only its owner can read; the folders it lies in too, where there are
    none.
    """
    missing = [folder for folder in Path(path).parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _may_write(path: str) -> bool:
    effective = os.access in os.supports_effective_ids
    return all(
        os.access(place, os.W_OK, effective_ids=effective)
        for place in (path, os.path.dirname(path))
    )


def _explain(error: Exception, path: str, busy: float) -> str:
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return (
                f"is busy: another program has held its write lock for {busy:g} s; let that "
                "finish and try again"
            )
        case apsw.FullError():
            return (
                "cannot grow: the disk is full; nothing of this change was kept. Free some "
                "space and try again"
            )
        case apsw.ReadOnlyError():
            return (
                "is read-only, or its folder is: it can be read, not changed. Give yourself "
                "the right to write, or copy it"
            )
        case apsw.NotADBError():
            return (
                "is not a database; it was left as it is. Name another file, or restore this "
                "one from a copy"
            )
        case apsw.CorruptError() | UnicodeDecodeError():
            return (
                f"is damaged ({_line(error)}): restore it from a copy, or save what can still "
                "be read with `loom session export`"
            )
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            if os.path.isdir(path):
                return "is a folder; name a file in it"
            return (
                "cannot be opened; see that its folder exists and that you may read and write in it"
            )
        case apsw.IOError():
            return (
                f"cannot be read or written ({_line(error)}): the disk is full, gone or failing; "
                "nothing of this change was kept. "
                "Free some space, look at the disk and try again"
            )
        case UnicodeEncodeError():
            return (
                "stores only whole characters, and a text contains half a surrogate pair; replace "
                "it and try again"
            )
        case OSError():
            return (
                f"cannot be opened: {error.strerror or error}; see that its folder exists and "
                "that you may write in it"
            )
        case _:
            return f"refused: {_line(error)}"


def _line(error: Exception) -> str:
    """Without the name of the class that apsw puts in front."""
    return str(error).partition("\n")[0].removeprefix(f"{type(error).__name__}: ")
