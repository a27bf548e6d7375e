"""Both databases keep what they are given, all of it or nothing, and say in one line what is wrong and what to do."""

import asyncio
import json
import multiprocessing
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loom.errors import ChoiceError, Conflict, StoreError
from loom.stores.database import Database, default_address, open_database
from loom.stores.migrate import Migration, migrate
from tests.stores.conftest import Server

TABLES = (
    Migration(
        1,
        "one column of each kind",
        ("CREATE TABLE nodes (seq {serial}, word TEXT, number BIGINT, real DOUBLE PRECISION, data {bytes})",),
    ),
)
INSERT = "INSERT INTO nodes (seq, word) VALUES ($1, $2)"

# Two characters of each plane, and what programs trip over: signs that join, marks of order, the end of lines, no characters.
PLANES = "".join(chr(plane * 0x10000 + place) for plane in range(17) for place in (0x41, 0xFFFD))
ODD = "e\u0301 \u202eabc\u202c \u2028\u2029\r\n\t\x01\x7f\x85\ufeff\uffff 👩‍👩‍👧‍👦 ﷽ \\ \\u0000 $1 ?1 {each:1} %s"


@pytest.fixture
def tables(database: Database) -> Database:
    migrate(database, TABLES)
    return database


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Database]:
    """A store in a file, for what only files have."""
    opened = open_database(str(tmp_path / "loom.db"))
    migrate(opened, TABLES)
    yield opened
    opened.close()


@pytest.fixture
def lively(server: Server) -> Iterator[tuple[Server, Database]]:
    """A store on a server, for what only servers have."""
    name = server.new_database()
    opened = open_database(server.url(name))
    migrate(opened, TABLES)
    yield server, opened
    opened.close()
    server.run(f"DROP DATABASE {name} WITH (FORCE)")


def put(database: Database, *words: str) -> None:
    with database.write() as writer:
        writer.many(INSERT, zip(writer.reserve(len(words)), words, strict=True))


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
        "from loom.stores.database import open_database\n"
        "from loom.stores.migrate import migrate\n"
        "from tests.stores.test_databases import TABLES, put, words\n"
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
        assert writer.one(f"INSERT INTO nodes (seq, {column}) VALUES ($1, $2) RETURNING seq", 7, value) == (7,)
    with tables.read() as reader:
        found = reader.one(f"SELECT {column} FROM nodes WHERE seq = $1", 7)
    assert found == (value,)
    assert found is not None
    assert type(found[0]) is type(value)


@pytest.mark.parametrize("text", ["'; DROP TABLE nodes; --", '"', "''", "$1", "?1", "{lock}", "%(x)s", "\\'", "a;b", "NULL"])
def test_quotes_and_sql_arrive_as_they_are(tables: Database, text: str) -> None:
    put(tables, text)
    assert words(tables) == [text]
    with tables.read() as reader:
        assert reader.one("SELECT count(*) FROM nodes WHERE word = $1", text) == (1,)


def test_a_list_of_values_is_one_parameter(tables: Database) -> None:
    put(tables, "a", "it's", ODD, "d")
    with tables.read() as reader:
        listed = json.dumps(["it's", ODD, "not there"])
        assert len(reader.all("SELECT seq FROM nodes WHERE word IN {each:1}", listed)) == 2
        assert reader.all("SELECT word FROM nodes WHERE seq IN {each_int:2} AND word <> $1", "a", "[1, 4, 99]") == [("d",)]
        assert reader.all("SELECT word FROM nodes WHERE seq IN {each_int:1}", "[]") == []
        assert reader.one("SELECT word FROM nodes WHERE seq = $1", 99) is None


def test_parameters_may_come_in_any_order_and_twice(tables: Database) -> None:
    with tables.write() as writer:
        writer.all("INSERT INTO nodes (word, seq, number) VALUES ($2, $1, $3)", 5, "five", 5)
        assert writer.all("SELECT number FROM nodes WHERE seq = $1 OR number = $1 {lock}", 5) == [(5,)]


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


def test_an_error_of_the_callers_rows_undoes_everything_and_passes_through(tables: Database) -> None:
    def rows() -> Iterator[tuple[int, str]]:
        yield 1, "gone"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"), tables.write() as writer:
        writer.many(INSERT, rows())
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
        assert reader.one("SELECT count(*) FROM nodes") == (1,)
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
        writer.many(INSERT, [(key, "x") for key in first + second])
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


