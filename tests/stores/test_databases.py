"""Both databases keep what they are given, all of it or nothing, whoever else writes."""

import asyncio
import json
import multiprocessing
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loom.errors import StoreError
from loom.stores.sql.database import Database, open_database
from loom.stores.sql.migrate import Migration, migrate
from tests.stores.tables import INSERT, TABLES, finish, one_line, put, put_and_raise, start, words

# Two characters of each plane, and what programs trip over: signs that join, marks of order, the
# end of lines, no characters.
PLANES = "".join(chr(plane * 0x10000 + place) for plane in range(17) for place in (0x41, 0xFFFD))
ODD = (
    "e\u0301 \u202eabc\u202c \u2028\u2029\r\n\t\x01\x7f\x85\ufeff\uffff 👩‍👩‍👧‍👦 ﷽ \\ \\u0000 $1 "
    "?1 {each:1} %s"
)


# What is stored comes back


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("word", ""),
        ("word", "plain"),
        ("word", PLANES),
        ("word", ODD),
        ("word", "x" * 5_000_000),
        ("word", "語🧵" * 700_000),
        ("word", None),
        ("number", 0),
        ("number", -(2**63)),
        ("number", 2**63 - 1),
        ("number", None),
        ("real", 0.1),
        ("real", -1.7976931348623157e308),
        ("real", 5e-324),
        ("real", float("inf")),
        ("data", b""),
        ("data", bytes(range(256))),
        ("data", bytes(range(256)) * 20_000),
        ("data", None),
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, str) else ascii(value)[:20],
)
def test_values_come_back_as_they_were(tables: Database, column: str, value: Any) -> None:
    with tables.write() as writer:
        assert writer.first_row(
            f"INSERT INTO nodes (seq, {column}) VALUES ($1, $2) RETURNING seq", 7, value
        ) == (7,)
    with tables.read() as reader:
        found = reader.first_row(f"SELECT {column} FROM nodes WHERE seq = $1", 7)
    assert found == (value,)
    assert found is not None
    assert type(found[0]) is type(value)


@pytest.mark.parametrize(
    "text",
    ["'; DROP TABLE nodes; --", '"', "''", "$1", "?1", "{lock}", "%(x)s", "\\'", "a;b", "NULL"],
)
def test_quotes_and_sql_arrive_as_they_are(tables: Database, text: str) -> None:
    put(tables, text)
    assert words(tables) == [text]
    with tables.read() as reader:
        assert reader.first_row("SELECT count(*) FROM nodes WHERE word = $1", text) == (1,)


def test_a_list_of_values_is_one_parameter(tables: Database) -> None:
    put(tables, "a", "it's", ODD, "d")
    with tables.read() as reader:
        listed = json.dumps(["it's", ODD, "not there"])
        assert len(reader.all("SELECT seq FROM nodes WHERE word IN {each:1}", listed)) == 2
        assert reader.all(
            "SELECT word FROM nodes WHERE seq IN {each_int:2} AND word <> $1", "a", "[1, 4, 99]"
        ) == [("d",)]
        assert reader.all("SELECT word FROM nodes WHERE seq IN {each_int:1}", "[]") == []
        assert reader.first_row("SELECT word FROM nodes WHERE seq = $1", 99) is None


def test_parameters_may_come_in_any_order_and_twice(tables: Database) -> None:
    with tables.write() as writer:
        writer.all("INSERT INTO nodes (word, seq, number) VALUES ($2, $1, $3)", 5, "five", 5)
        assert writer.all("SELECT number FROM nodes WHERE seq = $1 OR number = $1 {lock}", 5) == [
            (5,)
        ]


@pytest.mark.parametrize("text", ["half \ud800", "\udc00"])
def test_half_a_character_is_refused(tables: Database, text: str) -> None:
    with pytest.raises(StoreError, match="surrogate") as refused:
        put(tables, text)
    one_line(refused, tables)
    assert words(tables) == []


# All or nothing


def test_an_error_of_the_caller_undoes_everything_and_passes_through(tables: Database) -> None:
    own = KeyError("mine")
    with pytest.raises(KeyError) as raised:
        put_and_raise(tables, own)
    assert raised.value is own
    assert words(tables) == []
    put(tables, "kept")
    assert words(tables) == ["kept"]


def test_an_interrupted_caller_undoes_everything(tables: Database) -> None:
    with pytest.raises(KeyboardInterrupt):
        put_and_raise(tables, KeyboardInterrupt())
    put(tables, "kept")
    assert words(tables) == ["kept"]


def test_an_error_of_the_callers_rows_undoes_everything_and_passes_through(
    tables: Database,
) -> None:
    def rows() -> Iterator[tuple[int, str]]:
        yield 1, "gone"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"), tables.write() as writer:
        writer.run_many(INSERT, rows())
    assert words(tables) == []


