"""The seam to a database: one snapshot to read from, one transaction to write in, the same SQL for
both databases.

SQL is written once, with parameters `$1, $2, …`, and never holds user text: values are only ever
parameters. What the two databases spell differently is a token, filled in when the statement is
run:

{serial}      the type of a column that is the table's own growing key
{bytes}       the type of a column of bytes
{each:N}      a subselect of the texts of a JSON array that parameter N holds as text; {each_int:N}
of its whole numbers; {each_pair:N} of its pairs, as `tree` and `seq`
{lock}        at the end of a select: keep the rows from others until this transaction ends
{binary}      after the type of a text: compare it letter by letter, whatever the language
{node_key}    the type of `seq` in `nodes`, and {node_tail} what that table ends with: PostgreSQL
keeps a tree's nodes together; {by_tree} makes an index of them where the table is none
{clustered}   at the end of a table: its rows are kept in the order of their key
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from loom.errors import ChoiceError, StoreError

STORE_VARIABLE = "LOOM_STORE"
BUSY_VARIABLE = "LOOM_BUSY_SECONDS"
_BUSY_SECONDS = 30.0
# sqlite:////tmp/x is /tmp/x, and sqlite:///C:/x is C:/x
_SLASHES = re.compile(r"^/+(?=/|[A-Za-z]:)")
_TOKEN = re.compile(r"\{(\w+)(?::(\d+))?\}")

Row = tuple[Any, ...]


class GarbledText:
    """A text in a row that is not UTF-8. As a string it shows what can be read of it. No JSON holds
    it, and no column.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __str__(self) -> str:
        return self._data.decode(errors="replace")

    def __repr__(self) -> str:
        return repr(str(self))


def text_of(data: bytes) -> str | GarbledText:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return GarbledText(data)


class Reader(Protocol):
    """Statements inside one transaction. The first that fails ends it: whatever comes after it
    fails too.

    But a text that is not UTF-8 ends nothing: `all` and `first_row` fail, and whoever goes around
    it may read on.
    """

    def all(self, sql: str, *values: Any) -> list[Row]: ...

    def all_garbled(self, sql: str, *values: Any) -> list[Row]:
        """The rows of a statement of which `all` could not read a text: each such text is
        Garbled.
        """

    def first_row(self, sql: str, *values: Any) -> Row | None:
        """The first row, if there is one."""


class Writer(Reader, Protocol):
    """A reader whose statements may change what is stored."""

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""

    def reserve(self, count: int) -> Sequence[int]:
        """That many new keys for rows of `nodes`, each larger than the one before."""


class NoticeListener(Protocol):
    """Something that hears what other programs say to a channel."""

    @property
    def is_alive(self) -> bool:
        """Whether it still hears something."""

    def close(self) -> None: ...


class Database(Protocol):
    """A place to store things. The address is for messages and holds no password."""

    name: str
    address: str

    def read(self) -> AbstractContextManager[Reader]:
        """One consistent snapshot."""

    def write(self) -> AbstractContextManager[Writer]:
        """All or nothing: on disk when the block ends, undone on any exception. One thread must not
        open two at once.
        """

    def listen(self, channel: str, wake: Callable[[], None]) -> NoticeListener | None:
        """Call `wake`, in a thread of the database, when something is said to a channel. None if
        this database tells nobody of anything, or cannot be reached.
        """

    def size(self) -> int:
        """Bytes on disk."""

    def check(self) -> list[str]:
        """What the database itself says is wrong with its files."""

    def shed(self) -> None:
        """After a purge: the deleted bytes are gone from the files too, as far as this database can
        do that.
        """

    def close(self) -> None: ...


def open_database(url: str | None = None) -> Database:
    """The database at a path, `sqlite://PATH`, `:memory:` or `postgres://…`. Nothing is made or
    connected to before first use.
    """
    if url is None:
        url = default_address()
    scheme, mark, rest = url.partition("://")
    if mark and scheme in ("postgres", "postgresql"):
        try:
            from loom.stores.sql.postgres import PostgresDatabase
        except ModuleNotFoundError as error:
            raise StoreError(
                f"PostgreSQL needs {error.name}, which is not installed: pip install "
                "'loomwright[postgres]'"
            ) from None
        return PostgresDatabase(url)
    path = rest if mark and scheme == "sqlite" else url
    if not path or (mark and scheme != "sqlite"):
        shown = f"'{scheme}://…'" if mark else repr(url)
        raise ChoiceError(
            f"{shown} is not a store: give a path, sqlite:///PATH, :memory: or "
            "postgres://USER@HOST/DATABASE"
        )
    from loom.stores.sql.sqlite import SqliteDatabase

    return SqliteDatabase(_SLASHES.sub("", path) if mark else path)


def find_absent(url: str | None = None) -> str:
    """The file that a store would be, where there is none yet; "" if there may be one."""
    database = open_database(url)
    try:
        if database.name == "sqlite" and os.path.isabs(database.address):  # and not :memory:
            os.stat(database.address)
        return ""
    except (FileNotFoundError, NotADirectoryError):
        return database.address
    except OSError:  # it may well be there; opening it tells what is wrong
        return ""
    finally:
        database.close()


def default_address() -> str:
    """The store of whoever names none: LOOM_STORE, or loom.db in the user's data folder."""
    named = os.environ.get(STORE_VARIABLE)
    return named or str(_data_folder() / "loom" / "loom.db")


def _data_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def busy_seconds() -> float:
    """How long a call waits for a lock that another program holds."""
    given = os.environ.get(BUSY_VARIABLE)
    if not given:
        return _BUSY_SECONDS
    try:
        return float(given)
    except ValueError:
        raise ChoiceError(f"{BUSY_VARIABLE} is {given!r}; give a number of seconds") from None


def fill_tokens(sql: str, tokens: Mapping[str, str]) -> str:
    """The statement with its tokens in the words of one database; `$N` in those words is the number
    that the token named.
    """
    return _TOKEN.sub(lambda found: tokens[found[1]].replace("$N", f"${found[2]}"), sql)