def test_two_processes_write(tables: Database, address: str) -> None:
    code = "database = open_database(sys.argv[1])\nfor turn in range(40): put(database, sys.argv[2] + str(turn))\ndatabase.close()"
    finish(*(start(code, address, name) for name in "ab"))
    assert sorted(words(tables)) == sorted(f"{name}{turn}" for name in "ab" for turn in range(40))


def test_a_row_is_kept_from_others_until_the_end(tables: Database, address: str) -> None:
    with tables.write() as writer:
        writer.all("INSERT INTO nodes (seq, number) VALUES (1, 0)")
    other = open_database(address)

    def count(database: Database) -> None:
        for _ in range(25):
            with database.write() as writer:
                found = writer.one("SELECT number FROM nodes WHERE seq = $1 {lock}", 1)
                assert found
                writer.all("UPDATE nodes SET number = $1 WHERE seq = $2", found[0] + 1, 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, [tables, other, tables, other]))
    with other.read() as reader:
        assert reader.one("SELECT number FROM nodes") == (100,)
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


def test_a_closed_store_says_so_and_can_be_opened_again(tables: Database, address: str) -> None:
    put(tables, "kept")
    tables.close()
    tables.close()
    with pytest.raises(StoreError, match="closed; open it again"):
        words(tables)
    again = open_database(address)
    assert words(again) == ["kept"]
    again.close()


def test_a_lock_that_is_not_given_back_is_reported(tables: Database, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tables, "one")
    monkeypatch.setenv("LOOM_BUSY_SECONDS", "0.05")
    impatient = open_database(address)
    with tables.write() as writer:
        writer.one("SELECT word FROM nodes WHERE seq = 1 {lock}")
        said = r"busy: another program has held .* for 0\.05 s; .* try again"
        with pytest.raises(StoreError, match=said) as busy, impatient.write() as other:
            other.all("UPDATE nodes SET word = 'two' WHERE seq = 1")
        one_line(busy, impatient)
        assert words(impatient) == ["one"]  # reading goes on
    impatient.close()


# Versions


LATER = (*TABLES, Migration(2, "a mark", ("ALTER TABLE nodes ADD COLUMN mark TEXT", "UPDATE nodes SET mark = upper(word)")))


def version(database: Database) -> Any:
    with database.read() as reader:
        return reader.all("SELECT version FROM store")


def test_a_new_store_gets_every_step(database: Database) -> None:
    migrate(database, LATER)
    assert version(database) == [(2,)]
    put(database, "a")
    with database.read() as reader:
        assert reader.all("SELECT word, mark FROM nodes") == [("a", None)]


def test_an_old_store_is_brought_forward_with_what_it_holds(tables: Database, address: str) -> None:
    put(tables, "old")
    newer = open_database(address)
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


def test_a_newer_store_is_refused(database: Database, address: str) -> None:
    migrate(database, LATER)
    older = open_database(address)
    with pytest.raises(StoreError, match=r"version 2, .* up to 1: upgrade loomwright, or open another store") as refused:
        migrate(older, TABLES)
    one_line(refused, older)
    older.close()


def test_several_processes_may_make_a_store_at_once(address: str) -> None:
    code = (
        "database = open_database(sys.argv[1])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "migrate(database, TABLES); put(database, sys.argv[2]); database.close()"
    )
    children = [start(code, address, str(number), stdin=subprocess.PIPE) for number in range(5)]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("\n")
        child.stdin.flush()
    finish(*children)
    database = open_database(address)
    assert version(database) == [(1,)]
    assert sorted(words(database)) == list("01234")
    database.close()


def test_threads_may_make_a_store_at_once(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: migrate(database, LATER), range(8)))
    assert version(database) == [(2,)]


@pytest.mark.parametrize("statement", ["CREATE TABLE recipes (title TEXT)", "CREATE TABLE store (shelf TEXT)"])
def test_a_database_of_something_else_is_left_alone(database: Database, address: str, statement: str) -> None:
    with database.write() as writer:
        writer.all(statement)
    database.close()
    path = Path(address.removeprefix("sqlite://"))
    before = path.read_bytes() if path.exists() else b""
    other = open_database(address)
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


@pytest.mark.parametrize("content", [b"no database, but long enough " * 200, b"SQLite format 2\0" + bytes(4096), b"short"])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    database = open_database(str(path))
    with pytest.raises(StoreError, match=r"is not a database; it was left as it is\. Name another file") as refused:
        migrate(database, TABLES)
    one_line(refused, database)
    database.close()
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["notes.txt"]


# Files