def test_a_refused_statement_undoes_everything_even_if_nobody_minds(tables: Database) -> None:
    put(tables, "first")

    def careless() -> None:
        with tables.write() as writer:
            writer.all(INSERT, 2, "gone")
            with pytest.raises(StoreError):
                writer.all(INSERT, 1, "the key is taken")
            with pytest.raises(StoreError):
                writer.all(INSERT, 3, "gone too")

    with pytest.raises(StoreError) as refused:
        careless()
    one_line(refused, tables)
    assert words(tables) == ["first"]


def test_who_reads_cannot_change_anything(tables: Database) -> None:
    with pytest.raises(StoreError, match="read-only"), tables.read() as reader:
        reader.all(INSERT, 1, "no")
    assert words(tables) == []


def test_a_reader_sees_one_moment(tables: Database) -> None:
    put(tables, "before")
    with tables.read() as reader:
        assert reader.first_row("SELECT count(*) FROM nodes") == (1,)
        put(tables, "after")
        assert reader.all("SELECT word FROM nodes") == [("before",)]
    assert words(tables) == ["before", "after"]


def test_nobody_sees_what_is_not_committed(tables: Database) -> None:
    with tables.write() as writer:
        writer.all(INSERT, 1, "not yet")
        assert words(tables) == []
    assert words(tables) == ["not yet"]


def test_keys_only_grow(tables: Database) -> None:
    with tables.write() as writer:
        first, second = list(writer.reserve(3)), list(writer.reserve(2))
        writer.run_many(INSERT, [(key, "x") for key in first + second])
        assert list(writer.reserve(0)) == []
    with tables.write() as writer:
        keys = first + second + list(writer.reserve(1))
    assert keys == sorted(set(keys))
    assert len(keys) == 6


def test_a_write_inside_a_write_is_a_mistake(file: Database) -> None:
    with file.write() as writer:
        writer.all(INSERT, 1, "outer")
        with pytest.raises(StoreError, match="already being written by this thread"):
            put(file, "inner")
    assert words(file) == ["outer"]


# Several at once


def test_eight_threads_write(tables: Database) -> None:
    def work(number: int) -> None:
        for turn in range(12):
            put(tables, f"{number}.{turn}", f"{number}.{turn}+")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    found = words(tables)
    assert len(found) == len(set(found)) == 8 * 12 * 2
    for number in range(8):  # each thread's own in order
        mine = [word for word in found if word.startswith(f"{number}.")]
        assert mine == [f"{number}.{turn}{mark}" for turn in range(12) for mark in ("", "+")]


def test_two_processes_write(tables: Database, bare_address: str) -> None:
    code = (
        "database = open_database(sys.argv[1])\nfor turn in range(40): put(database, sys.argv[2] + "
        "str(turn))\ndatabase.close()"
    )
    finish(*(start(code, bare_address, name) for name in "ab"))
    assert sorted(words(tables)) == sorted(f"{name}{turn}" for name in "ab" for turn in range(40))


def test_a_row_is_kept_from_others_until_the_end(tables: Database, bare_address: str) -> None:
    with tables.write() as writer:
        writer.all("INSERT INTO nodes (seq, number) VALUES (1, 0)")
    other = open_database(bare_address)

    def count(database: Database) -> None:
        for _ in range(25):
            with database.write() as writer:
                found = writer.first_row("SELECT number FROM nodes WHERE seq = $1 {lock}", 1)
                assert found
                writer.all("UPDATE nodes SET number = $1 WHERE seq = $2", found[0] + 1, 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, [tables, other, tables, other]))
    with other.read() as reader:
        assert reader.first_row("SELECT number FROM nodes") == (100,)
    other.close()


def test_more_threads_than_connections_take_turns(tables: Database) -> None:
    put(tables, "here")
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda _: words(tables), range(60))) == [["here"]] * 60


