"""The file that a project's index is kept in: SQLite, next to those of other projects in a folder
for caches.

It is a cache: it may be thrown away at any time, so it is never waited for long and never synced to
disk. Each row proves itself by a checksum, and says what the file was like when it was read, so any
mixture of older and newer rows is as good as a whole.
"""

import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw
import msgspec
from msgspec import Struct

from loom.errors import StoreError

FORMAT = 4
BUSY_SECONDS = 1.0
_NUMBERS = struct.Struct("<4q")
_recent_decoder = msgspec.msgpack.Decoder(dict[str, int])
_FEW_FILES = 200  # whose rows are looked up one by one
# The modules that entries and columns are made by, in the folder of the package.
MAKERS = (
    "conversation/encodings",
    "conversation/stems",
    "conversation/words",
    "project/index/columns",
    "project/index/columns_file",
    "project/index/entries",
    "project/index/files",
    "project/index/git",
    "project/index/links",
    "project/index/making",
    "project/index/roles",
    "project/index/strings",
    "project/parse/grammars",
    "project/parse/installed",
    "project/parse/languages",
    "project/parse/linewise",
    "project/parse/python_lines",
    "project/parse/skeletons",
    "project/parse/symbols",
    "project/parse/terms",
)
_DAMAGED = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,
    apsw.MismatchError,
    UnicodeDecodeError,
)
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS files
        (path TEXT PRIMARY KEY, size INT, changed INT, noticed INT, seen INT, digest BLOB,
        sum INT) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS entries (path TEXT PRIMARY KEY, data BLOB, sum INT);
    CREATE TABLE IF NOT EXISTS recent (head TEXT PRIMARY KEY, data BLOB, sum INT) WITHOUT ROWID;
