"""The file that a project's index is kept in: SQLite, next to those of other projects in a folder
for caches.

It is a cache: it may be thrown away at any time, so it is never waited for long and never synced to
disk. Each row proves itself by a checksum, and says what the file was like when it was read, so any
mixture of older and newer rows is as good as a whole.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw
from msgspec import Struct

from loom.errors import StoreError

FORMAT = 3
BUSY_SECONDS = 1.0
# The modules that an entry is made by, in the folder of the package.
MAKERS = (
    "conversation/encodings",
    "conversation/stems",
    "conversation/words",
    "project/index/entries",
    "project/index/files",
    "project/index/git",
    "project/parse/grammars",
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
    """The index of one project on disk. Raises only StoreError, whose text says why nothing is
    kept; a damaged file is replaced.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._about = {"root": os.fsencode(root).hex(), "made_by": made_by()}

    def load(self) -> list[Row]:
        """All rows that are whole and made by this very version of Loom and its grammars, by
        path.
        """
        with self._raise_store_errors():
            if not self._path.exists():
                return []
            try:
                with self._open() as connection:
                    return self._rows(connection)
            except _DAMAGED:
                self._discard()
                return []

    def save(self, rows: Iterable[Row], gone: Iterable[str]) -> bool:
        """Write rows and remove others, all or nothing. False: the file was damaged and is gone, so
        all rows are wanted.
        """
        with self._raise_store_errors():
            self._make()
            try:
                with self._open() as connection:
                    self._write(connection, rows, gone)
                return True
            except _DAMAGED:
                self._discard()
                return False

    def _rows(self, connection: apsw.Connection) -> list[Row]:
        try:
            about = dict(connection.execute("SELECT name, value FROM about"))
        except apsw.SQLError:  # made, but nothing written yet
            return []
        if about != self._about:
            return []
        found: list[tuple[Any, ...]] = connection.execute(
            """SELECT path, size, changed, noticed, seen, digest, files.sum, data, entries.sum
                FROM files JOIN entries USING (path) ORDER BY 1"""
        ).fetchall()
        rows = []
        for path, size, changed, noticed, at, digest, total, data, data_total in found:
            # damage may change a value into one of another type
            with suppress(TypeError, AttributeError):
                seen = SeenFile(size, changed, noticed, at, digest)
                if total == _sum(path, seen) and data_total == crc32(data, crc32(digest)):
                    rows.append(Row(path, seen, data))
        return rows

    def _write(self, connection: apsw.Connection, rows: Iterable[Row], gone: Iterable[str]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_SCHEMA)
            # Another version of Loom may have written in the meantime, and its rows must not pass
            # for ours.
            if dict(connection.execute("SELECT name, value FROM about")) != self._about:
                connection.execute("DELETE FROM about; DELETE FROM files; DELETE FROM entries")
                connection.executemany("INSERT INTO about VALUES (?, ?)", self._about.items())
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
                    total = crc32(row.data, crc32(seen.digest))
                    connection.execute(
                        "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
                        (row.path, row.data, total),
                    )
            connection.execute("COMMIT")
        except BaseException:
            with suppress(apsw.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _open(self) -> Iterator[apsw.Connection]:
        """A connection for one look or one change: none is left open for a fork to inherit."""
        with closing(
            apsw.Connection(os.fspath(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        ) as connection:
            connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
            connection.execute("PRAGMA synchronous = OFF")
            yield connection

    def _make(self) -> None:
        """An empty file that only its owner can read, for it holds what the project says; its
        folders too.
        """
        for folder in reversed([folder for folder in self._path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))

    def _discard(self) -> None:
        for end in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}{end}")

    @contextmanager
    def _raise_store_errors(self) -> Iterator[None]:
        """Errors of SQLite and of the system as one line for whoever wonders why each start takes
        long.
        """
        try:
            yield
        except apsw.BusyError as error:
            raise StoreError(
                f"the index is not saved for now: another program has locked {self._path}"
            ) from error
        except (apsw.Error, OSError) as error:
            line = str(error).partition("\n")[0].removeprefix(f"{type(error).__name__}: ")
            raise StoreError(
                f"the index is only in memory: {self._path} cannot be read or written "
                f"({line}); free some space there,"
                " or name another folder for caches in XDG_CACHE_HOME"
            ) from error


def _sum(path: str, seen: SeenFile) -> int:
    return crc32(
        f"{path}\0{seen.size} {seen.changed} {seen.noticed} {seen.at} ".encode() + seen.digest
    )


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