def test_nothing_is_made_before_first_use_and_then_only_for_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "loom.db"
    database = open_database(str(path))
    assert not (tmp_path / "a").exists()
    migrate(database, TABLES)
    put(database, "mine")
    modes = {place.name: stat.S_IMODE(place.stat().st_mode) for place in (tmp_path / "a").rglob("*")}
    database.close()
    assert modes["b"] == 0o700
    assert {mode for name, mode in modes.items() if name != "b"} == {0o600}


def test_odd_file_names_are_names(tmp_path: Path) -> None:
    for name in ("file:x?mode=ro", "a b%20c#d.db", "語.db", "it's.db"):
        database = open_database(str(tmp_path / name))
        migrate(database, TABLES)
        put(database, name)
        database.close()
        assert (tmp_path / name).exists()


@pytest.mark.parametrize("name", [":memory:", "sqlite://:memory:"])
def test_a_store_in_memory(name: str) -> None:
    database = open_database(name)
    migrate(database, TABLES)
    with database.read():  # all share one connection, so a write may be inside a read
        put(database, "kept")
    with database.write() as outer:
        outer.all(INSERT, 5, "too")
        with pytest.raises(KeyError):
            put_and_raise(database, KeyError())
        assert words(database) == ["kept", "too"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: put(database, str(number)), range(40)))
    assert len(words(database)) == 42
    assert database.size() > 0
    assert database.check() == []
    database.shed()
    database.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_store_in_memory_stays_in_its_process() -> None:
    database = open_database(":memory:")
    migrate(database, TABLES)

    def child() -> None:
        with pytest.raises(StoreError, match="give a path"):
            words(database)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_whose_file_was_taken_away_is_not_written_into_nowhere(file: Database, tmp_path: Path, replaced: bool) -> None:
    put(file, "one")
    copy = tmp_path / "copy.db"
    shutil.copy(file.address, copy)
    os.unlink(file.address)
    if replaced:
        os.rename(copy, file.address)
    with pytest.raises(StoreError, match="removed or replaced while it was open; open it again") as refused:
        put(file, "lost")
    one_line(refused, file)


def test_a_full_disk_keeps_what_was_there(file: Database) -> None:
    put(file, "kept")
    with file.write() as writer:
        writer.all("PRAGMA max_page_count = 20")
    with pytest.raises(StoreError, match=r"the disk is full; .*Free some space") as full:
        put(file, "gone", "x" * 1_000_000)
    one_line(full, file)
    assert words(file) == ["kept"]
    put(file, "goes on")


def test_a_disk_that_takes_no_more_bytes_keeps_what_was_there(file: Database) -> None:
    pytest.importorskip("resource")
    put(file, "kept")
    code = (
        "import resource\n"
        "database = open_database(sys.argv[1]); words(database)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "try: put(database, 'x' * 1_000_000)\n"
        "except StoreError as error: print(error)\n"
        "print(words(database)); put(database, 'small')"
    )
    (printed,) = finish(start(code, file.address))
    said, found = printed.splitlines()
    assert "the disk is full, gone or failing; nothing of this change was kept" in said
    assert found == "['kept']"
    assert words(file) == ["kept", "small"]
    assert file.check() == []


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no users here")
@pytest.mark.parametrize("what", ["the file", "the folder", "both"])
def test_a_read_only_store_is_read_and_says_why_it_is_not_written(what: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="loom-ro-"))
    try:
        path = folder / "loom.db"
        database = open_database(str(path))
        migrate(database, TABLES)
        put(database, "kept")
        database.close()
        path.chmod(0o444 if what != "the folder" else 0o666)
        folder.chmod(0o555 if what != "the file" else 0o777)
        # Whoever may do everything must first become nobody.
        code = (
            "import os\n"
            "import loom.stores.sqlite\n"
            "if os.geteuid() == 0: os.setegid(65534); os.seteuid(65534)\n"
            "database = open_database(sys.argv[1])\n"
            "migrate(database, TABLES); print(words(database)); print(words(database)); print(database.check())\n"
            "try: put(database, 'no')\n"
            "except StoreError as error: print(error)\n"
        )
        (printed,) = finish(start(code, str(path)))
        *found, said = printed.splitlines()
        assert found == ["['kept']", "['kept']", "[]"]
        assert said.startswith(f"{path} is read-only, or its folder is")
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_damaged_page_is_reported(file: Database) -> None:
    put(file, *("word " * 300 for _ in range(200)))
    file.shed()
    file.close()
    path = Path(file.address)
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 40] = b"\x5a" * 4096 * 37
    path.write_bytes(content)
    damaged = open_database(file.address)
    with pytest.raises(StoreError, match=r"damaged .*restore it from a copy.*loom session export") as error:
        words(damaged)
    one_line(error, damaged)
    assert damaged.check()
    damaged.close()
    path.write_bytes(b"\0" * len(content))
    destroyed = open_database(file.address)
    with pytest.raises(StoreError, match="not a database"):
        words(destroyed)
    assert destroyed.check()
    destroyed.close()


