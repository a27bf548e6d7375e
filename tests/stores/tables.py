"""A table with a column of each kind, and programs that use it, for the tests of the databases."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loom.errors import StoreError
from loom.stores.sql.database import Database, Writer
from loom.stores.sql.migrate import Migration
from loom.stores.sql.schema import MIGRATIONS

TABLES = (
    Migration(
        1,
        "one column of each kind",
        (
            "CREATE TABLE nodes (seq {serial}, word TEXT, number BIGINT, "
            "real DOUBLE PRECISION, data {bytes})",
        ),
    ),
)
INSERT = "INSERT INTO nodes (seq, word) VALUES ($1, $2)"


def put(database: Database, *words: str) -> None:
    with database.write() as writer:
        writer.run_many(INSERT, zip(writer.reserve(len(words)), words, strict=True))


def put_and_raise(database: Database, error: BaseException) -> None:
    with database.write() as writer:
        writer.all(INSERT, 1000, "gone")
        raise error


def words(database: Database) -> list[str]:
    with database.read() as reader:
        return [word for (word,) in reader.all("SELECT word FROM nodes ORDER BY seq")]


def start(code: str, *arguments: str, **settings: Any) -> "subprocess.Popen[str]":
    head = (
        "import sys\n"
        "from loom.errors import StoreError\n"
        "from loom.stores.sql.database import open_database\n"
        "from loom.stores.sql.migrate import migrate\n"
        "from tests.stores.tables import TABLES, put, words\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        **settings,
    )


def finish(*children: "subprocess.Popen[str]") -> list[str]:
    """What each printed; it must have ended well."""
    printed = []
    for child in children:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        printed.append(out)
    return printed


def one_line(error: pytest.ExceptionInfo[StoreError], database: Database) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith(database.address)
    return text


def undo_search(writer: Writer) -> None:
    """Make a store as it was before it had an index for searching: version 5."""
    made = [sql for step in MIGRATIONS if step.number > 5 for sql in step.statements]
    for name in re.findall(r"CREATE TABLE (\w+)", "\n".join(made)):
        writer.all(f"DROP TABLE {name}")
    for name in re.findall(r"CREATE INDEX (\w+)", "\n".join(made)):
        writer.all(f"DROP INDEX IF EXISTS {name}")
    writer.all("DROP INDEX IF EXISTS nodes_tree")
    writer.all("UPDATE store SET version = 5")
