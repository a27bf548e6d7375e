"""Where a store cannot be had, read or written, one line says what is wrong and what to do; nothing
acknowledged is lost.
"""

import multiprocessing
import os
import shutil
import stat
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loom.errors import ChoiceError, Conflict, StoreError
from loom.stores.sql.database import Database, default_address, open_database
from loom.stores.sql.migrate import migrate
from tests.stores.conftest import Server
from tests.stores.tables import INSERT, TABLES, finish, one_line, put, put_and_raise, start, words

# Files


def test_nothing_is_made_before_first_use_and_then_only_for_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "loom.db"
    database = open_database(str(path))
    assert not (tmp_path / "a").exists()
    migrate(database, TABLES)
    put(database, "mine")
    modes = {
        place.name: stat.S_IMODE(place.stat().st_mode) for place in (tmp_path / "a").rglob("*")
    }
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
def test_a_store_whose_file_was_taken_away_is_not_written_into_nowhere(
    file: Database, tmp_path: Path, replaced: bool
) -> None:
    put(file, "one")
    copy = tmp_path / "copy.db"
    shutil.copy(file.address, copy)
    os.unlink(file.address)
    if replaced:
        os.rename(copy, file.address)
    with pytest.raises(
        StoreError, match="removed or replaced while it was open; open it again"
    ) as refused:
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
            "import loom.stores.sql.sqlite\n"
            "if os.geteuid() == 0: os.setegid(65534); os.seteuid(65534)\n"
            "database = open_database(sys.argv[1])\n"
            "migrate(database, TABLES); print(words(database)); print(words(database)); "
            "print(database.check())\n"
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
    with pytest.raises(
        StoreError, match=r"damaged .*restore it from a copy.*loom session export"
    ) as error:
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
    for path, said in (
        (tmp_path, "is a folder; name a file in it"),
        (tmp_path / "plain" / "loom.db", "cannot be opened"),
    ):
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
    """Rows of all sizes come in no order, so that pages are split and joined, which leaves copies
    behind.
    """
    sizes = [0, 10, 100, 1000, 6000]
    secrets = {
        number * 7919 % 1009: f"<secret {number:04}>{'q' * sizes[number % 5]}"
        for number in range(400)
    }
    for key, secret in secrets.items():
        with file.write() as writer:
            writer.all(INSERT, key, secret)
    gone = [key for key in secrets if key % 3 == 0]
    with file.write() as writer:
        writer.run_many(
            "UPDATE nodes SET word = NULL WHERE seq = $1", [(key,) for key in gone[::2]]
        )
        writer.run_many("DELETE FROM nodes WHERE seq = $1", [(key,) for key in gone[1::2]])
    file.shed()
    folder = Path(file.address).parent
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    for key, secret in secrets.items():
        assert (secret[:13].encode() in content) == (key not in gone)


def test_bytes_that_somebody_still_reads_cannot_be_shed(
    file: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(file, "secret")
    monkeypatch.setenv("LOOM_BUSY_SECONDS", "0.05")
    other = open_database(file.address)
    with file.read() as reader:
        reader.all("SELECT * FROM nodes")
        with other.write() as writer:
            writer.all("DELETE FROM nodes")
        with pytest.raises(StoreError, match="another process is reading deleted data"):
            other.shed()
    other.shed()
    other.close()


# Servers


def test_a_server_that_is_killed_loses_nothing_acknowledged_and_is_used_again(
    mortal: Server,
) -> None:
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

    with pytest.raises(StoreError, match="was acknowledged is lost; start it") as vanished:
        kill_between("DELETE FROM nodes")
    one_line(vanished, database)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"cannot be reached .*start it"):
            words(database)
    mortal.start()
    assert words(database) == ["acknowledged"]
    mortal.kill()
    # restarted between two calls: the connection that is kept is dead, and nobody has noticed
    mortal.start()
    put(database, "again")
    assert words(database) == ["acknowledged", "again"]

    with pytest.raises(StoreError, match="nothing that was acknowledged is lost"):
        kill_between()
    mortal.start()
    # the caller's own error, though nobody was there to undo anything
    with pytest.raises(KeyError):
        kill_between(error=KeyError())
    mortal.start()
    assert words(database) == ["acknowledged", "again"]
    database.close()


def test_who_may_not_connect_is_told_why(mortal: Server) -> None:
    rules = mortal.data / "pg_hba.conf"
    kept = rules.read_text()
    rules.write_text("local all locked scram-sha-256\n" + kept)
    mortal.run(
        "CREATE ROLE locked LOGIN PASSWORD 'right' CONNECTION LIMIT 1", "SELECT pg_reload_conf()"
    )
    cases = [
        (mortal.url(user="locked:wr0ng"), "refuses this user or this password"),
        (mortal.url(user="nobody:wr0ng"), "refuses this user or this password"),
        (
            mortal.url("nowhere", "postgres:wr0ng"),
            "nowhere does not exist on this server; create the database",
        ),
    ]
    for url, said in cases:
        database = open_database(url)
        with pytest.raises(StoreError, match=said) as refused, database.read():
            pass
        assert "wr0ng" not in one_line(refused, database)
        database.close()
    first, second = (
        open_database(mortal.url(user="locked:right")),
        open_database(mortal.url(user="locked:right")),
    )
    with first.read(), pytest.raises(StoreError, match="no connection left"), second.read():
        pass
    first.close()
    with second.read() as reader:
        assert reader.first_row("SELECT 1") == (1,)
    with pytest.raises(StoreError, match=r"does not let this user .*grant the right"):
        migrate(second, TABLES)
    second.close()


def test_two_that_wait_for_each_other_are_told_to_try_again(
    lively: tuple[Server, Database],
) -> None:
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
    asked = (
        "SELECT count(*) FROM pg_stat_activity "
        f"WHERE datname = '{name}' AND application_name = 'loom'"
    )
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


def test_zero_characters_are_refused_where_they_cannot_be_kept(
    lively: tuple[Server, Database],
) -> None:
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


@pytest.mark.parametrize(
    "url", ["mysql://me:s3cret@host/db", "http://x", "sqlite+aiosqlite:///x", "sqlite://", ""]
)
def test_an_address_of_another_kind_says_what_is_accepted(url: str) -> None:
    with pytest.raises(ChoiceError, match=r"sqlite:///PATH, :memory: or postgres://") as refused:
        open_database(url)
    assert "s3cret" not in str(refused.value)


def test_addresses_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for url in (
        f"{tmp_path}/x.db",
        f"sqlite://{tmp_path}/x.db",
        f"sqlite:///{tmp_path}/x.db",
        "x.db",
        "sqlite://x.db",
        "~/x.db",
    ):
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
    code = (
        "sys.modules['asyncpg'] = None\ntry: open_database('postgres://h/d')\nexcept StoreError as "
        "error: print(error)"
    )
    (printed,) = finish(start(code))
    assert "pip install 'loomwright[postgres]'" in printed


def test_a_conflict_says_who_expected_what() -> None:
    conflict = Conflict("s1", "n4", "n7")
    assert isinstance(conflict, StoreError)
    assert (conflict.session, conflict.expected, conflict.found) == ("s1", "n4", "n7")