def test_a_folder_and_a_place_that_cannot_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    for path, said in ((tmp_path, "is a folder; name a file in it"), (tmp_path / "plain" / "loom.db", "cannot be opened")):
        database = open_database(str(path))
        with pytest.raises(StoreError, match=said) as refused:
            migrate(database, TABLES)
        one_line(refused, database)


# Looking after it


def test_a_store_grows_and_is_sound(tables: Database) -> None:
    before = tables.size()
    put(tables, *(str(number) * 3000 for number in range(300)))
    assert tables.size() > before
    assert tables.check() == []
    tables.shed()
    assert len(words(tables)) == 300


def test_what_was_purged_is_not_in_the_files_any_more(file: Database) -> None:
    """Rows of all sizes come in no order, so that pages are split and joined, which leaves copies behind."""
    sizes = [0, 10, 100, 1000, 6000]
    secrets = {number * 7919 % 1009: f"<secret {number:04}>{'q' * sizes[number % 5]}" for number in range(400)}
    for key, secret in secrets.items():
        with file.write() as writer:
            writer.all(INSERT, key, secret)
    gone = [key for key in secrets if key % 3 == 0]
    with file.write() as writer:
        writer.many("UPDATE nodes SET word = NULL WHERE seq = $1", [(key,) for key in gone[::2]])
        writer.many("DELETE FROM nodes WHERE seq = $1", [(key,) for key in gone[1::2]])
    file.shed()
    folder = Path(file.address).parent
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    for key, secret in secrets.items():
        assert (secret[:13].encode() in content) == (key not in gone)


def test_bytes_that_somebody_still_reads_cannot_be_shed(file: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    put(file, "secret")
    monkeypatch.setenv("LOOM_BUSY_SECONDS", "0.05")
    other = open_database(file.address)
    with file.read() as reader:
        reader.all("SELECT * FROM nodes")
        with other.write() as writer:
            writer.all("DELETE FROM nodes")
        with pytest.raises(StoreError, match="somebody is reading what was deleted"):
            other.shed()
    other.shed()
    other.close()


# Servers


def test_a_server_that_is_killed_loses_nothing_acknowledged_and_is_used_again(mortal: Server) -> None:
    database = open_database(mortal.url(mortal.new_database()))
    migrate(database, TABLES)
    put(database, "acknowledged")

    def kill_between(*statements: str, error: Exception | None = None) -> None:
        with database.write() as writer:
            writer.all(INSERT, 50, "never committed")
            mortal.kill()
            for statement in statements:
                writer.all(statement)
            if error:
                raise error

    with pytest.raises(StoreError, match="nothing acknowledged is lost; start it") as vanished:
        kill_between("DELETE FROM nodes")
    one_line(vanished, database)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"cannot be reached .*start it"):
            words(database)
    mortal.start()
    assert words(database) == ["acknowledged"]
    mortal.kill()
    mortal.start()  # restarted between two calls: the connection that is kept is dead, and nobody has noticed
    put(database, "again")
    assert words(database) == ["acknowledged", "again"]

    with pytest.raises(StoreError, match="nothing acknowledged is lost"):
        kill_between()
    mortal.start()
    with pytest.raises(KeyError):  # the caller's own error, though nobody was there to undo anything
        kill_between(error=KeyError())
    mortal.start()
    assert words(database) == ["acknowledged", "again"]
    database.close()


def test_who_may_not_connect_is_told_why(mortal: Server) -> None:
    rules = mortal.data / "pg_hba.conf"
    kept = rules.read_text()
    rules.write_text("local all locked scram-sha-256\n" + kept)
    mortal.run("CREATE ROLE locked LOGIN PASSWORD 'right' CONNECTION LIMIT 1", "SELECT pg_reload_conf()")
    cases = [
        (mortal.url(user="locked:wr0ng"), "refuses this user or this password"),
        (mortal.url(user="nobody:wr0ng"), "refuses this user or this password"),
        (mortal.url("nowhere", "postgres:wr0ng"), "nowhere does not exist on this server; create the database"),
    ]
    for url, said in cases:
        database = open_database(url)
        with pytest.raises(StoreError, match=said) as refused, database.read():
            pass
        assert "wr0ng" not in one_line(refused, database)
        database.close()
    first, second = open_database(mortal.url(user="locked:right")), open_database(mortal.url(user="locked:right"))
    with first.read(), pytest.raises(StoreError, match="no connection left"), second.read():
        pass
    first.close()
    with second.read() as reader:
        assert reader.one("SELECT 1") == (1,)
    with pytest.raises(StoreError, match=r"does not let this user .*grant the right"):
        migrate(second, TABLES)
    second.close()