"""


class SeenFile(Struct, frozen=True, gc=False):
    """How a file was: its size, its times of change, when these were seen with this content
    (nanoseconds), the content's digest.
    """

    size: int
    changed: int
    noticed: int
    at: int
    digest: bytes


class Row(Struct, frozen=True, gc=False):
    """A file in the index. Without data only when it was seen is new."""

    path: str
    seen: SeenFile
    data: bytes | None


class IndexFile:
    """The index of one project on disk, and what it was made by. Raises only StoreError, whose text
    says why nothing is kept; a damaged file is replaced.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.about = {"root": os.fsencode(root).hex(), "made_by": made_by()}

    def load_seen(self) -> dict[str, SeenFile]:
        """How all files were that this very version of Loom and its grammars knows, by path. Rows
        that are damaged are left out.
        """
        found = {}
        for path, size, changed, noticed, at, digest, total in self._select(
            "SELECT path, size, changed, noticed, seen, digest, sum FROM files ORDER BY 1", [()]
        ):
            seen = SeenFile(size, changed, noticed, at, digest)
            try:
                if total == _sum(path, seen):
                    found[path] = seen
            # damage may change a value into one of another type
            except (TypeError, AttributeError, struct.error):
                continue
        return found

    def load_data(self, wanted: Mapping[str, SeenFile]) -> dict[str, bytes]:
        """What is kept of files that were seen so; damaged rows are left out."""
        if len(wanted) <= _FEW_FILES:
            rows = self._select(
                "SELECT path, data, sum FROM entries WHERE path = ?", [(path,) for path in wanted]
            )
        else:
            rows = self._select("SELECT path, data, sum FROM entries ORDER BY 1", [()])
        found = {}
        for path, data, total in rows:
            with suppress(TypeError, AttributeError):
                if path in wanted and total == crc32(data, crc32(wanted[path].digest)):
                    found[path] = data
        return found

    def _select(self, query: str, bindings: Iterable[tuple[str, ...]]) -> list[tuple[Any, ...]]:
        """The rows of a question that is asked for each of the bindings; none if the file is
        another version's.
        """
        with self._raise_store_errors():
            if not self.path.exists():
                return []
            try:
                with self._open() as connection:
                    if not self._is_ours(connection):
                        return []
                    cursor = connection.cursor()
                    return [row for given in bindings for row in cursor.execute(query, given)]
            except _DAMAGED:
                self._discard()
                return []

    def load_recent(self, head: str) -> dict[str, int] | None:
        """The files that the last commits before this one touched, as they were saved."""
        for data, total in self._select("SELECT data, sum FROM recent WHERE head = ?", [(head,)]):
            with suppress(TypeError, AttributeError, msgspec.MsgspecError):
                if total == crc32(data):
                    return _recent_decoder.decode(data)
        return None

    def save_recent(self, head: str, recent: Mapping[str, int]) -> None:
        """Keep these, and those of no other commit."""
        data = msgspec.msgpack.encode(recent)

        def write(connection: apsw.Connection) -> None:
            connection.execute("DELETE FROM recent")
            connection.execute("INSERT INTO recent VALUES (?, ?, ?)", (head, data, crc32(data)))

        self._change(write)

    def save(self, rows: Iterable[Row], gone: Iterable[str]) -> bool:
        """Write rows and remove others, all or nothing. False: the file was damaged and is gone, so
        all rows are wanted.
        """

        def write(connection: apsw.Connection) -> None:
            _write_rows(connection, rows, gone)

        return self._change(write)

    def _is_ours(self, connection: apsw.Connection) -> bool:
        try:
            return dict(connection.execute("SELECT name, value FROM about")) == self.about
        except apsw.SQLError:  # made, but nothing written yet
            return False

    def _change(self, write: Callable[[apsw.Connection], None]) -> bool:
        """Write in one transaction. False: the file was damaged and is gone."""
        with self._raise_store_errors():
            self._make()
            try:
                with self._open() as connection, _transaction(connection):
                    connection.execute(_SCHEMA)
                    # Another version of Loom may have written in the meantime, and its rows must
                    # not pass for ours.
                    if not self._is_ours(connection):
                        for table in ("about", "files", "entries", "recent"):
                            connection.execute(f"DELETE FROM {table}")
                        connection.executemany(
                            "INSERT INTO about VALUES (?, ?)", self.about.items()
                        )
                    write(connection)
                return True
            except _DAMAGED:
                self._discard()
                return False

    @contextmanager
    def _open(self) -> Iterator[apsw.Connection]:
        """A connection for one look or one change: none is left open for a fork to inherit."""
        with closing(
            apsw.Connection(os.fspath(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        ) as connection:
            connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
            connection.execute("PRAGMA synchronous = OFF")
            yield connection

    def _make(self) -> None:
        """An empty file that only its owner can read, for it holds what the project says; its
        folders too.
        """
        for folder in reversed([folder for folder in self.path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))

    def _discard(self) -> None:
        for end in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}{end}")

    @contextmanager
    def _raise_store_errors(self) -> Iterator[None]:
        """Errors of SQLite and of the system as one line for whoever wonders why each start takes
        long.
        """
        try:
            yield
        except apsw.BusyError as error:
            raise StoreError(
                f"the index is not saved for now: another program has locked {self.path}"
            ) from error
        except (apsw.Error, OSError) as error:
            line = str(error).partition("\n")[0].removeprefix(f"{type(error).__name__}: ")
            raise StoreError(
                f"the index is only in memory: {self.path} cannot be read or written "
                f"({line}); free some space there,"
                " or name another folder for caches in XDG_CACHE_HOME"
            ) from error


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def _write_rows(connection: apsw.Connection, rows: Iterable[Row], gone: Iterable[str]) -> None:
    lost = [(path,) for path in gone]
    connection.executemany("DELETE FROM files WHERE path = ?", lost)
    connection.executemany("DELETE FROM entries WHERE path = ?", lost)
    for row in rows:
        seen = row.seen
        connection.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                row.path,
                seen.size,
                seen.changed,
                seen.noticed,
                seen.at,
                seen.digest,
                _sum(row.path, seen),
            ),
        )
        if row.data is not None:
            connection.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
                (row.path, row.data, crc32(row.data, crc32(seen.digest))),
            )


def _sum(path: str, seen: SeenFile) -> int:
    numbers = _NUMBERS.pack(seen.size, seen.changed, seen.noticed, seen.at)
    return crc32(numbers, crc32(seen.digest, crc32(path.encode())))


@cache
def made_by() -> str:
    """What an entry depends on besides its file: this format, our own code and queries, and the
    grammars that are installed.
    """
    digest = blake2b(f"{FORMAT} {sys.version_info[:2]}".encode(), digest_size=16)
    package = Path(__file__).parent.parent.parent
    queries = sorted(package.glob("project/parse/queries/*"))
    for source in (*queries, *(package / f"{name}.py" for name in MAKERS)):
        with suppress(OSError):
            digest.update(source.read_bytes())
    for folder in sys.path:
        with suppress(OSError):
            wheels = [
                name
                for name in os.listdir(folder or ".")
                if name.startswith("tree_sitter") and name.endswith(".dist-info")
            ]
            digest.update("\n".join(sorted(wheels)).encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where the user's caches are."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