def test_a_call_inside_an_event_loop_works(tables: Database) -> None:
    async def inside() -> list[str]:
        put(tables, "from inside")
        return words(tables)

    assert asyncio.run(inside()) == ["from inside"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_child_process_opens_its_own_connections(tables: Database) -> None:
    put(tables, "parent")
    child = multiprocessing.get_context("fork").Process(target=lambda: put(tables, "child"))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    put(tables, "parent again")
    assert words(tables) == ["parent", "child", "parent again"]


def test_a_closed_store_says_so_and_can_be_opened_again(
    tables: Database, bare_address: str
) -> None:
    put(tables, "kept")
    tables.close()
    tables.close()
    with pytest.raises(StoreError, match="closed; open it again"):
        words(tables)
    again = open_database(bare_address)
    assert words(again) == ["kept"]
    again.close()


def test_a_lock_that_is_not_given_back_is_reported(
    tables: Database, bare_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tables, "one")
    monkeypatch.setenv("LOOM_BUSY_SECONDS", "0.05")
    impatient = open_database(bare_address)
    with tables.write() as writer:
        writer.first_row("SELECT word FROM nodes WHERE seq = 1 {lock}")
        said = r"busy: another program has held .* for 0\.05 s; .* try again"
        with pytest.raises(StoreError, match=said) as busy, impatient.write() as other:
            other.all("UPDATE nodes SET word = 'two' WHERE seq = 1")
        one_line(busy, impatient)
        assert words(impatient) == ["one"]  # reading goes on
    impatient.close()


# Versions


LATER = (
    *TABLES,
    Migration(
        2,
        "a mark",
        ("ALTER TABLE nodes ADD COLUMN mark TEXT", "UPDATE nodes SET mark = upper(word)"),
    ),
)


def version(database: Database) -> Any:
    with database.read() as reader:
        return reader.all("SELECT version FROM store")


def test_a_new_store_gets_every_step(database: Database) -> None:
    migrate(database, LATER)
    assert version(database) == [(2,)]
    put(database, "a")
    with database.read() as reader:
        assert reader.all("SELECT word, mark FROM nodes") == [("a", None)]


def test_an_old_store_is_brought_forward_with_what_it_holds(
    tables: Database, bare_address: str
) -> None:
    put(tables, "old")
    newer = open_database(bare_address)
    migrate(newer, LATER)
    migrate(newer, LATER)
    assert version(newer) == [(2,)]
    with newer.read() as reader:
        assert reader.all("SELECT word, mark FROM nodes") == [("old", "OLD")]
    newer.close()
    put(tables, "an older program that had it open goes on")
    assert words(tables)[1:] == ["an older program that had it open goes on"]


def test_a_step_that_fails_leaves_the_store_at_the_step_before(tables: Database) -> None:
    steps = ("ALTER TABLE nodes ADD COLUMN mark TEXT", "ALTER TABLE nowhere ADD COLUMN mark TEXT")
    with pytest.raises(StoreError):
        migrate(tables, (*TABLES, Migration(2, "half of it", steps)))
    assert version(tables) == [(1,)]
    migrate(tables, LATER)


def test_a_newer_store_is_refused(database: Database, bare_address: str) -> None:
    migrate(database, LATER)
    older = open_database(bare_address)
    with pytest.raises(
        StoreError, match=r"version 2, .* up to 1: upgrade loomwright, or open another store"
    ) as refused:
        migrate(older, TABLES)
    one_line(refused, older)
    older.close()


def test_several_processes_may_make_a_store_at_once(bare_address: str) -> None:
    code = (
        "database = open_database(sys.argv[1])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "migrate(database, TABLES); put(database, sys.argv[2]); database.close()"
    )
    children = [
        start(code, bare_address, str(number), stdin=subprocess.PIPE) for number in range(5)
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("\n")
        child.stdin.flush()
    finish(*children)
    database = open_database(bare_address)
    assert version(database) == [(1,)]
    assert sorted(words(database)) == list("01234")
    database.close()


def test_threads_may_make_a_store_at_once(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: migrate(database, LATER), range(8)))
    assert version(database) == [(2,)]


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE recipes (title TEXT)", "CREATE TABLE store (shelf TEXT)"]
)
def test_a_database_of_something_else_is_left_alone(
    database: Database, bare_address: str, statement: str
) -> None:
    with database.write() as writer:
        writer.all(statement)
    database.close()
    path = Path(bare_address.removeprefix("sqlite://"))
    before = path.read_bytes() if path.exists() else b""
    other = open_database(bare_address)
    with pytest.raises(StoreError, match=r"something else .*left as it is") as refused:
        migrate(other, TABLES)
    one_line(refused, other)
    with other.read() as reader, pytest.raises(StoreError):
        reader.all("SELECT * FROM nodes")
    other.close()
    assert before == (path.read_bytes() if path.exists() else b"")


def test_another_programs_sqlite_file_is_not_changed_by_a_byte(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE recipes (title TEXT)")
    other.close()
    before = path.read_bytes()
    database = open_database(str(path))
    with pytest.raises(StoreError, match="recipes"):
        migrate(database, TABLES)
    database.close()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["other.db"]


@pytest.mark.parametrize(
    "content",
    [b"no database, but long enough " * 200, b"SQLite format 2\0" + bytes(4096), b"short"],
)
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    database = open_database(str(path))
    with pytest.raises(
        StoreError, match=r"is not a database; it was left as it is\. Name another file"
    ) as refused:
        migrate(database, TABLES)
    one_line(refused, database)
    database.close()
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["notes.txt"]