def test_two_that_wait_for_each_other_are_told_to_try_again(lively: tuple[Server, Database]) -> None:
    _, database = lively
    put(database, "a", "b")
    both = threading.Barrier(2)

    def cross(first: int, second: int) -> str:
        try:
            with database.write() as writer:
                writer.all("UPDATE nodes SET number = 1 WHERE seq = $1", first)
                both.wait(30)
                writer.all("UPDATE nodes SET number = 1 WHERE seq = $1", second)
        except StoreError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(cross, [1, 2], [2, 1]))
    assert said[0] == ""
    assert said[1].endswith("try again")


def test_closing_ends_the_thread_and_the_connections(lively: tuple[Server, Database]) -> None:
    server, database = lively
    name = database.address.rpartition("/")[2]
    asked = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'loom'"
    assert words(database) == []
    before = threading.active_count()
    assert server.run(asked)[0][0] == 1

    def close_between() -> None:
        with database.write() as writer:
            writer.all(INSERT, 1, "gone")
            database.close()
            writer.all(INSERT, 2, "gone")

    with pytest.raises(StoreError, match="closed"):
        close_between()
    assert threading.active_count() == before - 1
    while server.run(asked)[0][0]:  # the server notices in its own time
        pass


def test_zero_characters_are_refused_where_they_cannot_be_kept(lively: tuple[Server, Database]) -> None:
    _, database = lively
    with pytest.raises(StoreError, match=r"U\+0000") as refused:
        put(database, "a\0b")
    one_line(refused, database)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://me:s3cret@127.0.0.1:1/loom",
        "postgres://me:s3/cret@127.0.0.1:1/loom",
        "postgres://me:s3@cret@127.0.0.1:1/loom",
        "postgres://me:s3?cret@127.0.0.1:1/loom",
        "postgres://me:s3#cret@127.0.0.1:1/loom",
        "postgres://me:s3:cret@127.0.0.1:port/loom",
        "postgresql://127.0.0.1:1/loom?user=me&password=s3cret",
        "postgresql:///loom?host=/nowhere&password=s3cret",
    ],
)
def test_no_message_shows_a_password(url: str) -> None:
    pytest.importorskip("asyncpg")
    database = open_database(url)
    with pytest.raises(StoreError) as refused, database.read():
        pass
    text = one_line(refused, database)
    assert "s3" not in text
    assert "cret" not in text
    database.close()


# Addresses


@pytest.mark.parametrize("url", ["mysql://me:s3cret@host/db", "http://x", "sqlite+aiosqlite:///x", "sqlite://", ""])
def test_an_address_of_another_kind_says_what_is_accepted(url: str) -> None:
    with pytest.raises(ChoiceError, match=r"sqlite:///PATH, :memory: or postgres://") as refused:
        open_database(url)
    assert "s3cret" not in str(refused.value)


def test_addresses_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for url in (f"{tmp_path}/x.db", f"sqlite://{tmp_path}/x.db", f"sqlite:///{tmp_path}/x.db", "x.db", "sqlite://x.db", "~/x.db"):
        assert open_database(url).address == f"{tmp_path}/x.db"


def test_a_store_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOM_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    for platform, folder in (("linux", ".local/share"), ("darwin", "Library/Application Support")):
        monkeypatch.setattr(sys, "platform", platform)
        assert default_address() == str(tmp_path / folder / "loom" / "loom.db")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_address() == str(tmp_path / "data" / "loom" / "loom.db")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert default_address() == str(tmp_path / "local" / "loom" / "loom.db")
    monkeypatch.setenv("LOOM_STORE", "postgres://host/db")
    assert default_address() == "postgres://host/db"
    assert not list(tmp_path.iterdir())


def test_a_missing_driver_says_how_to_get_it() -> None:
    code = "sys.modules['asyncpg'] = None\ntry: open_database('postgres://h/d')\nexcept StoreError as error: print(error)"
    (printed,) = finish(start(code))
    assert "pip install 'loomwright[postgres]'" in printed


def test_a_conflict_says_who_expected_what() -> None:
    conflict = Conflict("s1", "n4", "n7")
    assert isinstance(conflict, StoreError)
    assert (conflict.session, conflict.expected, conflict.found) == ("s1", "n4", "n7")
